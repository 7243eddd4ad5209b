"""The autoscaler's memory on another process's clock."""

from elasticd.records.autoscale.memory import Memory, Proposed, Resized, shifted
from elasticd.records.codec import decode, encode


def test_memory_on_another_clock_is_as_old_as_when_it_was_written() -> None:
    """No time has gone by in between, whatever both clocks read."""
    written = Memory(
        uid="u1",
        now_s=1000.0,
        proposed=(Proposed(at_s=990.0, nodes=3),),
        resized=(Resized(at_s=980.0, delta=1),),
        held="stale",
        held_since_s=999.0,
        whole_since_s={"queue": 900.0},
    )
    memory = shifted(decode(Memory, encode(written)), 50.0)
    assert memory.now_s == 50.0
    assert memory.proposed == (Proposed(at_s=40.0, nodes=3),)
    assert memory.resized == (Resized(at_s=30.0, delta=1),)
    assert memory.held_since_s == 49.0
    assert memory.whole_since_s == {"queue": -50.0}
    assert memory.idle_since_s is None

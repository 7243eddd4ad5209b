"""A session whose job is stopped: it leaves as for any planned change, and says what is saved."""

import pytest

from elasticd.channel.worker import Leave, Left
from elasticd.train.interrupt import Interrupted
from elasticd.train.session.final_save import NOT_AGREED
from tests.unit.train.session.session_bench import Bench, bench, enter, formed

__all__ = ["bench"]

STOP = Leave(at_step=0, save_within_s=600.0)


def test_stop_is_a_planned_change(bench: Bench) -> None:
    """The step that is under way is made, by all ranks, and the group is not broken before."""
    bench.group.others = 6
    bench.begin(step=4)
    bench.hears(STOP)
    bench.step(5)
    with pytest.raises(Interrupted):
        bench.step(6)
    assert bench.session.has_left_as_agreed
    assert bench.session.final_save is not None
    assert not bench.group.aborted.is_set()


def test_what_is_saved_is_told_with_the_goodbye(bench: Bench) -> None:
    bench.begin(step=4)
    bench.hears(STOP)
    with pytest.raises(Interrupted):
        bench.step(5)
    final_save = bench.session.final_save
    assert final_save is not None
    final_save.durable_step, final_save.why = 5, ""
    assert left(bench) == Left(step=5, durable_step=5)


def test_rank_that_could_not_leave_with_the_others_says_so(bench: Bench) -> None:
    bench.group.others = None
    bench.begin(step=4)
    bench.hears(STOP)
    with pytest.raises(Interrupted):
        bench.step(5)
    assert not bench.session.has_left_as_agreed
    assert left(bench) == Left(step=5, why=NOT_AGREED)


@pytest.mark.parametrize("at_step", [None, 7])
def test_world_that_others_go_to_is_entered_before(bench: Bench, at_step: int | None) -> None:
    """Some may be there already, and wait: all meet there, and end after its first step."""
    bench.begin(step=4)
    bench.hears(enter(2, at_step=at_step))
    bench.wire.tell(STOP)
    bench.wire.wait_handled(STOP)
    assert bench.session.final_save is None
    assert bench.session.next_world() == enter(2, at_step=at_step)
    bench.session.use(bench.group)
    assert not bench.session.is_stale(2)
    bench.session.formed(formed(2, 7))
    with pytest.raises(Interrupted):
        bench.step(8)
    assert bench.session.has_left_as_agreed
    assert bench.session.final_save is not None


def test_time_that_is_over_makes_it_urgent(bench: Bench) -> None:
    """Whoever waits for a rank that hangs is got out, and can still say what is lost."""
    bench.group.is_agreed.clear()
    bench.begin(step=4)
    bench.hears(STOP)
    assert not bench.session.is_stale(1)
    assert bench.session.final_save is not None
    bench.session.final_save.until_s = 0.0
    assert bench.session.is_stale(1)
    with pytest.raises(Interrupted):
        bench.session.check(4)
    bench.group.is_agreed.set()


def test_another_world_ends_the_farewell(bench: Bench) -> None:
    """Too few nodes were left, and one came back while the state was being saved."""
    bench.begin(step=4)
    bench.hears(STOP)
    with pytest.raises(Interrupted):
        bench.step(5)
    bench.wire.tell(enter(2))
    bench.wire.wait_handled(enter(2))
    assert bench.session.final_save is None
    assert bench.session.next_world() == enter(2)


def left(bench: Bench) -> Left:
    """What it says when it waits for another world, of which there is none."""
    bench.session.use(None)
    bench.wire.end_after(Left)
    assert bench.session.next_world() is None
    (said,) = bench.wire.all_of(Left)
    return said

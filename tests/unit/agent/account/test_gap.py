"""What is concluded of an agent that died: what its slots did since it last wrote."""

import pytest

from elasticd.goodput.cause import TimeCause
from elasticd.records.account.time_spent import TimeSpent
from elasticd.records.ids import Generation, Life, NodeId, Slot
from elasticd_agent.account.gap import LONGEST_GAP_S, KnownGenerations, gap_of
from elasticd_agent.account.slot_history import SlotSpan

ONE, TWO, THREE = Generation(1), Generation(2), Generation(3)
DEAD = Life("dead")


def record(*, at_s: float = 4.0, **more: object) -> TimeSpent:
    values: dict[str, object] = {"slots": 2, "held": {"train": 2}, **more}
    return TimeSpent(node=NodeId("b"), uid="u", generation=ONE, generation_s=at_s, **values)  # type: ignore[arg-type]


def known(*, is_named: bool = True, lasted_s: float = 10.0) -> KnownGenerations:
    """Generation 1 began at 100 by our clock: nine seconds of steps, and one that was lost."""
    parts = {TimeCause.TRAIN: 8.5, TimeCause.DATA: 0.5, TimeCause.REDONE: 0.6, TimeCause.NOTICE: 3}
    return KnownGenerations(
        began_s={ONE: 100.0},
        lasted_s={ONE: lasted_s},
        named={ONE: frozenset({DEAD} if is_named else ())},
        spans=(SlotSpan(slot=Slot(0), since_s=100.0, seconds=parts),),
    )


def test_slots_that_trained_did_what_ours_did_in_that_time() -> None:
    """From 4 s on to the end at 10 s, of two slots; what comes after is ours alone."""
    found = gap_of(record(), DEAD, known())
    assert found == pytest.approx({"train": 9.0, "data": 1.0, "redone": 1.2, "notice": 0.8})
    assert sum(found.values()) == pytest.approx(2 * 6.0)


def test_slots_that_did_not_train_stayed_what_they_were() -> None:
    found = gap_of(record(held={"train": 1, "spare": 2}), DEAD, known())
    assert found["spare"] == pytest.approx(12.0)
    assert sum(found.values()) == pytest.approx(18.0)


def test_an_older_version_says_how_many_slots_and_not_for_what() -> None:
    assert gap_of(record(held={}), DEAD, known()) == gap_of(record(), DEAD, known())


def test_where_we_were_not_there_it_is_unexplained() -> None:
    found = gap_of(record(), DEAD, KnownGenerations(lasted_s={ONE: 10.0}))
    assert found == {"unexplained": 12.0}
    found = gap_of(record(), DEAD, known(is_named=False))
    assert found == {"unexplained": 12.0}, "its slots were not in the world that ours were in"


def test_what_we_do_not_know_of_the_time_is_unexplained() -> None:
    found = gap_of(record(), DEAD, known(lasted_s=15.0))
    assert found["unexplained"] == pytest.approx(2 * 2.4)


def test_generations_in_which_it_came_to_no_word_are_part_of_it() -> None:
    full = known()
    parts = {TimeCause.RECOVER: 5.0}
    later = KnownGenerations(
        began_s=full.began_s,
        lasted_s={ONE: 10.0, TWO: 2.6, THREE: 50.0},
        named={**full.named, TWO: frozenset({DEAD}), THREE: frozenset()},
        spans=(*full.spans, SlotSpan(slot=Slot(0), since_s=112.6, seconds=parts)),
    )
    found = gap_of(record(), DEAD, later)
    assert sum(found.values()) == pytest.approx(2 * 8.6)
    assert found["notice"] == pytest.approx(2 * 3.0)


@pytest.mark.parametrize("more", [{"is_last": True}, {"is_concluded": True}, {"at_s": 11.0}])
def test_there_is_nothing_to_conclude(more: dict[str, bool]) -> None:
    assert gap_of(record(**more), DEAD, known()) == {}


def test_a_generation_that_we_do_not_know_says_nothing() -> None:
    assert gap_of(record(), DEAD, KnownGenerations()) == {}


def test_no_more_is_concluded_than_an_agent_may_have_kept_to_itself() -> None:
    found = gap_of(record(), DEAD, known(lasted_s=10_000.0))
    assert sum(found.values()) == pytest.approx(2 * LONGEST_GAP_S)

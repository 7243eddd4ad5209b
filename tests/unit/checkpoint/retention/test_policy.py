"""Which checkpoints stay, as a table of cases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.checkpoint.format.entry import LogEntry, LogEntryKind
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.retention.policy import ALWAYS, Retention, to_keep


def entries(*steps: int) -> list[LogEntry]:
    """Checkpoints of these steps, numbered 1, 2, ..."""
    return [
        LogEntry(
            number=number,
            kind=LogEntryKind.COMMITTED,
            snapshot=Snapshot(run=1, generation=1, step=step),
            uid="u",
            job="j",
            kept=(),
        )
        for number, step in enumerate(steps, 1)
    ]


@pytest.mark.parametrize(
    ("last", "every", "steps", "kept"),
    [
        (3, 0, (10, 20, 30, 40, 50), {3, 4, 5}),
        (0, 0, (10, 20, 30, 40, 50), {1, 2, 3, 4, 5}),
        (1, 0, (10, 20, 30), {2, 3}),
        (3, 0, (10, 20), {1, 2}),
        (3, 0, (), set()),
        (2, 100, (60, 120, 180, 240, 300, 310), {2, 4, 5, 6}),
        (2, 100, (10, 20, 30, 40), {3, 4}),
        (2, 1, (10, 20, 30, 40), {1, 2, 3, 4}),
    ],
)
def test_the_newest_and_the_milestones_stay(
    last: int, every: int, steps: tuple[int, ...], kept: set[int]
) -> None:
    """A milestone is the first checkpoint at or after a multiple."""
    assert to_keep(Retention(last=last, every_steps=every), entries(*steps)) == kept


def test_what_is_being_read_stays_if_it_is_there() -> None:
    """A lease on a number that is gone brings nothing back."""
    assert to_keep(Retention(last=2), entries(1, 2, 3, 4), (1, 99)) == {1, 3, 4}


def test_a_run_that_went_back_keeps_by_number_not_by_step() -> None:
    """The steps 30 and 40 of the abandoned history are older than the step 25 after them."""
    assert to_keep(Retention(last=2), entries(30, 40, 20, 25)) == {3, 4}


@given(
    st.lists(st.integers(0, 10_000), max_size=30),
    st.integers(0, 5),
    st.integers(0, 500),
)
def test_keeping_twice_keeps_the_same(steps: list[int], last: int, every: int) -> None:
    """So that a second retainer finds nothing to do; and the newest two always stay."""
    policy, before = Retention(last=last, every_steps=every), entries(*steps)
    kept = to_keep(policy, before)
    assert to_keep(policy, [entry for entry in before if entry.number in kept]) == kept
    assert {entry.number for entry in before[-ALWAYS:]} <= kept

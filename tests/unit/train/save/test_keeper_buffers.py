"""Memory that is taken ahead: a generation's first snapshots do not pay for it."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from elasticd.errors import EnvironmentProblem
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.wire import message as ms
from elasticd.records.checkpoint import Every
from elasticd.train.save import snapshot_taker as module
from tests.fixtures.patience import patience_s
from tests.unit.train.save.save_case import Case, same

EVERY = 4


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    """A rank whose small state counts as a large one."""
    monkeypatch.setattr(module, "AHEAD_BYTES", 1)
    case = Case("blocking", (0,), Every(steps=EVERY))
    yield case
    case.saving.end()


def is_settled(case: Case) -> None:
    if case.saving._planning.ahead is not None:
        case.saving._planning.ahead.result()


def kinds(case: Case) -> list[type[Any]]:
    return [type(each) for each in case.keeper.asked]


def test_first_commit_takes_both_buffers_and_snapshots_use_them(one: Case) -> None:
    one.begin()
    one.step()
    is_settled(one)
    assert kinds(one).count(ms.Claim) == 2 and ms.Dropped in kinds(one)
    assert len(one.keeper.buffers) == 2
    for _ in range(2 * EVERY):
        entries = one.step()
        if one.state._position[0] % EVERY == 0:
            assert same(one.keeper.state(one.keeper.taken[-1]), entries)
    assert one.steps == [EVERY, 2 * EVERY]
    assert len(one.keeper.of(ms.Plans)) == 1
    assert len(one.keeper.buffers) == 2, "no more memory was taken"


def test_small_state_waits_for_its_first_snapshot(one: Case, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "AHEAD_BYTES", 1 << 30)
    one.begin()
    one.step()
    assert ms.Plans not in kinds(one)


def test_next_generation_overtakes_the_memory_of_the_one_before(one: Case) -> None:
    """What is still being taken is let go of, and its plan does not come after the new one."""
    may_go_on, has_come = threading.Event(), threading.Event()

    def slow(question: ms.Claim) -> ms.Claimed:
        del one.keeper.answers[ms.Claim]
        has_come.set()
        assert may_go_on.wait(patience_s(30.0))
        buffer, memory = one.keeper.vault.claim(1, question.plan)
        assert isinstance(memory, SharedMemory)
        return ms.Claimed(buffer=buffer)

    one.keeper.answers[ms.Claim] = slow
    one.begin()
    one.step()
    assert has_come.wait(patience_s(30.0))
    ahead = one.saving._planning.ahead
    assert ahead is not None
    one.saving.end()
    one.begin(generation=4)
    one.step()
    may_go_on.set()
    ahead.result()
    is_settled(one)
    while one.state._position[0] < EVERY:
        entries = one.step()
    assert same(one.keeper.state(one.keeper.taken[-1]), entries)
    assert [each.snapshot.generation for each in one.keeper.taken] == [4]


def test_no_snapshot_is_due_while_memory_is_taken(one: Case) -> None:
    """Rank 0 puts it off rather than stand still."""
    may_go_on = threading.Event()

    def slow(question: ms.Claim) -> ms.Claimed:
        assert may_go_on.wait(patience_s(30.0))
        raise EnvironmentProblem("there is no memory")

    one.keeper.answers[ms.Claim] = slow
    one.begin()
    for _ in range(EVERY):
        one.step()
    assert one.steps == [] and one.said == []
    may_go_on.set()
    is_settled(one)
    del one.keeper.answers[ms.Claim]
    for _ in range(EVERY):
        one.step()
    assert one.steps == [2 * EVERY], "what went wrong ahead is tried again"


def test_last_snapshot_waits_for_the_memory(one: Case) -> None:
    one.begin()
    entries = one.step()
    one.saving.take_last(1)
    assert one.steps == [1]
    assert same(one.keeper.state(one.keeper.taken[-1]), entries)


def test_buffer_that_could_not_be_mapped_is_asked_for_anew() -> None:
    """The keeper sends its memory once, and counts it as known; no step fails for that."""
    case = Case("blocking", (0,), Every(steps=1))

    def unmapped(question: ms.Claim) -> ms.Claimed:
        case.keeper.vault.claim(1, question.plan)
        raise EnvironmentProblem("it cannot be mapped")

    case.begin()
    case.step()
    case.keeper.answers[ms.Claim] = unmapped
    case.step()
    del case.keeper.answers[ms.Claim]
    case.step()
    assert case.steps == [1] and any(
        "could not be mapped into this process" in each for each in case.said
    )
    case.saving._retry_s = 0.0
    entries = case.step()
    assert same(case.keeper.state(case.keeper.taken[-1]), entries)
    case.saving.end()

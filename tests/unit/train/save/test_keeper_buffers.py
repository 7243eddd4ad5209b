"""Memory that is taken ahead: a generation's first snapshots do not pay for it."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from elasticd.checkpoint.format.box_cover import uncovered
from elasticd.errors import EnvironmentProblem
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.wire import message as ms
from elasticd.records.checkpoint import Every
from elasticd.tensors.tensor_spec import alike
from elasticd.tensors.tree import Tree, flatten
from elasticd.train.save import snapshot_taker as module
from elasticd.train.save.keeper_buffers import BufferPlanning, SentPlan
from tests.fixtures.patience import patience_s
from tests.unit.train.save.save_case import Case, Keeper, same

EVERY = 4


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    """A rank whose small state counts as a large one."""
    monkeypatch.setattr(module, "AHEAD_BYTES", 1)
    case = Case("blocking", (0,), Every(steps=EVERY))
    yield case
    case.saving.end()


def wait_for_buffers(case: Case) -> None:
    if case.saving._planning.ahead is not None:
        case.saving._planning.ahead.result()


def kinds(case: Case) -> list[type[Any]]:
    return [type(each) for each in case.keeper.asked]


def test_first_commit_takes_both_buffers_and_snapshots_use_them(one: Case) -> None:
    one.begin()
    one.step()
    wait_for_buffers(one)
    assert kinds(one).count(ms.Claim) == 2 and ms.ReleaseBuffer in kinds(one)
    assert len(one.keeper.buffers) == 2
    for _ in range(2 * EVERY):
        entries = one.step()
        if one.state.position[0] % EVERY == 0:
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
        buffer, memory = one.keeper.share_memory.claim(1, question.plan)
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
    wait_for_buffers(one)
    while one.state.position[0] < EVERY:
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
    wait_for_buffers(one)
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
        case.keeper.share_memory.claim(1, question.plan)
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


def test_keeper_that_is_started_anew_plans_as_the_others_do() -> None:
    """Though an optimizer has got parameters since, of which nothing but their owner changed: the
    shares of all ranks have every element once."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(600, 700), torch.nn.Linear(700, 600))
    optimizer = torch.optim.SGD(net[0].parameters(), lr=0.1)
    keepers = [Keeper(), Keeper()]
    ranks = [BufferPlanning(), BufferPlanning()]
    for rank, each in enumerate(ranks):
        each.begin(lambda tree: alike(tree, [optimizer]), rank=rank, nodes=(0, 1))

    def planned() -> list[SentPlan]:
        tree = _tree(net)
        pairs = zip(ranks, keepers, strict=True)
        return [each.fitting(keeper.connect(), tree) for each, keeper in pairs]

    def missing(plans: list[SentPlan], holder: int) -> list[str]:
        parts = [part for each in plans for part in each.parts.parts if part.holder == holder]
        return [
            uncovered(
                tensor.shape,
                [
                    (piece.offsets, piece.shape)
                    for part in parts
                    for piece in part.layout.pieces
                    if piece.tensor == index
                ],
            )
            for index, tensor in enumerate(plans[0].parts.tensors)
        ]

    assert not any(missing(planned(), 0))
    optimizer.add_param_group({"params": net[1].parameters()})
    ranks[1].forget()  # Its keeper was started anew.
    plans = planned()
    assert not any(missing(plans, 0)) and not any(missing(plans, 1))
    assert planned() == plans, "and nothing is planned anew without a reason"


def _tree(net: torch.nn.Module) -> Tree:
    return flatten("state", {"net": net.state_dict()})

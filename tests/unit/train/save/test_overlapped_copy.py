"""A copy beside the training is the state of its commit, or it is known to be none."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import optimizer as hooks

from elasticd.tensors.local_shard import local_part
from elasticd.tensors.memory_copy import Pair
from elasticd.tensors.tensor_spec import alike
from elasticd.tensors.tree import flatten
from elasticd.train.save import overlapped_copy
from elasticd.train.save.overlapped_copy import WORTH_S, CopyChoice, OverlappedCopy, copy_now
from elasticd.train.save.share_plan import SharePlan
from tests.fixtures.patience import patience_s
from tests.fixtures.store import wait_until

LIMIT_S = patience_s(30.0)


class Gate:
    """Holds a copy where it begins until the test lets it go."""

    def __init__(self) -> None:
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def copy(self, pairs: list[Pair]) -> None:
        self.has_begun.set()
        assert self.may_go_on.wait(LIMIT_S)
        copy_now(pairs)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Every copy of a thread waits for it."""
    gate = Gate()
    monkeypatch.setattr(overlapped_copy, "copy_now", gate.copy)
    yield gate
    gate.may_go_on.set()


@pytest.fixture(autouse=True)
def no_hook_is_left() -> Iterator[None]:
    """Of any test: a hook that stays is called by every optimizer for ever."""
    before = len(hooks._global_optimizer_pre_hooks)
    yield
    assert len(hooks._global_optimizer_pre_hooks) == before


def model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """With statistics that each forward pass changes."""
    torch.manual_seed(5)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    backward(net)
    optimizer.step()
    return net, optimizer


def backward(net: torch.nn.Module) -> None:
    net(torch.randn(8, 4)).square().sum().backward()


def copied(tensor: torch.Tensor) -> Pair:
    return tensor.detach(), torch.full_like(tensor, -1.0)


def test_copy_is_the_state_of_the_commit(gate: Gate) -> None:
    """Although the next forward pass changes statistics, and the next step all else."""
    net, optimizer = model()
    tree = flatten("state", {"net": net.state_dict(), "optimizer": optimizer.state_dict()})
    wanted = [tensor.clone() for tensor in tree.tensors]
    parts = SharePlan.of(tree, alike(tree, [optimizer]), rank=0, nodes=[0])
    (part,) = parts.parts
    here = [local_part(tensor) for tensor in tree.tensors]
    places = part.places(memoryview(bytearray(part.layout.size)), parts.tensors)
    copy_now(part.pairs(part.now, here, places))
    said: list[bool] = []
    overlap = OverlappedCopy(part.pairs(part.later, here, places), said.append)
    assert gate.has_begun.wait(LIMIT_S)
    backward(net)
    with ThreadPoolExecutor(1) as pool:
        stepping = pool.submit(optimizer.step)
        gate.may_go_on.set()
        stepping.result(LIMIT_S)
    overlap.finish()
    assert said == [True]
    for piece, place in zip(part.layout.pieces, places, strict=True):
        assert torch.equal(place, wanted[piece.tensor]), parts.tensors[piece.tensor].name
    assert not all(map(torch.equal, tree.tensors, wanted)), "and the training went on"


def test_step_of_any_optimizer_waits_for_the_copy(gate: Gate) -> None:
    """Not the forward pass, nor the backward pass."""
    net, optimizer = model()
    pairs = [copied(parameter) for parameter in net.parameters()]
    before = [source.clone() for source, _ in pairs]
    overlap = OverlappedCopy(pairs, lambda is_good: None)
    assert gate.has_begun.wait(LIMIT_S)
    backward(net)
    is_asked = threading.Event()
    optimizer.register_step_pre_hook(lambda *unused: is_asked.set())
    with ThreadPoolExecutor(1) as pool:
        stepping = pool.submit(optimizer.step)
        # torch asks an optimizer's own hooks after ours, so it must not have come there yet.
        assert not is_asked.wait(0.05)
        assert [torch.equal(now, was) for (now, _), was in zip(pairs, before, strict=True)] == [
            True
        ] * len(pairs)
        gate.may_go_on.set()
        stepping.result(LIMIT_S)
    overlap.finish()
    assert is_asked.is_set() and overlap.waited_s > 0.0
    assert all(torch.equal(place, was) for (_, place), was in zip(pairs, before, strict=True))


@pytest.mark.parametrize(
    "write",
    [
        lambda net: net[0].weight.mul_(2.0),
        lambda net: net[0].weight[1:2, 0].zero_(),
        lambda net: net.load_state_dict(net.state_dict()),
    ],
    ids=["all", "a view of it", "load_state_dict"],
)
def test_write_of_somebody_else_is_found(gate: Gate, write: Any) -> None:
    """Half of one state and half of another is no snapshot."""
    net, _ = model()
    said: list[bool] = []
    overlap = OverlappedCopy([copied(parameter) for parameter in net.parameters()], said.append)
    assert gate.has_begun.wait(LIMIT_S)
    with torch.no_grad():
        write(net)
    gate.may_go_on.set()
    overlap.finish()
    assert said == [False]


def test_what_nobody_wrote_to_is_good() -> None:
    """Also what has no version: a tensor made for inference."""
    with torch.inference_mode():
        fixed = torch.ones(3)
    place = torch.zeros(3)
    said: list[bool] = []
    OverlappedCopy([(fixed, place), copied(torch.rand(3))], said.append).finish()
    assert said == [True] and place.tolist() == [1.0, 1.0, 1.0]


def test_nothing_is_left_after_many_copies() -> None:
    """No thread, no hook: the fixture looks as well, and here a hook would be seen at once."""
    net, optimizer = model()
    threads, left = threading.active_count(), len(hooks._global_optimizer_pre_hooks)
    for _ in range(100):
        overlap = OverlappedCopy(
            [copied(parameter) for parameter in net.parameters()], lambda _: None
        )
        backward(net)
        optimizer.step()
        overlap.finish()
        assert len(hooks._global_optimizer_pre_hooks) == left
    # Threads of earlier tests come and go; those of a hundred copies would stay.
    wait_until(lambda: threading.active_count() <= threads)


def test_finish_may_be_called_again() -> None:
    """A generation that ends in the middle of a commit does."""
    overlap = OverlappedCopy([], lambda is_good: None)
    overlap.finish()
    overlap.finish()


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_copy_that_fails_is_kept_as_an_error_and_holds_nobody() -> None:
    """It is not called good, and the optimizer's step and `finish` go on."""
    net, optimizer = model()
    said: list[bool] = []
    overlap = OverlappedCopy([(torch.ones(3), torch.ones(2))], said.append)
    backward(net)
    optimizer.step()
    overlap.finish()
    assert said == []
    assert isinstance(overlap.error, RuntimeError)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_teller_that_fails_is_kept_as_an_error() -> None:
    """Whatever it is: the thread is not the place to show it."""

    def done(is_good: bool) -> None:
        raise ValueError("full")

    overlap = OverlappedCopy([], done)
    overlap.finish()
    assert str(overlap.error) == "full"


def test_thread_that_cannot_be_started_leaves_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixture sees it."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="new thread"):
        OverlappedCopy([], lambda is_good: None)


def test_copy_now_fills_every_place() -> None:
    """Of other types' views, without elements, and of none at all."""
    copy_now([])
    sources = [torch.rand(4, 6)[1:3, ::2], torch.empty(0, 3), torch.tensor(5)]
    pairs = [(source, torch.zeros_like(source)) for source in sources]
    copy_now(pairs)
    assert all(torch.equal(source, place) for source, place in pairs)


# --- which form is used -------------------------------------------------------------------------


def choice(mode: str = "auto") -> tuple[CopyChoice, list[str]]:
    said: list[str] = []
    return CopyChoice(mode, said.append), said


def took(chosen: CopyChoice, stall_s: float) -> None:
    """One snapshot, in the form that is chosen, which costs so much."""
    chosen.took(is_overlapped=chosen.is_overlapped, stall_s=stall_s)


@pytest.mark.parametrize(("blocking_s", "overlapped_s"), [(0.5, 0.01), (0.01, 0.5)])
def test_auto_tries_both_twice_and_keeps_the_cheaper(
    blocking_s: float, overlapped_s: float
) -> None:
    """And says so in one sentence, once."""
    chosen, said = choice()
    forms = []
    for _ in range(9):
        forms.append(chosen.is_overlapped)
        took(chosen, overlapped_s if chosen.is_overlapped else blocking_s)
    assert forms == [False] * 2 + [True] * 2 + [overlapped_s < blocking_s] * 5
    assert len(said) == 1 and "500 ms" in said[0] and "10 ms" in said[0]
    form = "while the next step runs" if overlapped_s < blocking_s else "between two steps"
    assert form in said[0]


def test_first_of_each_form_does_not_decide() -> None:
    """It meets memory that nobody has touched."""
    chosen, _ = choice()
    for stall_s in (9.0, 0.5, 9.0, 0.1):
        took(chosen, stall_s)
    assert chosen.is_overlapped


def test_copy_that_costs_nothing_is_not_worth_a_thread() -> None:
    """A small state is copied at once for ever, and no word is said of it."""
    chosen, said = choice()
    for _ in range(9):
        assert not chosen.is_overlapped
        took(chosen, WORTH_S / 2)
    assert said == []


@pytest.mark.parametrize("mode", ["blocking", "overlapped"])
@given(st.lists(st.floats(-1.0, 10.0), max_size=8))
def test_form_that_was_asked_for_is_kept(mode: str, stalls: list[float]) -> None:
    """Without measuring, and without a word."""
    chosen, said = choice(mode)
    for stall_s in stalls:
        assert chosen.is_overlapped is (mode == "overlapped")
        took(chosen, stall_s)
    assert said == []


@pytest.mark.parametrize("mode", ["auto", "overlapped"])
def test_write_of_somebody_else_ends_the_overlapped_form(mode: str) -> None:
    """For ever, and said once."""
    chosen, said = choice(mode)
    chosen.broke()
    chosen.broke()
    for stall_s in (0.5, 0.5, 0.0, 0.0, 0.0):
        assert not chosen.is_overlapped
        took(chosen, stall_s)
    assert len(said) == 1 and "between two steps from now on" in said[0]

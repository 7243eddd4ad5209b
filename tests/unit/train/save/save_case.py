"""A keeper in the test's own process, with real memory, for those who talk to one."""

import copy
import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]

from elasticd.errors import ElasticdError, EnvironmentProblem, Unavailable
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.memory.share_memory import ShareMemory
from elasticd.keeper.wire import message as ms
from elasticd.records.checkpoint import Every
from elasticd.tensors.tensor_spec import alike, dtype_of, views
from elasticd.tensors.tree import Tree, flatten, unflatten
from elasticd.train.save.snapshot_taker import SnapshotTaker

__all__ = ["Case", "Clock", "Keeper", "Training", "same"]

WORKER = 1


class Clock:
    """Moved by the test."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def as_module(self) -> SimpleNamespace:
        return SimpleNamespace(monotonic=lambda: self.now_s)


class Keeper:
    """Answers as a real one would; what a test sets it does wrong."""

    def __init__(self) -> None:
        self.share_memory = ShareMemory()
        self.is_gone = self.is_full = self.is_busy = False
        self.notes: tuple[str, ...] = ()
        self.owed: ElasticdError | None = None
        """What was told went wrong: raised by the next question."""
        self.asked: list[Any] = []
        self.connected = 0
        self.answers: dict[type, Callable[[Any], object]] = {}
        """In place of what is answered here."""
        self.buffers: dict[tuple[int, int], SharedMemory] = {}
        self.taken: list[ms.SaveSnapshot] = []
        self.plans: dict[int, ms.Plan] = {}

    def connect(self) -> Any:
        """As a Client's constructor."""
        self.connected += 1
        if self.is_gone:
            raise Unavailable("nobody listens")
        return _Line(self)

    def of(self, kind: type) -> list[Any]:
        """What was asked of this kind."""
        return [each for each in self.asked if type(each) is kind]

    def answer(self, question: Any) -> tuple[Any, SharedMemory | None]:
        if self.is_gone:
            raise Unavailable("it has gone")
        owed, self.owed = self.owed, None
        if owed is not None:
            raise owed
        self.asked.append(question)
        if type(question) in self.answers:
            return self.answers[type(question)](question), None
        match question:
            case ms.Open():
                return ms.Opened(run=question.run or 1), None
            case ms.GetStatus():
                notes, self.notes = self.notes, ()
                return ms.Status(is_busy=self.is_busy, durable_step=-1, notes=notes), None
            case ms.Plans():
                self.share_memory.plan(WORKER, question.plans)
                self.plans = {each.id: each for each in question.plans}
                return ms.Done(), None
            case ms.Claim():
                if self.is_full:
                    raise EnvironmentProblem("there is no memory")
                buffer, memory = self.share_memory.claim(WORKER, question.plan)
                if memory is not None:
                    self.buffers[question.plan, buffer] = memory
                given = None if memory is None else SharedMemory(os.dup(memory.file))
                return ms.Claimed(buffer=buffer), given
            case ms.SaveSnapshot():
                self.taken.append(question)
                return ms.Done(), None
            case ms.ReleaseBuffer():
                self.share_memory.drop(WORKER, question.plan)
                return ms.Done(), None
            case ms.WaitDurable():
                is_taken = any(each.snapshot == question.snapshot for each in self.taken)
                why = "" if is_taken else "It takes longer than that."
                return ms.Durability(is_durable=is_taken, why=why), None
        raise AssertionError(f"not expected: {question}")

    def state(self, *taken: ms.SaveSnapshot) -> Any:
        """What the memory of these shares holds together, put together again."""
        whole = next(self.plans[each.plan] for each in taken if each.skeleton)
        found = [torch.zeros(each.shape, dtype=dtype_of(each)) for each in whole.tensors]
        for each in taken:
            layout = self.plans[each.plan].layout
            memory = self.buffers[each.plan, each.buffer]
            parts = views(memory.view, whole.tensors, layout.pieces, layout.starts())
            for piece, part in zip(layout.pieces, parts, strict=True):
                box = tuple(
                    slice(o, o + s) for o, s in zip(piece.offsets, piece.shape, strict=True)
                )
                found[piece.tensor][box] = part
        skeleton = next(each.skeleton for each in taken if each.skeleton)
        return unflatten(Tree(skeleton, tuple(found)))


class _Line:
    """A client."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def ask(self, question: Any, kind: type, *, timeout_s: float | None = None) -> Any:
        answer, _ = self._keeper.answer(question)
        assert isinstance(answer, kind)
        return answer

    def send(self, question: Any, *, timeout_s: float | None = None) -> None:
        self._keeper.answer(question)

    def ask_memory(self, question: Any, kind: type, *, timeout_s: float | None = None) -> Any:
        answer, memory = self._keeper.answer(question)
        assert isinstance(answer, kind)
        return answer, memory

    def close(self) -> None:
        """Nothing is open."""


class Training:
    """A state as `SnapshotTaker` sees one: a model with statistics, and its optimizer."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.1)
        self.best: torch.Tensor | None = None
        """Something that comes later."""
        self.position = (0, 0)

    def entries(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.position[0],
            "best": self.best,
        }

    def tree(self) -> Tree:
        return flatten("state", self.entries())

    def train(self) -> None:
        """One step, the same on all ranks, and its commit's position."""
        generator = torch.Generator().manual_seed(self.position[0])
        self.net(torch.randn(8, 4, generator=generator)).square().sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.position = (self.position[0] + 1, self.position[1])


class Case:
    """One rank of one generation."""

    def __init__(self, mode: str, nodes: Sequence[int], every: Every) -> None:
        self.keeper, self.state = Keeper(), Training()
        self.nodes = nodes
        self.said: list[str] = []
        self.saving = SnapshotTaker(self.keeper.connect, every, mode, say=self.said.append)

    def begin(
        self, *, rank: int = 0, generation: int = 3, is_opened: bool = False, interval: int = 1
    ) -> None:
        self.saving.run = 7
        self.saving.begin(
            HashStore(),
            self.state,
            lambda tree: alike(tree, [self.state.optimizer]),
            rank=rank,
            generation=generation,
            nodes=self.nodes,
            is_opened=is_opened,
            is_stale=lambda: False,
            interval=interval,
        )

    def step(self) -> Any:
        """Train, commit; returns the state of that commit."""
        self.state.train()
        entries = copy.deepcopy(self.state.entries())
        self.saving.committed(self.state.position[0])
        return entries

    @property
    def steps(self) -> list[int]:
        """Those of which a snapshot was handed over."""
        return [each.snapshot.step for each in self.keeper.taken]


def same(one: Any, other: Any) -> bool:
    """True if nothing differs."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)

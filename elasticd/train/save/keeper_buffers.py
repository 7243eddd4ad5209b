"""The keeper's memory as a rank sees it: planned for a state, claimed, and taken ahead.

Fresh memory is slow: the kernel clears it and enters it into page tables, for a gigabyte that takes
longer than several copies of it. So what a generation needs is taken in a thread while its first
steps run, and no snapshot pays for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from threading import Lock, Thread

import torch

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Tensor
from elasticd.errors import ElasticdError, Unavailable
from elasticd.keeper.client import Client
from elasticd.keeper.memory.memfd import SLOWEST_BYTES_PER_S
from elasticd.keeper.memory.share_record import BUFFERS
from elasticd.keeper.wire import message as ms
from elasticd.tensors import cuda
from elasticd.tensors.tree import Tree
from elasticd.train.device.device import device
from elasticd.train.device.pinned_memory import Pinned
from elasticd.train.save.share_plan import SharePart, SharePlan, none_alike

__all__ = [
    "REPLY_LIMIT_S",
    "BufferPlanning",
    "KeeperBuffers",
    "PlanAhead",
    "SentPlan",
    "send_plan",
]

REPLY_LIMIT_S = 5.0
"""A keeper that is silent for this long during a step is given up, and asked again later."""

_numbers = count(1)
"""The numbers of plans: those of a generation that is over must not be taken for others."""


@dataclass(slots=True, eq=False)
class KeeperBuffers:
    """The memory of one part: tensors over the buffers claimed so far, which they keep alive."""

    id: int
    part: SharePart
    tensors: tuple[Tensor, ...]
    limit: int = BUFFERS
    """How many buffers there may be."""
    places: dict[int, list[torch.Tensor]] = field(default_factory=dict)
    pinned: dict[int, Pinned] = field(default_factory=dict)
    """The registrations, if this rank has a GPU."""

    def is_pinned(self, buffer: int) -> bool:
        """Return whether a GPU can write to the whole buffer by itself (pinned memory)."""
        return buffer in self.pinned and self.pinned[buffer].is_pinned

    def claim(self, client: Client, snapshot: Snapshot | None = None) -> int:
        """Return the number of the buffer to write to; negative if there is none.

        `snapshot` as in `Claim`.

        Raises: EnvironmentProblem: there is no memory for a buffer. Unavailable: the keeper is
        gone, or gives a buffer that could not be mapped here.
        """
        limit_s = REPLY_LIMIT_S
        if len(self.places) < self.limit:
            limit_s += self.part.layout.size / SLOWEST_BYTES_PER_S
        question = ms.Claim(plan=self.id, snapshot=snapshot)
        answer, memory = client.ask_memory(question, ms.Claimed, timeout_s=limit_s)
        if memory is not None:
            memory.populate()
            if cuda.is_used():
                self.pinned[answer.buffer] = Pinned(memory.view, device())
            self.places[answer.buffer] = self.part.places(memory.view, self.tensors)
        elif answer.buffer >= 0 and answer.buffer not in self.places:
            client.close()  # The keeper sends its memory once: over another connection, again.
            raise Unavailable("A buffer of the keeper's could not be mapped into this process.")
        return answer.buffer


@dataclass(frozen=True, slots=True)
class SentPlan:
    """The plan that a keeper has of how this rank copies a state."""

    parts: SharePlan
    buffers: tuple[KeeperBuffers, ...]


def send_plan(client: Client, parts: SharePlan, shares: int, buffers: int = BUFFERS) -> SentPlan:
    """Send the plan to the keeper; it replaces this rank's earlier plans.

    `buffers` is how many there may be for each share.

    Raises: Unavailable: the keeper is gone.
    """
    every = tuple(
        KeeperBuffers(next(_numbers), part, parts.tensors, buffers) for part in parts.parts
    )
    plans = tuple(
        ms.Plan(
            id=each.id,
            share=each.part.share,
            shares=shares,
            holder=each.part.holder,
            layout=each.part.layout,
            tensors=parts.tensors if each.part.share == 0 else (),
            is_alone=each.part.is_alone,
            is_only_copy=each.part.is_only_copy,
            buffers=buffers,
        )
        for each in every
    )
    client.ask(ms.Plans(plans=plans), ms.Done, timeout_s=REPLY_LIMIT_S)
    return SentPlan(parts, every)


class BufferPlanning:
    """The plan of this rank's copies, as the keeper has it, renewed when the state changes."""

    def __init__(self, buffers: int = BUFFERS) -> None:
        """`buffers` is how many there may be for each share."""
        self._buffers = buffers
        self.current: SentPlan | None = None
        self.ahead: PlanAhead | None = None
        self.is_begun = False
        """The memory for this generation was asked for, or a snapshot did so."""
        self._is_replicated: Callable[[Tree], Sequence[bool]] = none_alike
        self._rank = 0
        self._nodes: Sequence[int] = ()

    def begin(
        self, is_replicated: Callable[[Tree], Sequence[bool]], *, rank: int, nodes: Sequence[int]
    ) -> None:
        """Begin a generation; the arguments are those of `SharePlan.of`."""
        self._is_replicated, self._rank, self._nodes = is_replicated, rank, nodes
        self.is_begun = False
        self.forget()

    def forget(self) -> None:
        """Forget the plans, because the keeper or the world is a new one."""
        if self.ahead is not None:
            self.ahead.cancel()
        self.current, self.ahead = None, None

    @property
    def is_taking_memory(self) -> bool:
        return self.ahead is not None and self.ahead.is_running

    def take_ahead(self, client: Client, tree: Tree) -> None:
        """Plan and take all memory for the plan, in a thread; read the optimizers at once."""
        split = partial(
            SharePlan.of, tree, self._is_replicated(tree), rank=self._rank, nodes=self._nodes
        )
        self.ahead = PlanAhead(client, split, len(self._nodes), self._buffers)

    def fitting(self, client: Client, tree: Tree) -> SentPlan:
        """Return the plan for this state.

        The plan is made anew if the structure has changed (the first step makes optimizers'
        states), or if an optimizer has other parameters.

        Raises: Unavailable: the keeper is gone.
        """
        self.is_begun = True
        if self.ahead is not None:
            ahead, self.ahead = self.ahead, None
            self.current = ahead.result()
        is_replicated = self._is_replicated(tree)
        if self.current is None or not self.current.parts.fits(tree, is_replicated):
            self.forget()
            parts = SharePlan.of(tree, is_replicated, rank=self._rank, nodes=self._nodes)
            self.current = send_plan(client, parts, len(self._nodes), self._buffers)
        return self.current


class PlanAhead:
    """Plan for a state and take all memory for the plan, in a thread.

    A failure does no harm: the plan is tried again when a snapshot is taken, and the failure
    reported then.
    """

    def __init__(
        self, client: Client, split: Callable[[], SharePlan], shares: int, buffers: int = BUFFERS
    ) -> None:
        self._client, self._split = client, split
        self._shares, self._buffers = shares, buffers
        self._turn = Lock()
        self._is_cancelled = False
        self._planned: SentPlan | None = None
        self._thread = Thread(target=self._run, name="elasticd-memory", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def cancel(self) -> None:
        """Send nothing more to the keeper, because another plan may follow."""
        self._is_cancelled = True
        with self._turn:  # A word that is on its way comes before what the caller says next.
            pass

    def result(self) -> SentPlan | None:
        """Wait until the plan is made, and return it; None if nothing was planned."""
        self._thread.join()
        return self._planned

    def _run(self) -> None:
        try:
            parts = self._split()
            with self._turn:
                if self._is_cancelled:
                    return
                self._planned = send_plan(self._client, parts, self._shares, self._buffers)
            self._take(self._planned.buffers)
        except ElasticdError:
            return

    def _take(self, every: Sequence[KeeperBuffers]) -> None:
        for buffers in every:
            for _ in range(BUFFERS):
                if self._is_cancelled:
                    return
                buffer = buffers.claim(self._client)
            dropped = ms.ReleaseBuffer(plan=buffers.id, buffer=buffer)
            self._client.ask(dropped, ms.Done, timeout_s=REPLY_LIMIT_S)

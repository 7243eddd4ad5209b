"""The worker processes of one machine, and what they do to each other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, NodeId, Nonce, Rank, Slot
from elasticd.rendezvous import event as ev

if TYPE_CHECKING:
    from tests.sim.agent import Agent

__all__ = ["FREED_S", "Raised", "Worker"]

FREED_S = 1.0
"""How long the kernel takes at most to free the memory of a killed process."""


@dataclass(frozen=True, slots=True)
class Raised:
    """What a worker's own error looks like."""

    exception: str = "RuntimeError: broken"
    where: str = "/x/train.py:1"
    is_secondary: bool = False


@dataclass(slots=True, eq=False)
class Worker:
    """One process; reports to the agent that started it, as the pool does."""

    agent: "Agent"
    node: NodeId
    incarnation: Incarnation
    slot: Slot
    nonce: Nonce
    generation: Generation
    rank: Rank
    local_rank: int
    is_alive: bool = True
    is_running: bool = False
    is_stopping: bool = False
    has_raised: bool = False
    has_group: bool = False
    has_finished: bool = False
    on_end: Callable[["Worker", bool, bool], None] = lambda worker, is_loud, was_running: None

    def started(self) -> None:
        if self.is_alive and not self.is_running:
            self.is_running = True
            self.agent.post(ev.WorkerStarted(slot=self.slot, nonce=self.nonce))

    def failure(self, raised: Raised | None) -> Failure:
        return Failure(
            node=self.node,
            incarnation=self.incarnation,
            host=self.node,
            generation=self.generation,
            rank=self.rank,
            local_rank=self.local_rank,
            slot=self.slot,
            nonce=self.nonce,
            exit_code=1 if raised else None,
            signal="" if raised else "SIGKILL",
            exception=raised.exception if raised else "",
            where=raised.where if raised else "",
            is_secondary=raised.is_secondary if raised else False,
            has_group=self.has_group if raised else None,
        )

    def ended(self, code: int, failure: Failure | None, *, is_loud: bool = True) -> None:
        """The process is gone: tell its agent, and let its peers notice."""
        if not self.is_alive:
            return
        was_running = self.is_running
        self.is_alive = self.is_running = False
        self.has_finished = code == 0 and not self.is_stopping
        self.on_end(self, is_loud and not self.has_finished, was_running)
        self.agent.post(
            ev.WorkerExited(slot=self.slot, nonce=self.nonce, code=code, failure=failure)
        )

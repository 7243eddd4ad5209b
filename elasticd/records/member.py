"""A node, and its part in one job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from elasticd.records.account.late import NodeWait
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, Life, NodeId, Nonce, Rank, Slot, life_of
from elasticd.records.reason import Reason

__all__ = [
    "Drain",
    "Exit",
    "Member",
    "Node",
    "NodeLabels",
    "Peer",
    "Result",
    "Saved",
    "SlotOffer",
    "Stall",
    "StallLimit",
    "StoreAddress",
    "Training",
    "peer_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What an agent reports of its machine; it lives as long as the agent's lease."""

    node: NodeId
    incarnation: Incarnation
    host: str
    address: str
    """Where peers reach it."""
    port: int
    """Where peers hold a connection to it and probe it."""
    slots: int
    http_port: int = 0
    """Where it serves its workers' logs."""
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    pid: int = 0
    boot_id: str = ""
    is_draining: bool = False
    unknown: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """An operator's wish that a node should take no more work."""

    why: str = ""
    by: str = ""
    """The owner that takes it back when its cause is gone: for an operator on Kubernetes
    `kubernetes/<cluster>/`. Empty for a person, who does so by `elasticd drain --undo`."""
    unknown: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLabels:
    """Labels of a node that its agent cannot read itself; those of its own flags win."""

    labels: Mapping[str, str] = field(default_factory=dict)
    by: str = ""
    """The owner that wrote it and takes it back, as of a `Drain`."""
    unknown: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOffer:
    """A slot that this member would give to the next world."""

    slot: Slot
    nonce: Nonce
    """The least process number that may start there: a world that names a smaller one lost it."""
    is_prepared: bool = False
    """True if that very process waits in, or trains under, `elasticd.run`: a world names it as it
    is."""
    has_state: bool = False
    """True if it has had the job's state: it was in a group that formed."""
    is_finished: bool = False
    """True if its `elasticd.run` returned: all ranks of its generation have trained to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """A TCPStore that listens and was never used."""

    host: str
    port: int


class StallLimit(StrEnum):
    """The longest of the limits without progress that a worker has passed, in this order."""

    OTHER = "other"
    """A word of a newer version; it counts like STEP, which ends nobody by itself."""
    STEP = "step"
    """Twenty steps and five seconds at least: it waits for others, or others for it."""
    RECORD = "record"
    """The same as STEP, and also twice its longest time within a step: if others wait for it, it
    hangs."""
    PROGRESS = "progress"
    """`progress_timeout_s`: nobody may stand still for longer."""

    def is_beyond(self, other: "StallLimit | None") -> bool:
        """Return whether it is the longer limit."""
        order = list(StallLimit)
        return other is None or order.index(self) > order.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """The worker of a node that is furthest behind, while none there makes progress."""

    generation: Generation
    slot: Slot
    nonce: Nonce
    step: int
    sequence: int
    """How many collectives it has begun."""
    has_returned: bool = False
    """True if it returned from `train`."""
    limit: StallLimit = StallLimit.PROGRESS
    is_in_step: bool = False
    """True if it had a batch that is in no commit yet."""
    is_in_collective: bool = False
    """True if it waits in a collective that it has begun, and thus for another rank or for the
    network."""
    why: str = ""
    """What is wrong with it if it is the one that hangs."""
    stacks_path: str = ""
    """Where its node writes the stacks of its ranks, if the world goes on without one."""

    @property
    def place(self) -> tuple[int, int]:
        return self.step, self.sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node's part in one job; written by that node alone, gone with its lease."""

    node: NodeId
    incarnation: Incarnation
    host: str
    address: str
    port: int
    slots: tuple[SlotOffer, ...]
    """The ready slots only, in the order of their numbers."""
    stores: tuple[StoreAddress, ...] = ()
    """The fresh stores, the next one to use first."""
    arrived: Generation = Generation(0)
    """The newest generation whose workers are all started here, or have entered it."""
    leaving: Reason | None = None
    """It asks to be left out of the next world, and goes once it is."""
    failure: Failure | None = None
    """The newest failure here; it explains why an offer's nonce moved."""
    raised_alike: int = 0
    """The ranks of the failure's generation that ended with the same error here."""
    broken: Generation = Generation(0)
    """The newest generation whose collectives broke here, although our own workers live."""
    is_partly_broken: bool = False
    """True if a rank of the `broken` generation here has not said yet how it fares."""
    backend: str = ""
    """The backend of the group that formed here, as torch names it; empty if it is not known."""
    cut_off: tuple[NodeId, ...] = ()
    """The nodes of the `broken` generation that this one could not reach."""
    left: Generation = Generation(0)
    """The generation that was declared over and that all workers here, which live on, have left."""
    stall: Stall | None = None
    """A stall that is written after `progress_timeout_s`."""
    short_stall: Stall | None = None
    """A stall that is written sooner; it is separate, since an older elasticd would take it for the
    other."""
    is_paused: bool = False
    """True if a worker here is busy with something other than training (`state.pause`)."""
    given_up: tuple[Slot, ...] = ()
    """Slots in which process after process ended: no other one is started there."""
    wait: NodeWait | None = None
    """How long the steps here wait for other ranks; written again when it has changed notably."""
    unknown: Mapping[str, object] = field(default_factory=dict)

    @property
    def standstill(self) -> Stall | None:
        """Return where its last worker stands, if none of them makes progress."""
        return self.stall or self.short_stall

    @property
    def is_in_process(self) -> bool:
        """Return whether one of its workers waits in, or trains under, `elasticd.run`; the job's
        status says so only when it is written next.
        """
        return any(offer.is_prepared for offer in self.slots)

    @property
    def is_unable_to_start(self) -> bool:
        """Return whether it offers no slot, since what it has to import there failed."""
        failure = self.failure
        is_early = failure is not None and failure.generation == 0 and bool(failure.exception)
        return is_early and not self.slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a rank ended: a code, negative for a signal."""

    rank: Rank
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another agent, and where it listens as long as it lives."""

    node: NodeId
    life: Life
    address: str
    port: int


class _Listening(Protocol):
    """The fields of a member, or of a node of a world, that a reader of addresses uses."""

    @property
    def node(self) -> NodeId: ...
    @property
    def incarnation(self) -> Incarnation: ...
    @property
    def address(self) -> str: ...
    @property
    def port(self) -> int: ...


def peer_of(one: _Listening) -> Peer:
    """Return where that node's agent listens."""
    life = life_of(one.incarnation)
    return Peer(node=one.node, life=life, address=one.address, port=one.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What a whole run did, by the ledger of a worker that finished it."""

    steps: int
    epochs: int
    samples: int
    """The samples in committed steps."""
    repeated: int
    skipped: int
    note: str = ""
    """What a person should know of it, if anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """How far the checkpoint was when a job ended before its training did."""

    at_step: int
    """The steps that were applied by then."""
    durable_step: int = -1
    """The step of the newest checkpoint that is known to be durable; -1 if there is none."""
    why: str = ""
    """Why that is behind, if it is."""

    @property
    def sentence(self) -> str:
        """Return for people what is lost, without a full stop."""
        if self.durable_step >= self.at_step:
            return f"saved at step {self.at_step}, nothing is lost"
        if not self.at_step:
            return "stopped before its first step"
        lost = self.at_step - max(0, self.durable_step)
        steps = f"{lost} step{'s' if lost > 1 else ''}"
        if self.durable_step < 0:
            done = f"no checkpoint is known to be durable, up to {steps} may be lost"
        else:
            done = f"step {self.durable_step} is durable, the {steps} since then may be lost"
        return f"stopped at step {self.at_step} without saving it; {done}: {self.why}"

    def __add__(self, other: "Saved") -> "Saved":
        """Return what both know together: durable for one is durable for all."""
        durable_step = max(self.durable_step, other.durable_step)
        at_step = max(self.at_step, other.at_step)
        why = "" if durable_step >= at_step else self.why or other.why
        return Saved(at_step=at_step, durable_step=durable_step, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The record that outlives the lease: exits of a generation's ranks, and a node's goodbye."""

    node: NodeId
    incarnation: Incarnation
    generation: Generation
    exits: tuple[Exit, ...] = ()
    has_left: bool = False
    """True for a goodbye: no worker of this incarnation runs any more."""
    training: Training | None = None
    trained_in: Generation = Generation(0)
    """The generation in which `elasticd.run` returned here; the exit may be recorded for a later
    one too, whose world was agreed on too late."""
    saved: Saved | None = None
    """The save, if the job ended before its training did, and its state was to be saved."""
    unknown: Mapping[str, object] = field(default_factory=dict)

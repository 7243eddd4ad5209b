"""A node, and its part in one job."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, Life, NodeId, Nonce, Rank, Slot
from elasticd.records.reason import Reason

__all__ = ["Drain", "Exit", "Member", "Node", "Peer", "Result", "SlotOffer", "StoreAddress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What an agent says of its machine; lives as long as the agent's lease."""

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
    unknown: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOffer:
    """A slot that this member would give to the next world."""

    slot: Slot
    nonce: Nonce
    """Least process number that may start there: a world that names a smaller one lost it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """A TCPStore that listens and was never used."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node's part in one job; written by that node alone, gone with its lease."""

    node: NodeId
    incarnation: Incarnation
    host: str
    address: str
    port: int
    slots: tuple[SlotOffer, ...]
    """Ready ones only, in the order of their numbers."""
    stores: tuple[StoreAddress, ...] = ()
    """Fresh ones, next to be used first."""
    arrived: Generation = Generation(0)
    """The newest generation whose workers are all started here."""
    leaving: Reason | None = None
    """Asks to be left out of the next world; goes once it is."""
    failure: Failure | None = None
    """The newest failure here; says why an offer's nonce moved."""
    unknown: Mapping[str, object] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What outlives the lease: exits of one generation's ranks, and a node's goodbye."""

    node: NodeId
    incarnation: Incarnation
    generation: Generation
    exits: tuple[Exit, ...] = ()
    has_left: bool = False
    """Goodbye: no worker of this incarnation runs any more."""
    unknown: Mapping[str, object] = field(default_factory=dict)

"""Late nodes: what each node measures of its waits, and which of them all the others wait for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from elasticd.records.ids import Generation, NodeId

__all__ = ["HISTORY_LIMIT", "LateNode", "LateNodes", "NodeWait", "OnLate"]

HISTORY_LIMIT = 16
"""How many late nodes a job's record keeps, the newest: what stands in etcd is bounded."""


class OnLate(StrEnum):
    """What happens to a node that all others wait for (`--on-late`)."""

    REPORT = "report"
    """The node is named, and stays."""
    DRAIN = "drain"
    """The node is named and drained, if the job keeps its least number of nodes without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWait:
    """How long a step of one generation waits on a node: on the rank there that waits least.

    Medians and thirds over the same few dozen steps, in seconds on the node's own clock.
    """

    generation: Generation
    steps: int = 0
    """How many steps this is about; 0 if the waits change too often to be reported, so that nothing
    is known."""
    step_s: float = 0.0
    wait_s: float = 0.0
    low_s: float = 0.0
    """In two of three steps it waited for longer than this."""
    high_s: float = 0.0
    """In one of three steps it waited for longer than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateNode:
    """A node that all others waited for, in each step, for some time."""

    node: NodeId
    ratio: float
    """By how much its steps take longer than those of the others would; 0.3 means by 30 %."""
    cost_nodes: float
    """What the others' waiting for it costs, in nodes."""
    since_unix_s: float
    """The begin, by the clock of the node of rank 0, for people, like all times here."""
    until_unix_s: float = 0.0
    """When it was no longer late, or had left, or the job was over; 0 if it still is, as far as
    known."""
    drained_unix_s: float = 0.0
    """When it was drained for that; 0 if it was not."""
    note: str = ""
    """Why it was not drained, although it should have been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateNodes:
    """The late nodes of one job; the node of rank 0 writes them, and only when
    something changed.
    """

    nodes: tuple[LateNode, ...] = ()
    """The nodes in the order in which they were found."""
    unknown: Mapping[str, object] = field(default_factory=dict)

"""Late nodes: what each node measures of its waits, and which of them all the others wait for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from elasticd.records.ids import Generation, NodeId

__all__ = ["HISTORY_LIMIT", "LateNode", "LateNodes", "NodeWait", "OnLate"]

HISTORY_LIMIT = 16
"""Late nodes that a job's record keeps, the newest: what stands in etcd is bounded."""


class OnLate(StrEnum):
    """What becomes of a node that all others wait for (`--on-late`)."""

    REPORT = "report"
    """It is named, and stays."""
    DRAIN = "drain"
    """It is named and drained, where the job keeps its least number of nodes without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWait:
    """How long a step of one generation waits on a node: of the rank there that waits least.

    Medians and thirds over the same few dozen steps, in seconds on the node's own clock.
    """

    generation: Generation
    steps: int = 0
    """Of so many steps; 0: the waits change too often to be told, and nothing is known of them."""
    step_s: float = 0.0
    wait_s: float = 0.0
    low_s: float = 0.0
    """In two of three steps it waited for longer."""
    high_s: float = 0.0
    """In one of three it waited for longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateNode:
    """A node that all others waited for, in each step, for some time."""

    node: NodeId
    ratio: float
    """By how much its steps take longer than those of the others would; 0.3: by 30 %."""
    cost_nodes: float
    """So many nodes' worth of time goes to the others' waiting for it."""
    since_unix_s: float
    """By the clock of the node of rank 0, for people, like all times here."""
    until_unix_s: float = 0.0
    """When it was no longer late, or had left; 0: it still is, as far as known."""
    drained_unix_s: float = 0.0
    """When it was drained for that; 0: it was not."""
    note: str = ""
    """Why it was not drained, where it should have been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateNodes:
    """Of one job; written by the node of rank 0, and only when something changed."""

    nodes: tuple[LateNode, ...] = ()
    """In the order in which they were found."""
    unknown: Mapping[str, object] = field(default_factory=dict)

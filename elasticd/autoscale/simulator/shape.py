"""The true seconds of a step at each number of nodes, which the autoscaler must find.

The model is t(n) = a + b/n + c(n-1), times `cliff_factor` above `cliff_nodes`: a cliff may be the
first node in another rack, or the first one whose all-reduce leaves the fast network.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Shape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One scaling curve; all times are seconds."""

    a: float = 0.0
    """The part of a step that no node shortens."""
    b: float = 1.0
    """The part that is divided by the nodes."""
    c: float = 0.0
    """The time that each additional node adds."""
    cliff_nodes: int = 0
    """The size above which the cliff lies; 0 if there is none."""
    cliff_factor: float = 1.0
    table: Mapping[int, float] = field(default_factory=dict)
    """The sizes with a time of their own, which replaces the formula."""

    def step_s(self, nodes: int) -> float:
        """Return the seconds of a step."""
        found = self.table.get(nodes)
        if found is not None:
            return found
        seconds = self.a + self.b / nodes + self.c * (nodes - 1)
        is_behind = self.cliff_nodes > 0 and nodes > self.cliff_nodes
        return seconds * (self.cliff_factor if is_behind else 1.0)

    def rate(self, nodes: int) -> float:
        """Return the steps per second; 0 without nodes."""
        return 1.0 / self.step_s(nodes) if nodes > 0 else 0.0

    def busy_share(self, nodes: int) -> float:
        """Return the part of a step in which a node computes, like a device's utilisation."""
        computes_s = self.a + self.b / nodes
        return min(1.0, computes_s / self.step_s(nodes)) if math.isfinite(computes_s) else 0.0

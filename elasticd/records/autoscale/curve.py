"""How long a step takes at each number of nodes: what one job's own generations measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["SIZES_LIMIT", "Curve", "SizeMeasured"]

SIZES_LIMIT = 256
"""Sizes that a curve keeps, the newest measured: what stands in etcd is bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeMeasured:
    """What was measured at one number of nodes, in windows within one generation each."""

    nodes: int
    step_s: float
    """Seconds of a step; a weighted mean in which older windows count ever less."""
    steps: float
    """Weight: how many steps stand behind it, older ones counted less."""
    spread_s: float = 0.0
    """Standard deviation of the windows' means; 0: there was only one window."""
    windows: int = 1
    at_unix_s: float = 0.0
    """When the newest window ended, for people."""
    far_step_s: float = 0.0
    """Seconds of a step in the newest window, which was far from the mean: the next ones say if
    that was noise or the job has changed; 0: it was not."""
    far_steps: float = 0.0
    """Of that window."""
    far_windows: int = 0
    """So many in a row were far, on the same side."""
    anchor_step_s: float = 0.0
    """The mean when it was first sure: by what it has drifted since, the other sizes have as well;
    0: it is not sure yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The sizes that were measured, and the fit for the others, t(n) = a + b/n + c(n-1)."""

    uid: str = ""
    """Of the job's spec."""
    sizes: tuple[SizeMeasured, ...] = ()
    """In the order of their nodes."""
    a: float = 0.0
    b: float = 0.0
    c: float = 0.0
    """Seconds, each at least 0; all 0: nothing was fitted yet."""
    change_cost_s: float = 0.0
    """Seconds without steps that a change of size took, a mean of those seen; 0: none was seen."""
    changes: int = 0
    """How many changes stand behind that."""
    refused: tuple[int, ...] = ()
    """Sizes whose decision was taken back: they are not tried again until the curve has changed."""
    way: int = 0
    """Where the last change of size that was decided went since the job became what it is: 1 to
    more nodes, -1 to fewer; 0: there was none."""
    turns: int = 0
    """How often that way became the other one since then."""
    is_superlinear: bool = False
    """A size made far more steps than in proportion to its nodes, and all that was known before was
    given up for that. If it comes again the job is believed to be so."""
    unknown: Mapping[str, object] = field(default_factory=dict)

"""How long a step takes at each number of nodes: what one job's own generations measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["SIZES_LIMIT", "Curve", "SizeMeasured"]

SIZES_LIMIT = 256
"""How many sizes a curve keeps, the newest measured: what stands in etcd is bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeMeasured:
    """The measurements at one number of nodes, in windows within one generation each."""

    nodes: int
    step_s: float
    """Seconds of a step; a weighted mean in which older windows count ever less."""
    steps: float
    """The weight: how many steps are behind it, where older ones count less."""
    spread_s: float = 0.0
    """The standard deviation of the windows' means; 0 if there was only one window."""
    windows: int = 1
    at_unix_s: float = 0.0
    """When the newest window ended, for people."""
    far_step_s: float = 0.0
    """Seconds of a step in the newest window if that was far from the mean: the next windows show
    whether it was noise or the job has changed; 0 if it was not."""
    far_steps: float = 0.0
    """The steps of that window."""
    far_windows: int = 0
    """How many windows in a row were far, on the same side."""
    anchor_step_s: float = 0.0
    """The mean when it was first sure; how far it has drifted since, the other sizes have drifted
    too. 0 if it is not sure yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The sizes that were measured, and the fit for the others, t(n) = a + b/n + c(n-1)."""

    uid: str = ""
    """The uid of the job's spec."""
    sizes: tuple[SizeMeasured, ...] = ()
    """The sizes in the order of their nodes."""
    a: float = 0.0
    b: float = 0.0
    c: float = 0.0
    """Seconds, each at least 0; all 0 if nothing was fitted yet."""
    change_cost_s: float = 0.0
    """Seconds without steps that a change of size took, as a mean of those seen; 0 if none was
    seen."""
    changes: int = 0
    """How many changes that mean is of."""
    refused: tuple[int, ...] = ()
    """Sizes whose decision was taken back: they are not tried again until the curve has changed."""
    way: int = 0
    """The direction of the last decided change of size since the job became what it is: 1 to more
    nodes, -1 to fewer; 0 if there was none."""
    turns: int = 0
    """How often the direction was reversed since then."""
    is_superlinear: bool = False
    """True if a size made far more steps than in proportion to its nodes, and all that was known
    before was given up for that. If it happens again, it is believed."""
    unknown: Mapping[str, object] = field(default_factory=dict)

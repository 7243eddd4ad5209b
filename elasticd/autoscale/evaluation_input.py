"""What one evaluation of a job rests on, as plain numbers: the loop fills it, the rules read it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.records.ids import Generation

__all__ = ["MeasuredWindow", "Reading", "Seen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one query answered: a number, or why there is none."""

    value: float | None
    """Finite and not negative; None: there is no number to go by."""
    why: str = ""
    """With None: a word of `elasticd.records.autoscale.held.MISSING_INPUT`."""
    detail: str = ""
    """With None: a sentence, with Prometheus' own words where it said any."""
    age_s: float = 0.0
    """Of its newest sample when it was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWindow:
    """Steps of one generation, after its first 20, at one number of nodes."""

    generation: Generation
    nodes: int
    steps: int
    seconds: float
    """Above 0; on the clock of the node of rank 0 alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One job at one moment."""

    job: str
    uid: str
    now_s: float
    """The deciding process's own clock, which never goes back."""
    unix_s: float
    """Its wall clock, for deadlines alone."""
    min_nodes: int
    """Of the job's spec, like `max_nodes`."""
    max_nodes: int
    nodes: int
    """Of the world that trains; 0: there is none."""
    wanted: int
    """What `target_nodes` says now, of all wants together."""
    is_running: bool
    is_in_process: bool
    """A change of size costs no restart of the scripts."""
    generation: Generation
    available: int
    """Nodes that train or could join at once."""
    is_pinned: bool = False
    """A user's want, or the operator's, stands above the autoscaler's."""
    pinned_by: str = ""
    step: int = 0
    """Applied steps; 0: none, or the job reports none."""
    is_paused: bool = False
    data_share: float = 0.0
    """Part of the last window's time that went to waiting for data."""
    used_node_hours: float = 0.0
    windows: tuple[MeasuredWindow, ...] = ()
    """Measured since the evaluation before: mostly none or one."""
    is_window_whole: bool = False
    """The generation that trains has been measured for one whole window after its first steps."""
    change_cost_s: tuple[float, ...] = ()
    """Seconds without steps of changes of size that were told of since the evaluation before."""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """By the name of the metric; the price of a budget under `price`."""

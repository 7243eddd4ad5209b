"""The input of one evaluation of a job, as plain numbers: the loop fills it, the rules read it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.records.ids import Generation

__all__ = ["MeasuredWindow", "QueryReading", "Observation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryReading:
    """The answer to one query: a number, or the reason why there is none."""

    value: float | None
    """A finite number that is not negative; None if there is no number to use."""
    why: str = ""
    """The reason: a word of `elasticd.records.autoscale.held.MISSING_INPUT`."""
    detail: str = ""
    """The reason as a sentence, with Prometheus' own message if there is one."""
    age_s: float = 0.0
    """The age of the newest sample in seconds, at the time of the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWindow:
    """The steps of one generation, after its first 20, at one number of nodes."""

    generation: Generation
    nodes: int
    steps: int
    seconds: float
    """The duration; above 0, on the clock of the node of rank 0 alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The input about one job at one moment."""

    job: str
    uid: str
    now_s: float
    """The time by the deciding process's own clock, which never goes back."""
    unix_s: float
    """The time by that process's wall clock, for deadlines alone."""
    min_nodes: int
    """The least number of nodes in the job's spec; `max_nodes` is the greatest."""
    max_nodes: int
    nodes: int
    """The nodes of the world that trains; 0 if there is none."""
    wanted: int
    """The present result of `target_nodes`, from all wants together."""
    is_running: bool
    is_in_process: bool
    """True if a change of size restarts no scripts."""
    generation: Generation
    available: int
    """The nodes that train or could join at once."""
    is_pinned: bool = False
    """True if a want of a user, or of the operator, stands above the autoscaler's."""
    pinned_by: str = ""
    step: int = 0
    """The applied steps; 0 if there are none, or the job reports none."""
    is_paused: bool = False
    data_share: float = 0.0
    """The part of the last window's time in which the job waited for data."""
    used_node_hours: float = 0.0
    windows: tuple[MeasuredWindow, ...] = ()
    """The windows measured since the last evaluation: usually none or one."""
    has_full_window: bool = False
    """True if the generation that trains has been measured for one whole window after its first
    steps."""
    change_cost_s: tuple[float, ...] = ()
    """The costs in seconds of changes of size that were reported since the last evaluation."""
    readings: Mapping[str, QueryReading] = field(default_factory=dict)
    """The readings by the name of the metric; the price of a budget is under `price`."""

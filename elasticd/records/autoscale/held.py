"""Why an evaluation changed nothing although a rule might have: one closed list of words.

The same word stands in a `QueryReading`, in a job's memory, in a log line and in a metric's label.
"""

from enum import StrEnum

__all__ = ["MISSING_INPUT", "HoldReason"]


class HoldReason(StrEnum):
    """Why an evaluation changed nothing although a rule might have."""

    EMPTY = "empty"
    """A query has no series."""
    STALE = "stale"
    """The newest sample is too old: the series has stopped."""
    NOT_A_NUMBER = "not_a_number"
    """The value is NaN, infinite, or something else that cannot be used."""
    MANY_SERIES = "many_series"
    NEGATIVE = "negative"
    UNREACHABLE = "unreachable"
    """Nobody answers, or not in time, or not in the form of Prometheus' API."""
    REFUSED = "refused"
    """Prometheus, or a proxy in front of it, refuses."""
    WARNING = "warning"
    """Prometheus answers with a warning that the answer may be incomplete."""
    GAP = "gap"
    """All inputs are there again, but not for one whole window yet."""
    NO_STEPS = "no_steps"
    """A rule needs steps, and the job has reported none."""
    NO_WINDOW = "no_window"
    """The generation that trains has not been measured for one whole window yet."""
    COOLDOWN = "cooldown"
    PROBE = "probe"
    """A size is being tried."""
    PINNED = "pinned"
    """A user's want, or the operator's, stands above the autoscaler's."""
    NOT_RUNNING = "not_running"
    RESTART_MODE = "restart_mode"
    """A change would restart the job's scripts, and its policy does not allow that."""
    OTHER = "other"


MISSING_INPUT = (
    HoldReason.EMPTY,
    HoldReason.STALE,
    HoldReason.NOT_A_NUMBER,
    HoldReason.MANY_SERIES,
    HoldReason.NEGATIVE,
    HoldReason.UNREACHABLE,
    HoldReason.REFUSED,
    HoldReason.WARNING,
)
"""The words for a reading without a number. While they last, the autoscaler is blind for that
job."""

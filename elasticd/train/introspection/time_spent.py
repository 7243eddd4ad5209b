"""The time of this process's steps that did not go to training, as it measures it itself."""

from dataclasses import dataclass

__all__ = ["SecondsSpent"]


@dataclass(slots=True)
class SecondsSpent:
    """Sums since the process began, in seconds; the heartbeat thread reads them without a lock."""

    data_s: float = 0.0
    """Seconds in loaders that had no batch ready, or made one."""
    save_s: float = 0.0
    """Seconds in which steps waited for a copy of the state."""

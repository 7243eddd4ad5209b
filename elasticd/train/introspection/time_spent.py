"""What this process's steps spent on other things than training, as it measures them itself."""

from dataclasses import dataclass

__all__ = ["Spent"]


@dataclass(slots=True)
class Spent:
    """Sums since the process began, in seconds; read by the beating thread as they are."""

    data_s: float = 0.0
    """In loaders that had no batch ready, or made one."""
    save_s: float = 0.0
    """Steps that waited for a copy of the state."""

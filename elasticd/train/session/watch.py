"""What a state and its optimizers know of the session: where a step begins and ends.

It stands apart from the session's other ports, so that who imports a State loads no message and no
client of the keeper.
"""

from typing import NamedTuple, Protocol

from elasticd.train.introspection.time_spent import SecondsSpent

__all__ = ["EpochProgress", "StateWatch"]


class StateWatch(Protocol):
    """What a state, its optimizers and its loaders tell, and where they may be interrupted."""

    generation: int
    spent: SecondsSpent
    """What loaders and copies take of the steps; they add to it themselves."""

    def check(self, step: int) -> None:
        """Raise Interrupted if a newer world is wanted of a rank that applied so many steps."""

    def committed(self, position: tuple[int, int]) -> None:
        """Take note of a commit: (steps, epochs) so far. The state is clean."""

    def settle(self) -> None:
        """Return once all that this step's optimizers will read is known good; else raise."""

    def pause(self, why: str | None) -> None:
        """Begin a time without steps, or end it (None)."""

    def delivered(self) -> None:
        """Count a batch that the script gets now."""

    def sequence(self) -> int | None:
        """Return how many collectives this rank has begun; None: nobody counts them."""


class EpochProgress(NamedTuple):
    """How far an epoch is, and how many there are to be; 0 where that is not known."""

    consumed: int = 0
    """Samples of this epoch in applied steps, of all ranks."""
    epoch_samples: int = 0
    epochs: int = 0
    """What `state.epochs` was asked for."""
    samples: int = 0
    """In applied steps of the whole run, of all ranks."""
    steps: int = 0
    """The step at which the script said that it ends."""

"""The sources that failed, and that a restore does not choose again. Pure: equal on all ranks."""

from dataclasses import dataclass

__all__ = ["Exclusions"]

TRIES = 3
"""How often a snapshot in memory is tried, and a storage that does not answer."""


@dataclass(slots=True)
class Exclusions:
    below: int = 0
    """Only checkpoints of lower numbers are restored; 0: all."""
    is_memory_out: bool = False
    """True if nothing that is in the memory of nodes is restored."""
    are_ranks_out: bool = False
    """True if what the ranks have is not restored."""
    is_storage_away: bool = False
    """True if the storage has not answered so often that the restore ends."""
    _landings: int = 0
    """How often what is in memory did not land."""
    _absences: int = 0
    """How often the storage did not answer."""

    def note(self, what: str, *, place: str, number: int, is_away: bool) -> None:
        """Note that some rank could not provide, or could not load (`what`), the chosen state.

        `is_away` says that the storage did not answer the ranks that failed. Its checkpoint may be
        whole, so no older one takes its place.
        """
        if place == "storage":
            if is_away:
                self._absences += 1
                self.is_storage_away = self._absences >= TRIES
            else:
                self.below = number
            return
        is_over = True
        if what == "landed":
            # It came as something else than was sent, and most flipped bits flip on the way.
            self._landings += 1
            is_over = self._landings >= TRIES
        self.is_memory_out |= place == "memory" and what == "landed" and is_over
        self.are_ranks_out |= place == "ranks" and is_over

"""What a restore brought back, from where, and the sentence that tells a person."""

from dataclasses import dataclass

from elasticd.checkpoint.format.layout import Snapshot

__all__ = ["RestoreResult"]

PLACES = {"ranks": "the memory of the other ranks", "memory": "memory", "storage": "storage"}
"""The places in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """The outcome of a restore."""

    run: int
    snapshot: Snapshot | None
    """The snapshot; None if there was nothing, and the training begins."""
    epoch: int = 0
    nbytes: int = 0
    place: str = ""
    """ranks, memory or storage."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Return the sentence for a person; empty if nothing was restored."""
        sentence = " ".join(self.notes)
        if self.snapshot is not None:
            size = self.nbytes / (1 << 20)
            # Without checkpoints there are no runs that write any.
            which = self.snapshot if self.snapshot.run else f"step {self.snapshot.step}"
            sentence += (
                f" Restored {which} from {PLACES[self.place]}: {size:.1f} MiB in "
                f"{self.seconds:.2f} s."
            )
        return sentence.strip()

"""Which snapshots are in the memory of the nodes, and whether they are complete. Pure."""

from collections.abc import Iterable

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.keeper.wire import message as ms

__all__ = ["age_of", "holders_of"]


def holders_of(
    snapshot: Snapshot, every: Iterable[tuple[int, ms.Held]]
) -> list[tuple[int, ms.Held]] | None:
    """Return one rank for each share that can provide it; None if a share is missing."""
    found: dict[int, tuple[int, ms.Held]] = {}
    shares = 0
    for rank, held in every:
        if held.snapshot == snapshot:
            shares = held.shares
            found.setdefault(held.share, (rank, held))
    return [found[share] for share in range(shares)] if shares and len(found) == shares else None


def age_of(snapshot: Snapshot | None) -> tuple[int, int, int]:
    """Return a sort key, oldest first; None, which is no snapshot, is older than any."""
    if snapshot is None:
        return (-1, -1, -1)
    return snapshot.run, snapshot.generation, snapshot.step

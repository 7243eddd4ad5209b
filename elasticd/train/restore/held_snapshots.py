"""Which snapshots are in the memory of the nodes, whether they are complete, and who brings them.

Pure. All ranks of a node can map all that their node has in memory. If one rank brought all of it,
the node's other ranks would wait for that rank.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.keeper.wire import message as ms

__all__ = ["age_of", "holders_of"]


def holders_of(
    snapshot: Snapshot, every: Iterable[tuple[int, ms.Held]]
) -> list[tuple[int, ms.Held]] | None:
    """Return for each share one rank that provides it; None if a share is missing.

    The shares are spread evenly over the ranks that can provide any. Of the ranks that can provide
    a share, the function takes the one that most likely needs the share itself: shares of a sharded
    state are in the order of the ranks, and so are its parts in the next world.
    """
    found: dict[int, dict[int, ms.Held]] = {}
    shares = 0
    for rank, held in every:
        if held.snapshot == snapshot:
            shares = held.shares
            found.setdefault(held.share, {}).setdefault(rank, held)
    if not shares or len(found) < shares:
        return None
    ranks = sorted({rank for having in found.values() for rank in having})
    return [(rank, found[share][rank]) for share, rank in enumerate(_spread(found, ranks))]


def _spread(having: Mapping[int, Collection[int]], ranks: Sequence[int]) -> list[int]:
    """Return the rank that provides each share; `having` has the ranks that can."""
    fair = -(-len(having) // len(ranks))
    turn = {rank: place for place, rank in enumerate(ranks)}
    brought: Counter[int] = Counter()
    taken = []
    for share in range(len(having)):
        wanted = share * len(ranks) // len(having)
        keys = {
            rank: (max(brought[rank] + 1, fair), abs(turn[rank] - wanted), rank)
            for rank in having[share]
        }
        rank = min(keys, key=keys.__getitem__)
        brought[rank] += 1
        taken.append(rank)
    return taken


def age_of(snapshot: Snapshot | None) -> tuple[int, int, int]:
    """Return a sort key, oldest first; None, which is no snapshot, is older than any."""
    if snapshot is None:
        return (-1, -1, -1)
    return snapshot.run, snapshot.generation, snapshot.step

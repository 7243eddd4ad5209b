"""Decides from which state all ranks go on: that of living ranks, of nodes' memory, or of storage.

The newest counts. Of two equally new states the cheaper counts: the ranks' own memory, then the
nodes' memory, then storage.
"""

from collections.abc import Sequence

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.errors import Unavailable
from elasticd.keeper.client import KeeperGone
from elasticd.keeper.wire import message as ms
from elasticd.records.codec import to_plain
from elasticd.train.restore.held_snapshots import age_of, holders_of
from elasticd.train.restore.keeper_port import KeeperPort

__all__ = ["UPLOAD_WAIT_S", "choose_checkpoint"]

UPLOAD_WAIT_S = 15.0
"""How long a snapshot that is not complete in memory may take to become durable."""

Holder = tuple[int, ms.Held]


def choose_checkpoint(
    client: KeeperPort, every: Sequence[Holder], *, below: int, alive: Snapshot | None
) -> dict[str, object]:
    """Return the place of the state, and what a restore from there must know, as JSON.

    `every` lists what is in the memory of all nodes, by ranks. `below` admits only checkpoints of
    lower numbers (0: all). `alive` is the state that the ranks have whole themselves.

    Raises:
        KeeperGone: the keeper does not answer, so the storage is not asked.
        ElasticdError: the storage refuses, or is away and nothing else has a whole state.
    """
    found = _find(client, ms.Find(below=below), every, alive)
    newest = max(age_of(found.snapshot), age_of(alive))
    # Where each step is held in memory, the one in flight is not worth a wait.
    if _newest_unsaved(every) <= newest and any(
        age_of(held.snapshot) > newest
        and held.is_saved
        and holders_of(held.snapshot, every) is None
        for _, held in every
    ):
        # A node that has left may still be bringing its part.
        found = _find(client, ms.Find(below=below, settle_s=UPLOAD_WAIT_S), every, alive)
    stored = age_of(found.snapshot)
    for snapshot in sorted({held.snapshot for _, held in every}, key=age_of, reverse=True):
        if alive is not None and age_of(alive) >= max(age_of(snapshot), stored):
            break
        holders = holders_of(snapshot, every)
        if holders is not None and age_of(snapshot) >= stored:
            return {
                "place": "memory",
                "number": 0,
                "holders": [[rank, to_plain(held)] for rank, held in holders],
                "notes": found.notes,
            }
    if alive is not None and age_of(alive) >= stored:
        return {"place": "ranks", "number": 0, "notes": found.notes}
    place = "storage" if found.number else "none"
    return {"place": place, "number": found.number, "notes": found.notes}


def _newest_unsaved(every: Sequence[Holder]) -> tuple[int, int, int]:
    """Return the age of the newest snapshot that is whole in memory and is never to be uploaded."""
    whole = [
        age_of(held.snapshot)
        for _, held in every
        if not held.is_saved and holders_of(held.snapshot, every) is not None
    ]
    return max(whole, default=age_of(None))


def _find(
    client: KeeperPort, question: ms.Find, every: Sequence[Holder], alive: Snapshot | None
) -> ms.Found:
    """Ask what is stored; silent storage does no harm if a whole state is elsewhere."""
    try:
        return client.ask(question, ms.Found)
    except KeeperGone:
        raise
    except Unavailable as exc:
        if alive is None and all(holders_of(held.snapshot, every) is None for _, held in every):
            raise
        return ms.Found(number=0, notes=(f"Storage was not asked: {exc}",))

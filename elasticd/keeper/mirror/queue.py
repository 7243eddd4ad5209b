"""Which share is sent to another keeper next: the newest copy of each, one at a time. Pure.

A complete share waits here until its worker has said where to send it, and until the share before
has been sent. A newer snapshot of a share replaces one that waits. A share that is being sent is
sent to its end: otherwise a network slower than the snapshots would never complete any.
"""

from dataclasses import dataclass, replace

from elasticd.keeper.memory.share_record import ShareRecord
from elasticd.keeper.wire.message import KeeperAddress

__all__ = ["FIRST_PAUSE_S", "LAST_PAUSE_S", "TRIES_LIMIT", "MirrorTask", "MirrorQueue"]

FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 30.0
TRIES_LIMIT = 20
"""How often one snapshot is tried: for some ten minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorTask:
    """One share that is to be sent to one keeper."""

    worker: int
    record: ShareRecord
    address: KeeperAddress | None
    """The keeper's address; None if the worker has not said it yet."""
    tries: int = 0
    due_s: float = 0.0


class MirrorQueue:
    """The shares that wait, at most one `MirrorTask` for each; one thread at a time uses it."""

    def __init__(self) -> None:
        self._addresses: dict[int, KeeperAddress] = {}
        self._waiting: dict[int, MirrorTask] = {}

    def use(self, worker: int, address: KeeperAddress) -> None:
        """Send the present and future shares of this worker to that keeper."""
        self._addresses[worker] = address
        for share, task in self._waiting.items():
            if task.worker == worker:
                self._waiting[share] = replace(task, address=address, tries=0, due_s=0.0)

    def plan(self, worker: int) -> None:
        """Take note of a worker's new plan, perhaps in another world; the worker says anew where to
        send.
        """
        self._addresses.pop(worker, None)

    def add(self, worker: int, record: ShareRecord) -> None:
        """Add a share that is complete on this node, and on no other."""
        share = record.share
        before = self._waiting.get(share.share)
        if before is None or before.record.share.snapshot < share.snapshot:
            self._waiting[share.share] = MirrorTask(
                worker=worker, record=record, address=self._addresses.get(worker)
            )

    def leave(self, worker: int) -> None:
        """Forget a worker that is gone. Its shares are still sent if their keeper is known."""
        self._addresses.pop(worker, None)
        for share, task in list(self._waiting.items()):
            if task.worker == worker and task.address is None:
                del self._waiting[share]

    def next(self, now_s: float) -> MirrorTask | None:
        """Take out the task that is due now, the oldest first; None if none is due."""
        for share, task in list(self._waiting.items()):
            if not task.record.is_wanted:
                del self._waiting[share]
        ready = [
            task
            for task in self._waiting.values()
            if task.address is not None and task.due_s <= now_s
        ]
        if not ready:
            return None
        found = min(ready, key=lambda each: (each.record.share.snapshot, each.record.share.share))
        del self._waiting[found.record.share.share]
        return found

    @property
    def is_new(self) -> bool:
        """Return whether a share waits that was not tried yet, and can be sent."""
        return any(
            task.address is not None and not task.tries and task.record.is_wanted
            for task in self._waiting.values()
        )

    def pause_s(self, now_s: float) -> float | None:
        """Return the seconds until a task is due; None if none is due before something changes."""
        due = [each.due_s - now_s for each in self._waiting.values() if each.address is not None]
        return max(0.0, min(due)) if due else None

    def failed(self, task: MirrorTask, now_s: float) -> None:
        """Take note of a failed try; try later, unless a newer share waits or the tries are used
        up.
        """
        share = task.record.share.share
        tries = task.tries + 1
        if share in self._waiting or tries >= TRIES_LIMIT or not task.record.is_wanted:
            return
        pause_s = min(LAST_PAUSE_S, FIRST_PAUSE_S * 2**task.tries)
        # Its worker may have named another address meanwhile.
        address = self._addresses.get(task.worker, task.address)
        self._waiting[share] = replace(task, address=address, tries=tries, due_s=now_s + pause_s)

"""Which share goes to another keeper next: the newest of each, one at a time. Pure.

What is whole waits here until its worker has said where to, and until the one before is through. A
newer snapshot of a share takes the place of one that waits; one that is on its way is let finish,
or no network that is slower than the snapshots would ever bring one whole.
"""

from dataclasses import dataclass, replace

from elasticd.keeper.memory.share_record import Record
from elasticd.keeper.wire.message import Door

__all__ = ["FIRST_PAUSE_S", "LAST_PAUSE_S", "TRIES_LIMIT", "Errand", "Mirror"]

FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 30.0
TRIES_LIMIT = 20
"""Of one snapshot: some ten minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """One share that is to be brought to one keeper."""

    worker: int
    record: Record
    door: Door | None
    """None: its worker has not said yet."""
    tries: int = 0
    due_s: float = 0.0


class Mirror:
    """What waits, at most one errand for each share; used by one thread at a time."""

    def __init__(self) -> None:
        self._doors: dict[int, Door] = {}
        self._waiting: dict[int, Errand] = {}

    def use(self, worker: int, door: Door) -> None:
        """What this worker took, and takes from now on, goes there."""
        self._doors[worker] = door
        for share, errand in self._waiting.items():
            if errand.worker == worker:
                self._waiting[share] = replace(errand, door=door, tries=0, due_s=0.0)

    def plan(self, worker: int) -> None:
        """A worker plans anew, in another world perhaps: where to it says again."""
        self._doors.pop(worker, None)

    def add(self, worker: int, record: Record) -> None:
        """A share is whole here, and nowhere else."""
        share = record.share
        before = self._waiting.get(share.share)
        if before is None or before.record.share.snapshot < share.snapshot:
            self._waiting[share.share] = Errand(
                worker=worker, record=record, door=self._doors.get(worker)
            )

    def leave(self, worker: int) -> None:
        """A worker is gone. What it took is sent all the same, if it has said where to."""
        self._doors.pop(worker, None)
        for share, errand in list(self._waiting.items()):
            if errand.worker == worker and errand.door is None:
                del self._waiting[share]

    def next(self, now_s: float) -> Errand | None:
        """Take out what is to be sent now, the oldest first; None: nothing yet."""
        for share, errand in list(self._waiting.items()):
            if not errand.record.is_wanted:
                del self._waiting[share]
        ready = [
            errand
            for errand in self._waiting.values()
            if errand.door is not None and errand.due_s <= now_s
        ]
        if not ready:
            return None
        found = min(ready, key=lambda each: (each.record.share.snapshot, each.record.share.share))
        del self._waiting[found.record.share.share]
        return found

    @property
    def is_new(self) -> bool:
        """Something waits that was not tried yet, and could be."""
        return any(
            errand.door is not None and not errand.tries and errand.record.is_wanted
            for errand in self._waiting.values()
        )

    def pause_s(self, now_s: float) -> float | None:
        """How long until something is due; None: until something changes."""
        due = [each.due_s - now_s for each in self._waiting.values() if each.door is not None]
        return max(0.0, min(due)) if due else None

    def failed(self, errand: Errand, now_s: float) -> None:
        """It did not work: later again, unless something newer waits, or it was tried enough."""
        share = errand.record.share.share
        tries = errand.tries + 1
        if share in self._waiting or tries >= TRIES_LIMIT or not errand.record.is_wanted:
            return
        pause_s = min(LAST_PAUSE_S, FIRST_PAUSE_S * 2**errand.tries)
        # Its worker may have named another door meanwhile.
        door = self._doors.get(errand.worker, errand.door)
        self._waiting[share] = replace(errand, door=door, tries=tries, due_s=now_s + pause_s)

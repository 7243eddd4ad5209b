"""The shares that keepers of other nodes sent, in this keeper's own memory.

As for the workers of this node, there are two buffers for each share: one that is complete, one
that is being received. There is a third buffer while a snapshot is uploaded beside others. Records
of an older generation are never overwritten, since a restore may be reading them. They stay until a
newer snapshot is durable; once the next generation has sent a snapshot, two records of each share
stay.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Lock

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.errors import EnvironmentProblem, Unavailable
from elasticd.keeper.memory.free_memory import room_bytes
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.memory.share_record import BUFFERS, ShareRecord

__all__ = ["ReceivedShares", "ReceiveSlot"]

SHARES_LIMIT = 1024
"""How many shares of the node before are taken: more than any node has ranks."""


@dataclass(slots=True, eq=False)
class ReceiveSlot:
    """The right to fill a buffer; `keep` or `drop` ends it."""

    shelf: "_Shelf"
    snapshot: Snapshot
    memory: SharedMemory


@dataclass(slots=True, eq=False, kw_only=True)
class _Shelf:
    """The buffers of one share in one generation."""

    share: int
    world: tuple[int, int]
    records: list[ShareRecord] = field(default_factory=list)
    """The records, oldest first."""
    is_receiving: bool = False


class ReceivedShares:
    """The received shares of a keeper. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._taking = Lock()
        """Held while memory is taken: two at a time would both see the same room."""
        self._shelves: dict[int, _Shelf] = {}
        self._old: dict[int, list[ShareRecord]] = {}
        """Shares of generations that are over, the newest last."""

    def claim(
        self, snapshot: Snapshot, share: int, shares: int, size: int, owed_bytes: int
    ) -> ReceiveSlot | None:
        """Return memory for a share; None if the share is here already.

        `owed_bytes` must stay free for others.

        Raises: Unavailable: not now: an older share is being received, or a newer one is here.
        EnvironmentProblem: there is no memory for the share.
        """
        with self._lock:
            if any(
                (each.share.snapshot, each.share.share, each.share.shares)
                == (snapshot, share, shares)
                for each in self._all()
            ):
                return None
            shelf = self._shelf(snapshot, share)
            reused = None
            oldest = _spare_of(shelf.records)
            if oldest is not None:
                shelf.records.remove(oldest)
                oldest.is_wanted = False
                reused = oldest.memory if oldest.memory.size == size else None
                del oldest
            shelf.is_receiving = True
        if reused is not None:
            return ReceiveSlot(shelf, snapshot, reused)
        try:
            with self._taking:
                return ReceiveSlot(shelf, snapshot, _memory(size, owed_bytes))
        except BaseException:
            with self._lock:
                shelf.is_receiving = False
            raise

    def add(self, slot: ReceiveSlot, record: ShareRecord) -> None:
        """Take note that the slot's memory holds this share now."""
        with self._lock:
            slot.shelf.is_receiving = False
            # A restore may have begun meanwhile, which took what the shelf had.
            if self._shelves.setdefault(slot.shelf.share, slot.shelf) is slot.shelf:
                slot.shelf.records.append(record)
            else:
                record.is_wanted = False

    def drop(self, slot: ReceiveSlot) -> None:
        """Free the slot, because its share did not arrive."""
        with self._lock:
            slot.shelf.is_receiving = False

    def protect(self) -> None:
        """Protect the shares that are here from now on, because a restore reads them."""
        with self._lock:
            for shelf in list(self._shelves.values()):
                self._retire(shelf)

    def forget_before(self, durable: Snapshot) -> None:
        """Give up shares older than `durable`, except the buffers of its own generation."""
        with self._lock:
            for share, records in list(self._old.items()):
                for each in records:
                    each.is_wanted = each.share.snapshot >= durable
                self._old[share] = [each for each in records if each.is_wanted]
                if not self._old[share]:
                    del self._old[share]
            for shelf in list(self._shelves.values()):
                if shelf.world < _world(durable) and not shelf.is_receiving:
                    del self._shelves[shelf.share]
                    for each in shelf.records:
                        each.is_wanted = False

    def records(self) -> list[ShareRecord]:
        with self._lock:
            return list(self._all())

    def _all(self) -> Iterator[ShareRecord]:
        for shelf in self._shelves.values():
            yield from shelf.records
        for records in self._old.values():
            yield from records

    def _shelf(self, snapshot: Snapshot, share: int) -> _Shelf:
        """Return the shelf for this share; give up that of an older generation."""
        world = _world(snapshot)
        shelf = self._shelves.get(share)
        if shelf is not None:
            if shelf.is_receiving:
                raise Unavailable("Another snapshot of this share is just being received.")
            if shelf.world > world or (
                shelf.records and shelf.records[-1].share.snapshot > snapshot
            ):
                raise Unavailable("A newer snapshot of this share is here.")
            if shelf.world == world:
                return shelf
            self._retire(shelf)
        elif len(self._shelves) >= SHARES_LIMIT:
            raise Unavailable(f"{SHARES_LIMIT} other shares are here.")
        self._prune(share, world)
        shelf = self._shelves[share] = _Shelf(share=share, world=world)
        return shelf

    def _retire(self, shelf: _Shelf) -> None:
        del self._shelves[shelf.share]
        if shelf.records:
            self._old.setdefault(shelf.share, []).extend(shelf.records)
            shelf.records = []

    def _prune(self, share: int, world: tuple[int, int]) -> None:
        """Give up old shares but the newest two, once a newer generation has sent a snapshot."""
        every = sorted(self._old.get(share, []), key=lambda each: each.share.snapshot)
        if every and _world(every[-1].share.snapshot) < world:
            for each in every[:-BUFFERS]:
                each.is_wanted = False
            self._old[share] = every[-BUFFERS:]


def _spare_of(records: list[ShareRecord]) -> ShareRecord | None:
    """Return the record, of these from the oldest on, that gives its memory to a newer one, or
    None.
    """
    if len(records) < BUFFERS:
        return None
    free = [each for each in records[:-1] if not each.is_pinned]
    if free:
        return free[0]
    return records[0] if len(records) > BUFFERS else None


def _world(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.run, snapshot.generation


def _memory(size: int, owed_bytes: int) -> SharedMemory:
    room = room_bytes()
    if room is not None and size + owed_bytes > room:
        raise EnvironmentProblem(
            f"{size} bytes for a part of another node's cannot be had: there are {room}, of which "
            f"{owed_bytes} are for this node's own."
        )
    return SharedMemory.new(size)

"""The shares in memory: which buffer holds which share of which snapshot, and may be overwritten.

There are two buffers for each share. A new snapshot goes into the one that does not hold the newest
complete one, so a complete one is there at any time. If the older one is still being uploaded, it
is given up only when a newer complete one has replaced it; where snapshots are taken beside an
upload, there is a third buffer for what is uploaded. If there is no memory for a third buffer, the
upload is given up once. Beside the next upload no snapshot is taken until that upload is done
(`awaits_upload`), so that every second upload gets done, however slow it is. The shares of gone
workers stay for a restore, until a newer snapshot is complete here, or durable, or needs the
memory.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Lock

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.errors import EnvironmentProblem, InvariantBroken
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.memory.received_shares import ReceivedShares
from elasticd.keeper.memory.share_record import BUFFERS, ShareRecord, held_of
from elasticd.keeper.wire.message import Held, Plan, Saving
from elasticd.telemetry.cgroup import memory_limit
from elasticd.telemetry.log import get_logger

__all__ = ["ShareMemory"]

log = get_logger()

SEALERS = 4
"""How many threads compute checksums; each is as fast as a fast disk."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Place:
    """The buffers of one plan of one worker."""

    plan: Plan
    memories: list[SharedMemory] = field(default_factory=list)
    records: list[ShareRecord | None] = field(default_factory=list)
    claimed: int = -1
    has_lost_upload: bool = False
    """The last snapshot that was uploaded beside others was overwritten before that was done."""


class ShareMemory:
    """All records of a keeper. Several threads may use it."""

    def __init__(self, *, niceness: int = 0) -> None:
        """`niceness` is that of the threads that take checksums, added to the process's."""
        self._lock = Lock()
        self._sealers = ThreadPoolExecutor(
            min(SEALERS, os.cpu_count() or 1),
            thread_name_prefix="seal",
            initializer=os.nice,  # On Linux that is this thread alone.
            initargs=(niceness,),
        )
        self._places: dict[tuple[int, int], _Place] = {}
        self._orphans: list[ShareRecord] = []
        """Shares of workers that have ended. They stay until a newer snapshot is durable, or whole
        here."""
        self.received = ReceivedShares()
        """What keepers of other nodes sent; with a lock of its own."""

    def plan(self, worker: int, plans: Iterable[Plan]) -> None:
        """Take note of a worker's plans, which replace its earlier ones."""
        with self._lock:
            self._retire(worker)
            for plan in plans:
                self._places[worker, plan.id] = _Place(plan=plan)

    def claim(self, worker: int, plan: int) -> tuple[int, SharedMemory | None]:
        """Return a buffer to write to, and its memory if the worker does not have the memory yet.

        Raises: EnvironmentProblem: there is no memory for it.
        """
        with self._lock:
            place = self._place(worker, plan)
            is_taken = _is_enough(place)
        # Without the lock: it may take seconds, and other workers have questions too.
        memory, why = (None, None) if is_taken else self._fresh(place.plan.layout.size)
        with self._lock:
            place = self._place(worker, plan)
            if why is not None:
                if place.records == [None]:
                    place.claimed = 0  # The first buffer holds nothing yet, so it can wait.
                    return place.claimed, None
                if len(place.memories) < BUFFERS:
                    raise why
            if memory is not None:
                place.memories.append(memory)
                place.records.append(None)
                place.claimed = len(place.memories) - 1
                return place.claimed, memory
            place.claimed = _oldest_of(place.records)
            record = place.records[place.claimed]
            if record is not None:
                if record.saving is Saving.PINNED:
                    place.has_lost_upload = record.is_uploading
                record.is_wanted = False
                place.records[place.claimed] = None
            return place.claimed, None

    def awaits_upload(self, worker: int | None = None) -> bool:
        """Return whether this worker's next snapshot, or that of any, should wait for an upload.

        The upload leaves no memory for a snapshot, and the upload before was given up for that
        reason. Then all ranks have to wait: a snapshot that some ranks did not take cannot be
        restored.
        """
        with self._lock:
            return any(
                each.has_lost_upload and _is_next_uploading(each)
                for (owner, _), each in self._places.items()
                if worker is None or owner == worker
            )

    def drop(self, worker: int, plan: int) -> None:
        """Free a claimed buffer that was not filled."""
        with self._lock:
            self._place(worker, plan).claimed = -1

    def add(self, worker: int, plan: int, buffer: int, record: ShareRecord) -> None:
        """Take note that the claimed buffer holds this snapshot now; from here on its content must
        not change.

        Raises: InvariantBroken: the buffer was not claimed.
        """
        with self._lock:
            place = self._place(worker, plan)
            if place.claimed != buffer:
                raise InvariantBroken("a buffer was filled that was not claimed")
            place.claimed = -1
            place.records[buffer] = record
            record.seal(self._sealers)

    def _fresh(self, size: int) -> tuple[SharedMemory | None, EnvironmentProblem | None]:
        """Take memory; if none is left, give up records of gone workers for it, oldest first."""
        while True:
            try:
                memory = SharedMemory.new(size)
            except EnvironmentProblem as exc:
                if not self._give_up_oldest():
                    return None, exc
            else:
                self._log_taken(size)
                return memory, None

    def _log_taken(self, size: int) -> None:
        """Log this keeper's part of the memory that all workers and keepers of the container may
        take.
        """
        with self._lock:
            held = size + sum(m.size for place in self._places.values() for m in place.memories)
        limit = memory_limit()
        log.info(
            "memory.taken",
            bytes=size,
            held_bytes=held,
            limit_bytes=limit.size_bytes if limit is not None else None,
            share=round(held / limit.size_bytes, 3) if limit is not None else None,
        )

    def _give_up_oldest(self) -> bool:
        """Give up the oldest snapshot of gone workers; return False if every one has to stay.

        The newest complete snapshot stays; of a state that several nodes hold, the newest of any: a
        restore would begin with it until there is another.
        """
        with self._lock:
            every = [*self._all(), *self.received.records()]
            stays = _newest_whole(every) or max(
                (each.share.snapshot for each in every), default=None
            )
            made = {each.share.snapshot for each in self._orphans} - {stays}
            if not made:
                return False
            oldest = min(made)
            self._keep_orphans(lambda each: each.share.snapshot != oldest)
            return True

    def forget_before(self, durable: Snapshot) -> None:
        """Drop the shares of gone workers that are older than `durable`: nobody needs them any
        more.
        """
        with self._lock:
            self._keep_orphans(lambda each: each.share.snapshot >= durable)
        self.received.forget_before(durable)

    @property
    def owed_bytes(self) -> int:
        """Return the bytes that this node's workers will claim and have not claimed yet."""
        with self._lock:
            return sum(
                (BUFFERS - len(place.memories)) * place.plan.layout.size
                for place in self._places.values()
            )

    def memory(self, worker: int, plan: int, buffer: int) -> SharedMemory:
        with self._lock:
            return self._place(worker, plan).memories[buffer]

    def plan_of(self, worker: int, plan: int) -> Plan:
        with self._lock:
            return self._place(worker, plan).plan

    def leave(self, worker: int) -> None:
        """Forget a worker that is gone; the shares that it finished stay."""
        with self._lock:
            self._retire(worker)

    def finish(self, snapshot: Snapshot) -> None:
        """Take note that a snapshot is durable or given up: its memory may be used again."""
        for each in self.records():
            if each.share.snapshot == snapshot:
                each.is_finished = True

    def records(self) -> list[ShareRecord]:
        with self._lock:
            own = list(self._all())
        return own + self.received.records()

    def missing(self, snapshot: Snapshot, shares: int) -> set[int]:
        """Return the shares of a snapshot that are not here, and that no worker may hand over.

        A worker may as long as its connection is not at its end: its last message may wait there.
        """
        with self._lock:
            coming = {
                place.plan.share for place in self._places.values() if place.plan.shares == shares
            }
            every = [*self._all(), *self.received.records()]
        here = {each.share.share for each in every if each.share.snapshot == snapshot}
        return set(range(shares)) - coming - here

    def find(self, held: Held) -> ShareRecord | None:
        """Return the record with this description; None if the record is not here any more."""
        found = [(held_of(each), each) for each in self.records() if each.is_wanted]
        # What was in memory only may be uploaded since: its bytes are the same.
        later = replace(held, is_saved=True)
        return next((each for told in (held, later) for one, each in found if one == told), None)

    def _all(self) -> Iterator[ShareRecord]:
        for place in self._places.values():
            yield from (each for each in place.records if each is not None)
        yield from self._orphans

    def _place(self, worker: int, plan: int) -> _Place:
        try:
            return self._places[worker, plan]
        except KeyError:
            raise InvariantBroken(f"plan {plan} of worker {worker} is not known") from None

    def _retire(self, worker: int) -> None:
        for key in [k for k in self._places if k[0] == worker]:
            place = self._places.pop(key)
            self._orphans += [each for each in place.records if each is not None]
        # Nobody would restore one that is older than a whole one.
        whole = _newest_whole([*self._all(), *self.received.records()])
        if whole is not None:
            self._keep_orphans(lambda each: each.share.snapshot >= whole)
        # By age and not by the order in which workers left: a snapshot needs the shares of all.
        newest = set(sorted(self._orphans, key=_snapshot_of)[-_ORPHANS_LIMIT:])
        self._keep_orphans(lambda each: each in newest)

    def _keep_orphans(self, is_kept: Callable[[ShareRecord], bool]) -> None:
        for each in self._orphans:
            each.is_wanted = is_kept(each)
        self._orphans = [each for each in self._orphans if each.is_wanted]


_ORPHANS_LIMIT = 64
"""How many records of gone workers are kept: two for each worker of a node, and those of its last
restart. It bounds records of which other nodes hold the rest, so that this keeper cannot know what
is complete."""


def _newest_whole(records: Iterable[ShareRecord]) -> Snapshot | None:
    """Return the newest snapshot of which every share is here; None if there is none."""
    found: dict[tuple[Snapshot, int], set[int]] = {}
    for each in records:
        if each.is_wanted:
            share = each.share
            found.setdefault((share.snapshot, share.shares), set()).add(share.share)
    whole = [made for (made, shares), held in found.items() if len(held) == shares]
    return max(whole, default=None)


def _is_enough(place: _Place) -> bool:
    """Return whether the next snapshot needs no more memory than there is."""
    count = len(place.memories)
    if count < BUFFERS:
        return False
    oldest = place.records[_oldest_of(place.records)]
    return count >= place.plan.buffers or oldest is None or not oldest.is_pinned


def _is_next_uploading(place: _Place) -> bool:
    """Return whether the next snapshot would overwrite one that is being uploaded."""
    if len(place.memories) < BUFFERS:
        return False
    oldest = place.records[_oldest_of(place.records)]
    return oldest is not None and oldest.is_uploading


def _oldest_of(records: Sequence[ShareRecord | None]) -> int:
    """Return the buffer to write to: never the one with the newest complete snapshot, and the one
    that is being uploaded beside the training only if there is no other.
    """
    last = len(records) - 1
    empty = [index for index, each in enumerate(records) if each is None]
    if empty:
        return empty[-1] if len(empty) == len(records) else empty[0]
    order = sorted(range(len(records)), key=lambda index: _snapshot_of(records[index]))
    free = [index for index in order[:last] if not _is_pinned(records[index])]
    return free[0] if free else order[0]


def _snapshot_of(record: ShareRecord | None) -> Snapshot:
    assert record is not None
    return record.share.snapshot


def _is_pinned(record: ShareRecord | None) -> bool:
    return record is not None and record.is_pinned

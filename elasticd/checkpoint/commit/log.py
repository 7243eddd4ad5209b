"""The log of commits: numbered objects, each written once, and only after its predecessor.

A writer of number n has read n - 1, so there are no gaps; of two writers one finds the number taken
and looks again. This order is the whole consensus: an entry counts unless an earlier one fenced it
(`LogState`). The newest number is found by asking for numbers, never by listing.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from elasticd.checkpoint.format.entry import ENTRY_LIMIT_BYTES, ROWS_LIMIT, LogEntry, LogEntryKind
from elasticd.checkpoint.format.json_read import Damaged, retry_damaged
from elasticd.checkpoint.format.layout import HINT, Snapshot, entry_name
from elasticd.checkpoint.format.number_ranges import NumberRanges
from elasticd.checkpoint.storage.bucket import Bucket, ObjectMissing, ReadableBucket
from elasticd.errors import ElasticdError, Fenced, Refused

__all__ = ["CommitLog", "LogState", "first_owner", "is_committed", "may_commit"]

REMEMBERED = 1000
"""How many entries are kept in memory."""
APPEND_LIMIT = 100
"""How many other writers may be faster, one after the other, before we give up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The run and generation that may write now, by the entries of the commit log."""

    run: int = 0
    generation: int = 0
    start_step: int = 0
    """The step that the newest generation went on from."""
    uid: str = ""
    job: str = ""
    last: Snapshot | None = None
    """The newest checkpoint of the run, unless a later entry went back behind it."""
    floor_step: int = -1
    """Up to this step, everything of the run that will ever be committed has been."""
    former: tuple[str, ...] = ()
    """The uids of the runs before, which are over."""
    openings: tuple[tuple[int, int], ...] = ()
    """The generations that were opened and are newer than that of the newest checkpoint, and the
    step of each, both ascending: one that did not go on from a later step than all those after it
    is the only one that counts.
    """

    def after(self, entry: LogEntry) -> "LogState":
        """Return the ruling that holds once this entry is in the log."""
        made = entry.snapshot
        is_newer = (made.run, made.generation) > (self.run, self.generation)
        if entry.kind is LogEntryKind.OPENED:
            if not is_newer and (made.run, made.generation) != (self.run, self.generation):
                return self
            last, floor_step = self.last, self.floor_step
            if made.run != self.run:
                last, floor_step = None, -1
            elif floor_step > made.step:
                # It went back behind the newest; what it went back to was committed long ago.
                last, floor_step = None, made.step
            opened = self._with(entry, made.step, last, floor_step, entry.former)
            before = self.openings if made.run == self.run else ()
            kept = tuple(each for each in before if each[1] < made.step)
            return replace(opened, openings=(*kept, (made.generation, made.step)))
        if entry.kind is LogEntryKind.COMMITTED:
            if made.run == self.run and entry.uid != self.uid:
                return self  # Of another run that was let have the same number.
            if is_newer:
                return self._with(entry, made.step, made, made.step, self.former)
            newer = tuple(each for each in self.openings if each[0] > made.generation)
            return replace(self, last=made, floor_step=made.step, openings=newer)
        return self

    def _with(
        self,
        entry: LogEntry,
        start_step: int,
        last: Snapshot | None,
        floor_step: int,
        former: tuple[str, ...],
    ) -> "LogState":
        return LogState(
            run=entry.snapshot.run,
            generation=entry.snapshot.generation,
            start_step=start_step,
            uid=entry.uid,
            job=entry.job,
            last=last,
            floor_step=floor_step,
            former=former,
        )


def may_commit(log_state: LogState, snapshot: Snapshot) -> bool:
    """Return whether this snapshot may become the newest checkpoint. Pure.

    A snapshot of an earlier generation that is not newer than the state from which the present
    generation went on belongs to the present one's history, so it may still become durable. That
    must be true of each generation after its own: the present one may have gone on from a later
    step of one that went back. A checkpoint of any of them is newer than its step then. A snapshot
    that is not newer than the newest checkpoint has come too late.
    """
    if snapshot.run == log_state.run and snapshot.step <= log_state.floor_step:
        return False
    if (snapshot.run, snapshot.generation) >= (log_state.run, log_state.generation):
        return True
    if snapshot.run != log_state.run or snapshot.step > log_state.start_step:
        return False
    if log_state.last is not None and log_state.last.generation > snapshot.generation:
        return False
    later = [step for generation, step in log_state.openings if generation > snapshot.generation]
    return all(snapshot.step <= step for step in later)


def is_committed(log_state: LogState, snapshot: Snapshot) -> bool:
    """Return whether the newest checkpoint is this snapshot, or another of the same state. Pure.

    A generation that went on from a step may take a snapshot of that step once more, since that of
    the generation before may never become whole. Either of them becomes the checkpoint.
    """
    last = log_state.last
    if last is None or last == snapshot:
        return last is not None
    is_same_step = (last.run, last.step) == (snapshot.run, snapshot.step)
    is_in_history = snapshot.step <= log_state.start_step
    return is_same_step and is_in_history and snapshot.generation <= log_state.generation


class CommitLog:
    """The log of one bucket. It remembers what it has read, since entries never change."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._newest = 0
        self._entries: dict[int, LogEntry] = {}
        self._damaged: dict[int, str] = {}

    def newest_number(self) -> int:
        """Return the highest number in use, 0 for an empty log."""
        low = max(self._newest, self._hint())
        if low and not self._is_there(low):
            low = 0  # A hint that lies.
        step = 1
        while self._is_there(low + step):
            low += step
            step *= 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_there(middle) else (low, middle)
        self._newest = low
        return low

    def entry(self, number: int) -> LogEntry:
        """Return the entry with this number.

        Raises:
            ObjectMissing, Damaged: the entry is not there, or not as it was written.
        """
        entry = self._entries.get(number)  # Another thread may clear it at any moment.
        if entry is None:
            try:
                entry = retry_damaged(
                    lambda: LogEntry.from_json(
                        self._bucket.read(entry_name(number), ENTRY_LIMIT_BYTES), number
                    )
                )
            except Damaged as exc:
                if len(self._damaged) < REMEMBERED:
                    self._damaged[number] = str(exc)
                raise
            self._damaged.pop(number, None)
            if len(self._entries) >= REMEMBERED:
                self._entries.clear()
            self._entries[number] = entry
        return entry

    def back_from(self, number: int) -> Iterator[LogEntry]:
        """Iterate over the entries from this number down, without damaged ones."""
        for each in range(number, 0, -1):
            try:
                yield self.entry(each)
            except (Damaged, ObjectMissing):
                continue

    def state(self, newest: int | None = None) -> LogState:
        """Return who may write after the entry `newest`, or after all entries.

        The entries that the newest one names are enough: who opened last, and the newest
        checkpoint. Only if one of these is damaged, the log is read back to an older one.
        """
        number = self.newest_number() if newest is None else newest
        named = self._named(number)
        log_state = LogState()
        for entry in named if named is not None else self._since_opened(number):
            log_state = log_state.after(entry)
        return log_state

    def _named(self, newest: int) -> list[LogEntry] | None:
        """Return the entries that decide the ruling, in their order; None if one cannot be read."""
        if not newest:
            return []
        try:
            entry = self.entry(newest)
            numbers = {entry.opened, entry.committed} - {0}
            # Where several generations began since the newest checkpoint, each of them counts.
            if not entry.opened or entry.committed < entry.opened:
                return None
            named = [self.entry(each) for each in sorted(numbers)]
            # Beside an older generation's checkpoint, each opening after that generation counts.
            return named if _generation_of(named[-1]) >= _generation_of(named[0]) else None
        except (Damaged, ObjectMissing):
            return None

    def _since_opened(self, newest: int) -> list[LogEntry]:
        """Return all entries back to the one that opened a generation, and one checkpoint before
        that which is of no older generation than those that were opened before it.
        """
        read: list[LogEntry] = []
        has_opened = False
        for entry in self.back_from(newest):
            read.append(entry)
            if has_opened and entry.kind is LogEntryKind.COMMITTED and self._is_of_newest(entry):
                break
            has_opened |= entry.kind is LogEntryKind.OPENED
        return read[::-1]

    def _is_of_newest(self, committed: LogEntry) -> bool:
        """Return whether a checkpoint was made by the newest generation that had been opened."""
        with suppress(Damaged, ObjectMissing):
            opened = self.entry(committed.opened) if committed.opened else None
            return opened is not None and _generation_of(opened) <= _generation_of(committed)
        return False

    def kept(self, newest: int | None = None) -> NumberRanges:
        """Return the numbers of the entries whose checkpoints are kept, ascending."""
        for entry in self.back_from(self.newest_number() if newest is None else newest):
            return NumberRanges(entry.kept)
        return NumberRanges()

    def checkpoints(self) -> Iterator[LogEntry]:
        """Iterate over the kept checkpoints, newest first, damaged entries left out."""
        number = self.newest_number()
        kept = self.kept(number)
        if number and not self._is_good(number):
            # What the damaged newest one kept is known but for itself.
            kept = kept.plus(number)
        for each in reversed(kept):
            if self._is_good(each):
                entry = self.entry(each)
                if entry.kind is LogEntryKind.COMMITTED:
                    yield entry

    def passed_over(self, above: int) -> list[str]:
        """Return a sentence for each damaged entry above this number.

        A caller that takes an older checkpoint than the newest must tell the user. Nobody knows
        which checkpoint a damaged entry named, so no other sentence speaks of that checkpoint.
        """
        found = sorted(self._damaged.items(), reverse=True)
        return [
            f"The entry {number} of the log, {entry_name(number)}, is damaged: {why}"
            for number, why in found
            if number > above
        ]

    def append(
        self, make: Callable[[int, LogState, Sequence[int]], LogEntry | None]
    ) -> LogEntry | None:
        """Append the entry that `make(number, ruling, kept)` returns; append nothing for None.

        `make` is called again whenever another writer was faster. Its exceptions reach the caller.

        Raises: Fenced: others were faster each time. Refused: no reader would accept the entry.
        """
        for _ in range(APPEND_LIMIT):
            newest = self.newest_number()
            number = newest + 1
            entry = make(number, self.state(newest), self.kept(newest))
            if entry is None:
                return None
            assert entry.number == number
            entry = self._pointing_back(entry, newest)
            if self._bucket.create(entry_name(number), self._readable(entry)):
                self._newest = number
                if entry.kind is not LogEntryKind.OPENED:
                    # Who opened is looked up: a storage may have let two create this number.
                    self._entries[number] = entry
                with suppress(ElasticdError):  # Without the hint it counts too.
                    self._bucket.replace(HINT, json.dumps(number).encode())
                return entry
        raise Fenced(f"Others write to the log of {self._bucket.url} faster than we can.")

    def _readable(self, entry: LogEntry) -> bytes:
        """Return an entry's text; an entry beyond a reader's limits must not become the newest."""
        if len(NumberRanges(entry.kept).rows()) > ROWS_LIMIT:
            raise Refused(
                f"What {self._bucket.url} keeps has more than {ROWS_LIMIT} gaps, and a reader "
                "takes no more: give up some with `elasticd checkpoint rm`, or give "
                "--checkpoint-keep."
            )
        text = entry.to_json()
        try:
            LogEntry.from_json(text, entry.number)
        except Damaged as exc:
            raise Refused(f"Nobody could read what would be written to the log: {exc}") from exc
        return text

    def _pointing_back(self, entry: LogEntry, newest: int) -> LogEntry:
        """Return the entry with the positions of the newest entries of the two kinds that make the
        ruling.
        """
        opened = entry.number if entry.kind is LogEntryKind.OPENED else 0
        committed = entry.number if entry.kind is LogEntryKind.COMMITTED else 0
        for before in self.back_from(newest):
            opened, committed = opened or before.opened, committed or before.committed
            break
        return replace(entry, opened=opened, committed=committed)

    def _hint(self) -> int:
        if self._newest:
            return 0
        try:
            hint = json.loads(self._bucket.read(HINT, 100))
        except (ObjectMissing, ValueError):
            return 0
        return hint if type(hint) is int and 0 < hint < 10**12 else 0

    def _is_there(self, number: int) -> bool:
        if number in self._entries:
            return True
        try:
            self.entry(number)
        except ObjectMissing:
            return False
        except Damaged:
            return True
        return True

    def _is_good(self, number: int) -> bool:
        try:
            self.entry(number)
        except (ObjectMissing, Damaged):
            return False
        return True


def _generation_of(entry: LogEntry) -> tuple[int, int]:
    return entry.snapshot.run, entry.snapshot.generation


def first_owner(bucket: ReadableBucket) -> str:
    """Return the job whose checkpoints a bucket holds, by one request; empty if there are none.

    All entries are of one job, and the first one stays.

    Raises: Damaged: the entry is not as it was written. Unavailable: the storage does not answer.
    """
    try:
        return LogEntry.from_json(bucket.read(entry_name(1), ENTRY_LIMIT_BYTES), 1).job
    except ObjectMissing:
        return ""

"""Writes a buffer's steps as event files, one at each flush, and no step twice.

If a write got no answer, the file is written again under the same name. If the storage is away, the
writer tries again as long as there are steps; meanwhile the buffer keeps new steps, and drops those
for which it has no room.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from elasticd.checkpoint.storage.bucket import Bucket, ObjectMissing
from elasticd.errors import ElasticdError
from elasticd.telemetry.log import get_logger
from elasticd.tensorboard.event_file import (
    UID_LETTERS,
    EventFile,
    Place,
    newest_before,
    place_of,
    run_number,
)
from elasticd.tensorboard.writer.buffer import Buffer, FilePart, contents, first_step

__all__ = ["FileWriter", "interval_s"]

LEAST_INTERVAL_S, MOST_INTERVAL_S = 10.0, 120.0
INTERVAL_SHARE = 0.02
"""The pause between files, as a share of the run's age: a person who looks at a young run wants its
newest steps."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 30.0
LOOK_S = 0.2
LIST_LIMIT = 1_000_000
CLAIM_BYTES = 4096

log = get_logger()


def interval_s(age_s: float) -> float:
    """Return the seconds that a step may wait for its file when a run is this old. Pure.

    The wait is ten seconds at first, and two minutes after an hour and a half: some 900 files a
    day.
    """
    return min(MOST_INTERVAL_S, max(LEAST_INTERVAL_S, INTERVAL_SHARE * age_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """A file that was made, and may not be written yet."""

    part: FilePart
    count: int
    name: str
    data: bytes
    number: int


class FileWriter:
    """Writes event files. One thread uses it."""

    def __init__(
        self,
        buffer: Buffer,
        open_bucket: Callable[[], Bucket],
        *,
        folder: str,
        uid: str,
        node: str,
        job: str,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`folder` is the job's folder below the URL; `tell` gets sentences for people."""
        self._buffer, self._open_bucket = buffer, open_bucket
        self._folder, self._uid, self._node, self._job = folder, uid[:UID_LETTERS], node, job
        self._tell, self._clock, self._wall_clock = tell, clock, wall_clock
        self._bucket: Bucket | None = None
        self._place: Place | None = None
        self._pending: _Pending | None = None
        self._number = 0
        self._opened_s = clock()
        self._retry_s = 0.0
        self._pause_s = 0.0
        self._is_dropping = self._has_warned = False
        self.files = 0
        """The number of files that were written."""

    def turn(self, *, is_over: bool = False) -> bool:
        """Write one file if one is due; return False if none is due, or if the write failed.

        With `is_over` all files are due, and there is no pause between them.
        """
        self._tell_dropped()
        now_s = self._clock()
        if not self._buffer.is_expected or (now_s < self._retry_s and not is_over):
            return False
        try:
            is_written = self._write(is_over=is_over)
        except Exception as exc:
            self._failed(exc, now_s)
            return False
        if self._pause_s and is_written:
            log.info("events.resumed", url=self._url)
            self._pause_s = 0.0
        return is_written

    def _write(self, *, is_over: bool) -> bool:
        bucket = self._opened()
        if self._place is None and (oldest := self._buffer.oldest()) is not None:
            # This is done at once, though no file is due, to show now whether the folder can be
            # written.
            self._place = self._found_place(bucket, self._names(bucket), oldest)
        if self._pending is None:
            due = self._buffer.due(interval_s(self._clock() - self._opened_s), is_over=is_over)
            if due is None:
                return False
            self._pending = self._made(bucket, *due)
        pending = self._pending
        if pending.data:
            bucket.replace(f"{self._folder}/{pending.name}", pending.data)
            self.files += 1
        self._number = pending.number + 1
        self._buffer.written(pending.part, pending.count)
        self._pending = None
        return True

    def _made(self, bucket: Bucket, part: FilePart, count: int) -> _Pending:
        """Make the next file of a part."""
        start = None
        if not part.is_begun:
            names = self._names(bucket)
            self._place = self._found_place(bucket, names, part)
            newest = newest_before(names, self._place, part.generation)
            start = first_step(part, newest, self._place)
            is_own = newest is not None and (newest.attempt, newest.generation) == (
                self._place.attempt,
                part.generation,
            )
            self._number = newest.number + 1 if newest is not None and is_own else 0
        assert self._place is not None
        data, step = contents(part.records[:count], self._wall_clock(), start)
        file = EventFile(
            run=self._place.run,
            attempt=self._place.attempt,
            generation=part.generation,
            number=self._number,
            uid=self._uid,
            step=max(0, step),
            node=self._node,
        )
        return _Pending(part=part, count=count, name=file.name, data=data, number=self._number)

    def _found_place(self, bucket: Bucket, names: list[str], part: FilePart) -> Place:
        """Return the place where this job writes; a job that begins anew claims its own run."""
        if self._place is not None:
            return self._place
        found = place_of(names, self._uid, is_new=part.step <= 0)
        if found is not None:
            return found
        run = max(map(run_number, names), default=0)
        claim = json.dumps({"job": self._job, "uid": self._uid}).encode()
        while True:
            if run and self._is_claimed(bucket, Place(run=run, attempt=1)):
                return Place(run=run, attempt=1)
            run += 1
            place = Place(run=run, attempt=1)
            if bucket.create(f"{self._folder}/{place.claim}", claim):
                return place

    def _is_claimed(self, bucket: Bucket, place: Place) -> bool:
        """Return whether this job claimed the run, on another node or in an earlier process."""
        try:
            claim = json.loads(bucket.read(f"{self._folder}/{place.claim}", CLAIM_BYTES))
            return bool(claim["uid"] == self._uid)
        except (ObjectMissing, ValueError, KeyError, TypeError):
            return False

    def _names(self, bucket: Bucket) -> list[str]:
        """Return the job's objects, by their names below its folder."""
        head = f"{self._folder}/"
        listed = bucket.list(self._folder, LIST_LIMIT, lambda name: name.startswith(head))
        return [each.name.removeprefix(head) for each in listed]

    def _opened(self) -> Bucket:
        if self._bucket is None:
            self._bucket = self._open_bucket()
        return self._bucket

    @property
    def _url(self) -> str:
        return self._bucket.url if self._bucket is not None else ""

    def _failed(self, exc: Exception, now_s: float) -> None:
        if not self._has_warned:
            self._has_warned = True
            why = str(exc) if isinstance(exc, ElasticdError) else f"{type(exc).__name__}: {exc}"
            self._tell(
                f"event files cannot be written now, and are tried again until they can: {why}"
            )
        self._pause_s = min(LAST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._pause_s))
        self._retry_s = now_s + self._pause_s
        log.info("events.not_written", why=str(exc), pause_seconds=self._pause_s)

    def _tell_dropped(self) -> None:
        if self._buffer.dropped and not self._is_dropping:
            self._is_dropping = True
            self._tell(
                "the storage has been away for so long that there is no room for more steps: those "
                "that come until it is back are left out of the event files."
            )

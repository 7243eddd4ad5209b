"""The steps that a writer has received and not written, and the steps for the next file.

A part has the steps that one rank 0 sent in one generation. Each part begins with the step from
which on all earlier records are void, so TensorBoard shows each step once, however often it was
done.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from elasticd.tensorboard.event import Histogram, event, first_event, restart_event, tag
from elasticd.tensorboard.event_file import EventFile, Place
from elasticd.tensorboard.histogram import LENGTH, histogram_of, not_finite
from elasticd.tensorboard.message import Histograms, Scalars, names_of

__all__ = ["Buffer", "FilePart", "contents", "first_step"]

LIMIT_BYTES = 64 << 20
"""The size limit of all steps that are not written yet, in bytes: 300,000 steps of a number or
two."""
RECORD_BYTES = 128
"""The memory that Python needs for a record beside its bytes."""
FILE_BYTES = 8 << 20
"""A part of this size in bytes is written at any age."""
_BLOCKS_LIMIT = 1024


@dataclass(slots=True, eq=False)
class FilePart:
    """The steps of one connection; `records` are in the order in which they arrived."""

    generation: int
    step: int
    """The number of steps that counted when the part began."""
    opened_s: float
    is_begun: bool = False
    """True if a file of this part was written."""
    is_ended: bool = False
    """True if no more steps arrive for this part."""
    records: list[tuple[int, bytes]] = field(default_factory=list)
    nbytes: int = 0
    first_s: float = 0.0
    """The time at which the oldest unwritten record arrived, in seconds."""


class Buffer:
    """The steps in memory. One thread reads and adds steps, another writes and removes them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = Lock()
        self._parts: deque[FilePart] = deque()
        self._tags: dict[bytes, tuple[tuple[bytes, bytes], ...]] = {}
        self.nbytes = 0
        self.dropped = 0
        """The number of steps for which there was no room."""

    def begin(self, generation: int, step: int) -> FilePart:
        """Open a part, and return it."""
        part = FilePart(generation, step, self._clock())
        with self._lock:
            self._parts.append(part)
        return part

    def take(self, part: FilePart, message: Scalars | Histograms) -> bool:
        """Keep a step; return False if there is no room, so that the step is lost.

        Raises: ValueError: the message is not elasticd's.
        """
        record = self._record(message)
        with self._lock:
            size = len(record) + RECORD_BYTES
            if self.nbytes + size > LIMIT_BYTES:
                self.dropped += 1
                return False
            if not part.records:
                part.first_s = self._clock()
            part.records.append((message.step, record))
            part.nbytes += size
            self.nbytes += size
        return True

    @property
    def is_expected(self) -> bool:
        """Return whether a part is open, or has steps to write."""
        with self._lock:
            return any(part.records or not part.is_ended for part in self._parts)

    def oldest(self) -> FilePart | None:
        """Return the part that is written next, even if it is not due."""
        with self._lock:
            return self._parts[0] if self._parts else None

    def end(self, part: FilePart) -> None:
        """Mark a part as complete."""
        part.is_ended = True

    def due(self, interval_s: float, *, is_over: bool = False) -> tuple[FilePart, int] | None:
        """Return the oldest part that is due, and the number of its records to write.

        Parts that ended without a record are dropped. With `is_over` all parts are due.
        """
        with self._lock:
            while self._parts and self._parts[0].is_ended and not self._parts[0].records:
                self._parts.popleft()
            if not self._parts or not self._parts[0].records:
                return None
            part = self._parts[0]
            is_old = self._clock() - part.first_s >= interval_s
            if part.is_ended or is_old or is_over or part.nbytes >= FILE_BYTES:
                return part, _count(part.records)
        return None

    def written(self, part: FilePart, count: int) -> None:
        """Remove this number of records from the oldest part, since they are in a file."""
        with self._lock:
            size = sum(len(record) + RECORD_BYTES for _, record in part.records[:count])
            del part.records[:count]
            part.nbytes -= size
            self.nbytes -= size
            part.is_begun = True
            part.first_s = self._clock()

    @property
    def steps(self) -> int:
        """Return the number of steps that are not written."""
        with self._lock:
            return sum(len(part.records) for part in self._parts)

    def _record(self, message: Scalars | Histograms) -> bytes:
        tags = self._tags.get(message.names)
        if tags is None:
            if len(self._tags) >= _BLOCKS_LIMIT:
                self._tags.clear()
            names = names_of(message.names)
            tags = tuple((tag(name), tag(f"{name}/not_finite")) for name in names)
            self._tags[message.names] = tags
        values: list[tuple[bytes, float | Histogram]] = []
        if isinstance(message, Scalars):
            values += ((name, value) for (name, _), value in zip(tags, message.values, strict=True))
        else:
            if len(message.values) != len(tags) * LENGTH:
                raise ValueError("a histogram of another length")
            for index, (name, odd) in enumerate(tags):
                numbers = message.values[index * LENGTH : (index + 1) * LENGTH]
                if (found := histogram_of(numbers)) is not None:
                    values.append((name, found))
                if (count := not_finite(numbers)) > 0:
                    values.append((odd, count))
        return event(message.at_unix_s, message.step, values)


def first_step(part: FilePart, newest: EventFile | None, place: Place) -> int:
    """Return the step from which on a part counts; earlier records of it are void. Pure.

    Records of an earlier generation stay if their steps counted when this generation began. The
    kept steps of this rank replace records that the earlier generation had no time to write.
    """
    if newest is None:
        return max(0, min(part.step + 1, min(step for step, _ in part.records)))
    is_own = (newest.attempt, newest.generation) == (place.attempt, part.generation)
    return newest.step + 1 if is_own or newest.step < part.step else part.step + 1


def contents(
    records: list[tuple[int, bytes]], at_unix_s: float, start: int | None
) -> tuple[bytes, int]:
    """Return the bytes of a file and its last step; -1 if there is no step in the file. Pure.

    From step `start` on, steps in earlier files are void; before it they are complete there.
    """
    chosen = [each for each in records if start is None or each[0] >= start]
    if not chosen:
        return b"", -1
    head = [first_event(at_unix_s)]
    if start is not None:
        head.append(restart_event(at_unix_s, start))
    return b"".join((*head, *(record for _, record in chosen))), max(step for step, _ in chosen)


def _count(records: list[tuple[int, bytes]]) -> int:
    """Return the number of records for one file."""
    size = 0
    for index, (_, record) in enumerate(records):
        size += len(record) + RECORD_BYTES
        if size >= FILE_BYTES:
            return index + 1
    return len(records)

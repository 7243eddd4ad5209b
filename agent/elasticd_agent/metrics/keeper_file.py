"""The metrics of a job's keeper on this node, and of its event writer, from the files they write.

The file is in the job's run folder, which may be on a file system that hangs. So one thread of its
own reads them all, for which a scrape waits a moment: the rest of the metrics come all the same. A
file at which it hangs is left to that thread until it is read, and another thread reads the others.
It begins while the scrape waits for the agent: on a
machine that is busy each wait for another thread takes milliseconds.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread

from elasticd.records.ids import JobName
from elasticd.telemetry.metrics.catalog import CATALOG
from elasticd.telemetry.metrics.exposition import Sample, parsed
from elasticd.telemetry.metrics.metric import Exporter

__all__ = ["KeeperFiles", "KeeperReading", "keeper_samples"]

READ_TIMEOUT_S = 0.5
SIZE_LIMIT = 1 << 16
_KEEPERS = {m.name: m for m in CATALOG if m.exporter in (Exporter.KEEPER, Exporter.WRITER)}


class KeeperReading:
    """A reading of these files; what was found counts once the reading is done."""

    def __init__(self, files: Sequence[tuple[JobName, Path]]) -> None:
        self.files = tuple(files)
        self.found: tuple[Sample, ...] = ()
        self.at: Path | None = None
        """What is being read."""
        self.until_s = time.monotonic() + READ_TIMEOUT_S
        self.is_done = Event()

    def wait(self) -> bool:
        """Wait until the reading is done; False if it hangs."""
        return self.is_done.wait(max(0.0, self.until_s - time.monotonic()))


class KeeperFiles:
    """Reads the files of all jobs that have a keeper here; for any thread."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[KeeperReading | None] | None = None
        """The readings that the reading thread is to do; None: there is no such thread."""
        self._last: KeeperReading | None = None
        self._lock = Lock()
        self._known: dict[Path, tuple[str, tuple[Sample, ...]]] = {}
        self._hung: dict[Path, KeeperReading] = {}
        """A file that was not read in time, and by what: its thread is still at it."""

    def begin(self) -> KeeperReading | None:
        """Begin to read the files of the last scrape, because the caller will wait for something
        else.
        """
        with self._lock:
            last = self._last
            return self._read(last.files) if last is not None and last.is_done.is_set() else None

    def samples(
        self, files: Sequence[tuple[JobName, Path]], begun: KeeperReading | None = None
    ) -> tuple[Sample, ...]:
        """Return the samples of the files, but for files that hang."""
        with self._lock:
            before = self._last
        if before is not None and not before.wait() and not self._give_up(before):
            return ()
        for _ in files:
            wanted = self._without_hung(files)
            if not wanted:
                return ()
            if begun is None or begun.files != wanted:
                with self._lock:
                    begun = self._read(wanted)
            if begun.wait():
                return begun.found
            if not self._give_up(begun):
                return ()
        return ()

    def _without_hung(
        self, files: Sequence[tuple[JobName, Path]]
    ) -> tuple[tuple[JobName, Path], ...]:
        with self._lock:
            self._hung = {p: each for p, each in self._hung.items() if not each.is_done.is_set()}
            return tuple(each for each in files if each[1] not in self._hung)

    def _give_up(self, reading: KeeperReading) -> bool:
        """Leave the file at which it hangs to its thread; another one reads the others.

        False: the thread has not even begun, and it is the machine that has no time.
        """
        with self._lock:
            if reading.is_done.is_set() or reading is not self._last:
                return True
            if reading.at is None:
                return False
            self._hung[reading.at] = reading
            self._last, asked, self._asked = None, self._asked, None
            if asked is not None:
                asked.put(None)
            return True

    def _read(self, files: Sequence[tuple[JobName, Path]]) -> KeeperReading:
        reading = self._last = KeeperReading(files)
        if self._asked is None:
            self._asked = SimpleQueue()
            Thread(
                target=self._run, args=(self._asked,), name="keeper-metrics", daemon=True
            ).start()
        self._asked.put(reading)
        return reading

    def _run(self, asked: "SimpleQueue[KeeperReading | None]") -> None:
        while (reading := asked.get()) is not None:
            found: list[Sample] = []
            lines: dict[Path, tuple[str, tuple[Sample, ...]]] = {}
            for job, path in reading.files:
                reading.at = path
                text = _text(path)
                known = self._known.get(path)
                if known is None or known[0] != text:
                    known = (text, tuple(keeper_samples(job, text)))
                lines[path] = known
                found += known[1]
                if path in self._hung:
                    break  # Another thread has read the others since.
            else:
                self._known = lines
                reading.found = tuple(found)
            reading.is_done.set()


def keeper_samples(job: JobName, text: str) -> Iterator[Sample]:
    """Yield what a keeper's file says; only metrics of our list, and under the job's own name."""
    for name, _, value in parsed(text):
        if (metric := _KEEPERS.get(name)) is not None:
            yield Sample(metric, (job,), value)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(SIZE_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""  # Of a keeper that is not up yet.

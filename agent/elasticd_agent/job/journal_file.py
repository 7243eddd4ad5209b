"""The file that holds a job's events and effects, so that they can be replayed (`--event-log`)."""

import os
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from elasticd.records.ids import Incarnation, JobName
from elasticd.telemetry.log import get_logger

__all__ = ["JournalFile"]

LIMIT = 10_000
"""How many lines may wait for the disk: some megabytes, or minutes of a job that changes all the
time."""

_LAST_S = 1.0
"""How long the end of a job waits for its last lines."""

log = get_logger()


class JournalFile:
    """The file of one incarnation in one job; without a folder nothing is written.

    A debugging aid must not end what it watches. A thread of its own writes: a disk that hangs
    holds nobody up, and a disk that fails ends only the file.
    """

    def __init__(self, folder: Path | None, job: JobName, incarnation: Incarnation) -> None:
        self._job = job
        self.is_open = folder is not None
        """Lines are still taken."""
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        if folder is None:
            return
        path = folder / f"{job}.{incarnation}.jsonl"
        self._thread = Thread(target=self._run, args=(path,), name="journal", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as exc:  # No more threads.
            self._fail(str(exc))

    def write(self, line: Callable[[], str]) -> None:
        """Hand over a line for the disk. It is made only if there is a file."""
        if not self.is_open:
            return
        if self._lines.qsize() >= LIMIT:
            self._fail("The disk takes lines more slowly than they come.")
            self._lines.put(None)
            return
        self._lines.put(line())

    def close(self) -> None:
        """Close the file; a disk that hangs may leave it incomplete."""
        if self.is_open:
            self.is_open = False
            self._lines.put(None)
            self._thread.join(_LAST_S)

    def _run(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Who reads it reads what jobs were given in their environment.
            with open(path, "w", buffering=1, opener=_private) as file:
                while (line := self._lines.get()) is not None:
                    file.write(line + "\n")
        except OSError as exc:
            self._fail(str(exc))

    def _fail(self, why: str) -> None:
        """Give up the file, since with a gap it would not replay."""
        self.is_open = False
        log.error("journal.not_written", job=self._job, why=why)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

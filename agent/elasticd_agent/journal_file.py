"""The file in which a job's events and effects stand, to replay them (`--event-log`)."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from elasticd.records.ids import Incarnation, JobName
from elasticd.telemetry.log import get_logger

__all__ = ["JournalFile"]

log = get_logger()


class JournalFile:
    """Of one incarnation in one job; without a folder nothing is written.

    An aid for debugging must not end what it watches: a disk that cannot ends the file alone.
    """

    def __init__(self, folder: Path | None, job: JobName, incarnation: Incarnation) -> None:
        self._job = job
        self._file: TextIO | None = None
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / f"{job}.{incarnation}.jsonl").open("w", buffering=1)
        except OSError as exc:
            log.error("journal.not_written", job=job, why=str(exc))

    def write(self, line: Callable[[], str]) -> None:
        """Write a line, which is made only if there is a file."""
        if self._file is None:
            return
        try:
            self._file.write(line() + "\n")
        except OSError as exc:
            # With a gap it would not replay.
            log.error("journal.not_written", job=self._job, why=str(exc))
            self.close()

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

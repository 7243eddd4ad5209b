"""A writer's metrics, in a file that its agent serves, like the file of a keeper."""

import os
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

from elasticd.telemetry.metrics.catalog import by_name
from elasticd.telemetry.metrics.exposition import Sample, exposition
from elasticd.tensorboard.writer.buffer import Buffer
from elasticd.tensorboard.writer.file_writer import FileWriter

__all__ = ["MetricsFile"]

WRITE_S = 5.0


class MetricsFile:
    """The metrics file. A thread of its own writes it every few seconds, since the disk may hang.

    With an empty path no file is written.
    """

    def __init__(self, job_name: str, path: str, buffer: Buffer, writer: FileWriter) -> None:
        self._job_name, self._path = job_name, path
        self._buffer, self._writer = buffer, writer

    def start(self) -> None:
        if self._path:
            Thread(target=self._keep_writing, name="metrics", daemon=True).start()

    def write(self) -> None:
        """Write the file now, completely or not at all; a failing disk does no harm."""
        values = {
            "files_total": self._writer.files,
            "dropped_steps_total": self._buffer.dropped,
            "unwritten_steps": self._buffer.steps,
        }
        text = exposition(
            Sample(by_name(f"elasticd_tensorboard_{name}"), (self._job_name,), float(value))
            for name, value in values.items()
        )
        beside = f"{self._path}.new"
        with suppress(OSError):
            Path(beside).write_bytes(text)
            os.replace(beside, self._path)

    def _keep_writing(self) -> None:
        while True:
            self.write()
            time.sleep(WRITE_S)

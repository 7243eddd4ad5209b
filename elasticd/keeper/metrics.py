"""A keeper's metrics, in a file that its agent serves.

The textfile collector of Prometheus' node exporter can read the file too.

The metrics stand in a file because keepers come and go with jobs, and nobody could know their
ports. The file is written whole or not at all, every few seconds. The age of the newest checkpoint
is the present time minus `elasticd_checkpoint_durable_timestamp_seconds`. Names and help texts
stand in the one list of `elasticd/telemetry/metrics/catalog.py`.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread

from elasticd.telemetry.log import get_logger
from elasticd.telemetry.metrics.catalog import CATALOG
from elasticd.telemetry.metrics.exposition import Sample, exposition
from elasticd.telemetry.metrics.metric import Exporter

__all__ = ["Metrics"]

WRITE_S = 5.0
_OURS = {m.name: m for m in CATALOG if m.exporter is Exporter.KEEPER}
_PREFIX = "elasticd_checkpoint_"

log = get_logger()


class Metrics:
    """The metrics of one keeper. Several threads may use it. Without a path nothing is written."""

    def __init__(self, job_name: str, path: str) -> None:
        self._job_name, self._path = job_name, path
        self._lock, self._write_lock = Lock(), Lock()
        self._values = dict.fromkeys(_OURS, 0.0)
        self._set("mirrored_step", -1)
        self._set("keeper_start_timestamp_seconds", time.time())
        self.has_mirrored = False
        self._written: tuple[int, int] | None = None
        """Which file is ours."""
        if path:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Thread(target=self._keep_writing, name="metrics", daemon=True).start()

    def durable(self, step: int) -> None:
        """Take note that a checkpoint is durable, whichever keeper committed it."""
        self._set("durable_timestamp_seconds", time.time())
        self._set("durable_step", step)

    def saved(self, nbytes: int, seconds: float) -> None:
        """Count a checkpoint that this keeper committed."""
        self._add("saved_total")
        self._add("written_bytes_total", nbytes)
        self._set("save_seconds", seconds)

    def failed(self) -> None:
        """Count a snapshot that was given up."""
        self._add("failed_total")

    def held_up(self, is_held_up: bool) -> None:
        """Take note whether snapshots in memory wait for an upload."""
        self._set("snapshots_held_up", float(is_held_up))

    def mirrored(self, step: int, nbytes: int) -> None:
        """Count a share that the next node holds too."""
        self.has_mirrored = True
        self._set("mirrored_step", step)
        self._add("mirrored_bytes_total", nbytes)

    def not_mirrored(self) -> None:
        """Count a share that could not be sent now."""
        self._add("mirror_failed_total")

    def write(self) -> None:
        """Write the file now; a failing disk does no harm."""
        if not self._path:
            return
        with self._lock:
            values = dict(self._values)
        text = exposition(
            Sample(_OURS[name], (self._job_name,), value) for name, value in values.items()
        )
        # Beside it, and not called *.prom: the collector must not take it for another file.
        beside = f"{self._path}.new"
        with self._write_lock:
            try:
                if self._is_replaced():
                    self._path = ""
                    return
                Path(beside).write_bytes(text)
                written = _identity(beside)
                os.replace(beside, self._path)
                self._written = written
            except OSError as exc:
                log.warning("metrics.not_written", why=str(exc))

    def _is_replaced(self) -> bool:
        """Return whether a later keeper of the job writes the file; this one only ends its saves
        then.

        Counters that change between two processes would grow with each change.
        """
        with suppress(FileNotFoundError):
            return self._written is not None and _identity(self._path) != self._written
        return False

    def _set(self, name: str, value: float) -> None:
        with self._lock:
            self._values[_PREFIX + name] = value

    def _add(self, name: str, value: float = 1.0) -> None:
        with self._lock:
            self._values[_PREFIX + name] += value

    def _keep_writing(self) -> None:
        while True:
            self.write()
            time.sleep(WRITE_S)


def _identity(path: str) -> tuple[int, int]:
    """Return the file's inode and time: a new file may get the inode of one that is gone."""
    stat = os.stat(path)
    return stat.st_ino, stat.st_mtime_ns

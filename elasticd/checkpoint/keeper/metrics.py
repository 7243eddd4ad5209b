"""A keeper's metrics, in a file for the textfile collector of Prometheus' node exporter.

A file, because keepers come and go with jobs, and nobody could know their ports. Written whole or
not at all, every few seconds; the age of the newest checkpoint is the present time minus
`elasticd_checkpoint_durable_timestamp_seconds`.
"""

import time
from pathlib import Path
from threading import Thread
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    write_to_textfile,
)

from elasticd.telemetry.log import get_logger

__all__ = ["Metrics"]

WRITE_S = 5.0

log = get_logger()


class Metrics:
    """Of one keeper; safe to use from several threads. Without a path nothing is written."""

    def __init__(self, job: str, path: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # Half of the file would be when each counter began.
        self._registry = CollectorRegistry()
        self._path = path
        labels: Any = {"labelnames": ["job"], "registry": self._registry}
        self._durable_s = Gauge(
            "elasticd_checkpoint_durable_timestamp_seconds",
            "When the newest checkpoint that this keeper knows became durable (Unix time).",
            **labels,
        ).labels(job)
        self._step = Gauge("elasticd_checkpoint_durable_step", "Its step.", **labels).labels(job)
        self._begun_s = Gauge(
            "elasticd_checkpoint_keeper_start_timestamp_seconds",
            "When this keeper began (Unix time): the age where there is no checkpoint yet.",
            **labels,
        ).labels(job)
        self._saved = Counter(
            "elasticd_checkpoint_saved_total", "Checkpoints committed by this keeper.", **labels
        ).labels(job)
        self._failed = Counter(
            "elasticd_checkpoint_failed_total", "Snapshots that were given up.", **labels
        ).labels(job)
        self._written = Counter(
            "elasticd_checkpoint_written_bytes_total",
            "Bytes of the checkpoints committed by this keeper.",
            **labels,
        ).labels(job)
        self._save_s = Gauge(
            "elasticd_checkpoint_save_seconds",
            "From whole in memory to durable, of the newest.",
            **labels,
        ).labels(job)
        self._mirrored_step = Gauge(
            "elasticd_checkpoint_mirrored_step",
            "Of the newest share of this node that the next node holds too; -1: none.",
            **labels,
        ).labels(job)
        self._mirrored = Counter(
            "elasticd_checkpoint_mirrored_bytes_total",
            "Bytes of shares that were sent to the next node.",
            **labels,
        ).labels(job)
        self._not_mirrored = Counter(
            "elasticd_checkpoint_mirror_failed_total",
            "Tries to send a share to the next node that failed.",
            **labels,
        ).labels(job)
        self.has_mirrored = False
        self._mirrored_step.set(-1)
        self._begun_s.set_to_current_time()
        if path:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Thread(target=self._keep_writing, name="metrics", daemon=True).start()

    def durable(self, step: int) -> None:
        """A checkpoint counts, whoever committed it."""
        self._durable_s.set_to_current_time()
        self._step.set(step)

    def saved(self, nbytes: int, seconds: float) -> None:
        """This keeper committed one."""
        self._saved.inc()
        self._written.inc(nbytes)
        self._save_s.set(seconds)

    def failed(self) -> None:
        """A snapshot was given up."""
        self._failed.inc()

    def mirrored(self, step: int, nbytes: int) -> None:
        """The next node holds a share too."""
        self.has_mirrored = True
        self._mirrored_step.set(step)
        self._mirrored.inc(nbytes)

    def not_mirrored(self) -> None:
        """It could not be sent now."""
        self._not_mirrored.inc()

    def write(self) -> None:
        """Write the file now; a disk that cannot is no harm."""
        if not self._path:
            return
        try:
            write_to_textfile(self._path, self._registry)
        except OSError as exc:
            log.warning("metrics.not_written", why=str(exc))

    def _keep_writing(self) -> None:
        while True:
            self.write()
            time.sleep(WRITE_S)

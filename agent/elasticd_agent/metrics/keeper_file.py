"""The metrics of a job's keeper on this node, from the file that it writes.

The file is in the job's run folder, which may be on a file system that hangs. So a thread of its
own reads it, for which a scrape waits a moment: the rest of the metrics come all the same, and
while one reader hangs no other one is started.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread

from elasticd.records.ids import JobName
from elasticd.telemetry.metrics.catalog import CATALOG
from elasticd.telemetry.metrics.exposition import Sample, parsed
from elasticd.telemetry.metrics.metric import Exporter

__all__ = ["KeeperFiles", "keeper_samples"]

READ_TIMEOUT_S = 0.5
SIZE_LIMIT = 1 << 16
_KEEPERS = {m.name: m for m in CATALOG if m.exporter is Exporter.KEEPER}


class KeeperFiles:
    """Reads the files of all jobs that have a keeper here; one thread at a time may ask."""

    def __init__(self) -> None:
        self._reader: Thread | None = None

    def samples(self, files: Sequence[tuple[JobName, Path]]) -> tuple[Sample, ...]:
        """Return what stands in them; nothing where reading hangs."""
        if not files or (self._reader is not None and self._reader.is_alive()):
            return ()
        found: list[Sample] = []

        def read() -> None:
            for job, path in files:
                found.extend(keeper_samples(job, _text(path)))

        self._reader = Thread(target=read, name="keeper-metrics", daemon=True)
        self._reader.start()
        self._reader.join(READ_TIMEOUT_S)
        return () if self._reader.is_alive() else tuple(found)


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

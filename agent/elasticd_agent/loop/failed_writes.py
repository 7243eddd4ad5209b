"""Writes that etcd refuses: logged once, reported on request, and tried ever more slowly.

The lease of a node lives on where etcd is full, where a permission was taken away or where a
request is too large; so no node excludes this one, and it would silently repeat its write ten times
a second. The error of etcd is logged when it is new, and stands in `/healthz`, which `elasticd
status` and `elasticd run` ask for. Not every failure belongs here: if etcd is away, the lease shows
it, and the call itself waits.
"""

import threading
from dataclasses import dataclass, field

from elasticd.errors import ElasticdError, Fenced, Unavailable
from elasticd.records.ids import JobName
from elasticd.telemetry.log import get_logger

__all__ = ["FailedWrites"]

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0
TEXTS_KEPT = 16
"""The same refusal may come from each member of etcd in turn, in other words."""

log = get_logger()


@dataclass(slots=True)
class _Failing:
    count: int = 0
    texts: list[str] = field(default_factory=list)
    """The messages that were logged, the newest at the end."""


class FailedWrites:
    """Failed writes of all jobs of one agent; any thread may ask for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failing: dict[tuple[JobName, str], _Failing] = {}

    def failed(self, job: JobName, what: str, error: ElasticdError) -> float:
        """Note that a write failed; return how long to wait before it is tried again.

        The node's own writes are those of a job without a name.
        """
        if isinstance(error, Fenced | Unavailable):
            return 0.0
        with self._lock:
            failing = self._failing.setdefault((job, what), _Failing())
            failing.count += 1
            text = str(error)
            is_new = text not in failing.texts
            others = [known for known in failing.texts if known != text]
            failing.texts = [*others, text][-TEXTS_KEPT:]
            if is_new:
                log.error("etcd.write_failed", job=job, what=what, why=text)
            return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failing.count - 1, 10)))

    def succeeded(self, job: JobName, what: str) -> None:
        with self._lock:
            failing = self._failing.pop((job, what), None)
        if failing is not None:
            log.info("etcd.write_succeeded", job=job, what=what, failures=failing.count)

    def forget(self, job: JobName) -> None:
        """Forget the failed writes of a job that this agent serves no more."""
        with self._lock:
            self._failing = {key: f for key, f in self._failing.items() if key[0] != job}

    @property
    def count(self) -> int:
        """Return how many records etcd refuses to take at the moment."""
        with self._lock:
            return len(self._failing)

    @property
    def sentence(self) -> str:
        """Say what etcd refuses; empty if all is well."""
        with self._lock:
            return next((failing.texts[-1] for failing in self._failing.values()), "")

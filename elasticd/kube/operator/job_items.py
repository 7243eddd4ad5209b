"""All keys of all jobs in memory, by job, kept up to date by a watch.

If one job of many changes, the records of the other jobs need not be read again.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from elasticd.errors import NotSupported
from elasticd.kube.resource.spec import digests
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName
from elasticd.records.job import JobSpec
from elasticd.records.keys import Keys
from elasticd.store.api import KeyRange, KeysChanged, KeyValue, Store, WatchSnapshot

__all__ = ["JobItems"]

UNREAD = frozenset({"decisions", "curve", "autoscaler"})
"""The keys below a job that only the autoscaler needs, and the operator does not read."""
QUIET = frozenset({"progress", "time-spent", "late"})
"""The keys that running nodes write often: a status shows them, but the operator need not hurry for
them."""

INCIDENTS = "incidents"
INCIDENTS_KEPT = 16
"""The number of records that are kept of one change of world, besides those that name a lost or
failed node. All nodes report the same change, and a job of 250 nodes has fifty thousand such
records."""
SPEC = "spec"
SHORT_SPEC_BYTES = 4096
"""A spec of so few bytes is kept as it is."""
_NAMES_NOBODY = (b'"culprit":null', b'"lost":[]')

Items = Mapping[str, KeyValue]


class JobItems:
    """The keys of all jobs. Any thread may read them."""

    def __init__(self, store: Store, keys: Keys, wake: Callable[[], None]) -> None:
        self._prefix, self._wake = keys.jobs, wake
        self._lock = threading.Lock()
        self._jobs: dict[JobName, Items] | None = None
        self._told: dict[str, set[str]] = {}
        """The kept records of each change of world that name no node, by the prefix of their
        keys."""
        self._store, self._range = store, KeyRange(key=keys.jobs, is_prefix=True)
        self._watch = store.watch(self._range, self._take)

    def read(self) -> Mapping[JobName, Items] | None:
        """Return the keys of each job; None before the first snapshot.

        The mapping of a job that has not changed is the same object as before.
        """
        with self._lock:
            return dict(self._jobs) if self._jobs is not None else None

    def renew(self) -> None:
        """Watch anew, as `WatchCache.renew` does."""
        self._watch.close()
        self._watch = self._store.watch(self._range, self._take)

    def close(self) -> None:
        self._watch.close()

    # --- private ------------------------------------------------------------------------------

    def _take(self, seen: WatchSnapshot | KeysChanged) -> None:
        """Apply a snapshot or a change; the store's thread calls this."""
        is_loud = isinstance(seen, WatchSnapshot)
        with self._lock:
            fresh: dict[JobName, dict[str, KeyValue]] = {}
            jobs = {} if isinstance(seen, WatchSnapshot) else dict(self._jobs or {})
            if isinstance(seen, WatchSnapshot):
                self._told.clear()
            changes: list[tuple[str, KeyValue | None]] = (
                [(item.key, item) for item in seen.items]
                if isinstance(seen, WatchSnapshot)
                else [(change.key, change.item) for change in seen.changes]
            )
            for key, item in changes:
                job, _, rest = key.removeprefix(self._prefix).partition("/")
                part = rest.partition("/")[0]
                if part in UNREAD:
                    continue
                is_loud = is_loud or part not in QUIET
                name = JobName(job)
                items = fresh.setdefault(name, dict(jobs.get(name, {})))
                items.pop(key, None)
                is_kept = part != INCIDENTS or self._keeps(key, item)
                if item is not None and is_kept:
                    items[key] = _without_files(item) if rest == SPEC else item
            for name, items in fresh.items():
                jobs.pop(name, None)
                if items:
                    jobs[name] = items
            self._jobs = jobs
        if is_loud:
            self._wake()

    def _keeps(self, key: str, item: KeyValue | None) -> bool:
        """Return whether a record of a change of world must be kept."""
        change = key.rpartition("/")[0]
        told = self._told.setdefault(change, set())
        told.discard(key)
        names_nobody = item is not None and all(part in item.value for part in _NAMES_NOBODY)
        is_kept = not names_nobody or len(told) < INCIDENTS_KEPT
        if names_nobody and is_kept:
            told.add(key)
        if not told:
            del self._told[change]
        return is_kept


def _without_files(item: KeyValue) -> KeyValue:
    """Return a job's spec with digests in place of its long files, which only its nodes need."""
    if len(item.value) <= SHORT_SPEC_BYTES:
        return item
    with suppress(NotSupported):  # Whoever reads the record says so.
        spec = decode(JobSpec, item.value)
        short = replace(spec, files=digests(spec.files))
        return replace(item, value=encode(short)) if short != spec else item
    return item

"""All keys of all jobs in memory, by job, kept up to date by a watch.

When one job of many changes, the records of the others need not be put together again.
"""

import threading
from collections.abc import Callable, Mapping

from elasticd.records.ids import JobName
from elasticd.records.keys import Keys
from elasticd.store.api import KeyRange, KeysChanged, KeyValue, Store, WatchSnapshot

__all__ = ["JobItems"]

UNREAD = frozenset({"decisions", "curve", "autoscaler"})
"""Keys below a job that only the autoscaler needs, and nobody here reads."""
QUIET = frozenset({"progress", "time-spent", "late"})
"""Keys that running nodes write again and again: a status shows them, but they are no reason to
hurry."""

INCIDENTS = "incidents"
INCIDENTS_KEPT = 16
"""Of so many nodes the records of one change of world are kept, besides those that name who was
lost or failed: all tell the same of it, and a job of 250 nodes has fifty thousand of them."""
_NAMES_NOBODY = (b'"culprit":null', b'"lost":[]')

Items = Mapping[str, KeyValue]


class JobItems:
    """Any thread may read it."""

    def __init__(self, store: Store, keys: Keys, wake: Callable[[], None]) -> None:
        self._prefix, self._wake = keys.jobs, wake
        self._lock = threading.Lock()
        self._jobs: dict[JobName, Items] | None = None
        self._told: dict[str, set[str]] = {}
        """The kept records of each change of world that name nobody, by what their keys begin
        with."""
        self._store, self._range = store, KeyRange(key=keys.jobs, is_prefix=True)
        self._watch = store.watch(self._range, self._take)

    def read(self) -> Mapping[JobName, Items] | None:
        """Return the keys of each job; None before the first snapshot.

        The mapping of a job that has not changed is the same object as before.
        """
        with self._lock:
            return dict(self._jobs) if self._jobs is not None else None

    def renew(self) -> None:
        """Watch anew, as `RangeMirror.renew` does."""
        self._watch.close()
        self._watch = self._store.watch(self._range, self._take)

    def close(self) -> None:
        self._watch.close()

    # --- private ------------------------------------------------------------------------------

    def _take(self, seen: WatchSnapshot | KeysChanged) -> None:
        """Take in a change; the store's thread calls this."""
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
                    items[key] = item
            for name, items in fresh.items():
                jobs.pop(name, None)
                if items:
                    jobs[name] = items
            self._jobs = jobs
        if is_loud:
            self._wake()

    def _keeps(self, key: str, item: KeyValue | None) -> bool:
        """Return whether a record of a change of world is one of those that are kept."""
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

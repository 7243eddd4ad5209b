"""Feeder: which jobs there are for this node, with their specs."""

from collections.abc import Callable
from functools import partial

from elasticd.errors import ElasticdError, NotSupported, Unavailable
from elasticd.records.codec import decode
from elasticd.records.ids import JobName
from elasticd.records.job import Active, JobSpec
from elasticd.records.keys import Keys
from elasticd.store.api import Changed, KeyRange, KeyValue, Snapshot, Store
from elasticd.telemetry.log import get_logger
from elasticd_agent.courier import Courier, later
from elasticd_agent.inbox import Item

__all__ = ["JobList"]

RETRY_S = 1.0

log = get_logger()


class JobList:
    """Watches the small `active/` keys; reads a spec once, when its job appears.

    `appeared` and `vanished` are called on the owner's thread; `refused` when the one job that
    this agent is for cannot be read.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        courier: Courier,
        post: Callable[[Item], None],
        *,
        only: JobName | None,
        appeared: Callable[[JobSpec, int], None],
        vanished: Callable[[JobName], None],
        refused: Callable[[str], None],
    ) -> None:
        self._store, self._keys, self._courier, self._post = store, keys, courier, post
        self._only, self._appeared, self._vanished = only, appeared, vanished
        self._refused = refused
        self._known: set[JobName] = set()
        self._watch = store.watch(KeyRange(key=keys.active, is_prefix=True), self._seen)

    def close(self) -> None:
        self._watch.close()

    def _seen(self, seen: Snapshot | Changed) -> None:
        """Called by the store's thread."""
        if isinstance(seen, Snapshot):
            present = {self._job(item.key): item for item in seen.items}
            for job in self._known - set(present):
                self._gone(job)
            for item in present.values():
                self._take(item)
            return
        for change in seen.changes:
            if change.item is None:
                self._gone(self._job(change.key))
            else:
                self._take(change.item)

    def _take(self, item: KeyValue) -> None:
        job = self._job(item.key)
        if self._only not in (None, job) or job in self._known:
            return
        try:
            is_ready = decode(Active, item.value).is_ready
        except NotSupported as exc:
            self._refuse(job, exc)
            return
        if is_ready:
            self._known.add(job)
            self._ask(job, item.create_revision)

    def _ask(self, job: JobName, order: int) -> None:
        if job in self._known:
            self._courier.send(
                lambda: self._read(job),
                partial(self._read_done, job, order),
                partial(self._read_failed, job, order),
            )

    def _gone(self, job: JobName) -> None:
        self._known.discard(job)
        if self._only in (None, job):
            self._post(partial(self._vanished, job))

    def _read(self, job: JobName) -> JobSpec | None:
        item = self._store.get(self._keys.spec(job))
        return None if item is None else decode(JobSpec, item.value)

    def _read_done(self, job: JobName, order: int, spec: JobSpec | None) -> None:
        if spec is None:
            self._known.discard(job)
        elif not spec.is_local or self._only == job:
            self._post(partial(self._appeared, spec, order))

    def _read_failed(self, job: JobName, order: int, exc: ElasticdError) -> None:
        if isinstance(exc, Unavailable):
            later(RETRY_S, partial(self._ask, job, order))
            return
        self._known.discard(job)
        self._refuse(job, exc)

    def _refuse(self, job: JobName, exc: ElasticdError) -> None:
        log.error("job.refused", job=job, why=str(exc))
        if self._only == job:
            self._post(partial(self._refused, str(exc)))

    def _job(self, key: str) -> JobName:
        return JobName(key.removeprefix(self._keys.active))

"""Feeder: which of the jobs that compete for this node lack nodes.

A job's status and wishes are small and change seldom; they are watched only while there is a choice
to make. The answer comes from the records, and not from this node's own part in the job. So it is
the same before the node joins, while it is a spare, and after it has left.
"""

from collections.abc import Callable, Mapping
from functools import partial

from elasticd.errors import NotSupported
from elasticd.records.codec import decode
from elasticd.records.ids import Generation, JobName
from elasticd.records.job import JobSpec, JobStatus, Want, is_stuck, lacks_nodes
from elasticd.records.keys import Keys
from elasticd.store.api import KeyRange, KeysChanged, KeyValue, Store, WatchSnapshot
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.resync_watch import ResyncWatch

__all__ = ["Demands"]

log = get_logger()


class Demands:
    """All methods run on the owner's thread; `post` brings there what the watches see.

    `changed` is called whenever an answer may be another one.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        post: Callable[[Callable[[], None]], None],
        changed: Callable[[], None],
    ) -> None:
        self._store, self._keys, self._post, self._changed = store, keys, post, changed
        self._watched: dict[JobName, _Demand] = {}

    def watch(self, specs: Mapping[JobName, JobSpec]) -> None:
        """Watch these jobs from now on, and no others."""
        for job in [j for j, d in self._watched.items() if specs.get(j) != d.spec]:
            self._watched.pop(job).close()
        for job, spec in specs.items():
            if job not in self._watched:
                self._watched[job] = _Demand(
                    self._store, self._keys, spec, self._post, self._changed
                )

    def lacks_nodes(self, job: JobName) -> bool | None:
        """Say whether the job would use another node at once; None if it is not known yet."""
        demand = self._watched.get(job)
        return demand.lacks_nodes if demand is not None else None

    def is_stuck(self, job: JobName) -> bool:
        """Say whether the job had begun and has too few nodes now; False if it is not known."""
        demand = self._watched.get(job)
        return demand is not None and demand.is_stuck

    def generation(self, job: JobName) -> Generation:
        """Return for which generation the job's status was written that the answer is from."""
        demand = self._watched.get(job)
        return demand.generation if demand is not None else Generation(0)

    @property
    def wake_s(self) -> float | None:
        """Return when `take_due` is wanted next."""
        times = (watch.wake_s for demand in self._watched.values() for watch in demand.watches)
        return min(times, default=None)

    def take_due(self) -> None:
        """Read again what has been watched for long: an event may have got lost."""
        for demand in self._watched.values():
            for watch in demand.watches:
                watch.take_due()

    def close(self) -> None:
        self.watch({})


class _Demand:
    def __init__(
        self,
        store: Store,
        keys: Keys,
        spec: JobSpec,
        post: Callable[[Callable[[], None]], None],
        changed: Callable[[], None],
    ) -> None:
        self.spec, self._post, self._changed = spec, post, changed
        self.lacks_nodes: bool | None = None
        self.is_stuck = False
        self.generation = Generation(0)
        self._items: dict[str, KeyValue] = {}
        self._awaited = {keys.status(spec.name), keys.wants(spec.name)}
        self._status_key, self._wants_prefix = keys.status(spec.name), keys.wants(spec.name)
        self._is_closed = False
        status = KeyRange(key=self._status_key)
        wants = KeyRange(key=self._wants_prefix, is_prefix=True)
        self.watches = (
            ResyncWatch(lambda: store.watch(status, self._sink)),
            ResyncWatch(lambda: store.watch(wants, self._sink)),
        )

    def close(self) -> None:
        self._is_closed = True
        for watch in self.watches:
            watch.close()

    def _sink(self, seen: WatchSnapshot | KeysChanged) -> None:
        """Take a change of a watched job; the store's thread calls this."""
        self._post(partial(self._take, seen))

    def _take(self, seen: WatchSnapshot | KeysChanged) -> None:
        if self._is_closed:
            return
        if isinstance(seen, WatchSnapshot):
            self._awaited.discard(seen.range.key)
            prefix = seen.range.key
            kept = {k: item for k, item in self._items.items() if not k.startswith(prefix)}
            self._items = kept | {item.key: item for item in seen.items}
        else:
            for change in seen.changes:
                self._items.pop(change.key, None)
                if change.item is not None:
                    self._items[change.key] = change.item
        before = self.lacks_nodes, self.is_stuck
        self.lacks_nodes = None if self._awaited else self._judged()
        if (self.lacks_nodes, self.is_stuck) != before:
            self._changed()

    def _judged(self) -> bool:
        try:
            item = self._items.get(self._status_key)
            status = decode(JobStatus, item.value) if item is not None else JobStatus()
            self.generation, self.is_stuck = status.generation, is_stuck(status)
            found = [i for k, i in self._items.items() if k.startswith(self._wants_prefix)]
            wants = [decode(Want, item.value) for item in found]
        except NotSupported as exc:
            log.error("demand.not_read", job=self.spec.name, why=str(exc))
            return False  # Whoever cannot be understood goes last.
        return lacks_nodes(self.spec, {want.writer: want for want in wants}, status)

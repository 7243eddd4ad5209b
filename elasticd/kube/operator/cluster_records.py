"""The records in etcd on which the operator's decisions depend."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import TypeVar

from elasticd.control.report.occupancy import ClusterOccupancy, holders, uses_of
from elasticd.control.report.report import JobReport, job_report
from elasticd.errors import NotSupported
from elasticd.kube.decide.cluster import Records
from elasticd.kube.operator.job_items import Items, JobItems
from elasticd.kube.resource.elastic_job import ElasticJob
from elasticd.kube.resource.job_records import JobRecords, ReportedProgress, job_records
from elasticd.records.codec import decode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import Active
from elasticd.records.keys import Keys
from elasticd.records.member import Drain, Node, NodeLabels
from elasticd.records.reason import Phase
from elasticd.store.api import KeyValue, Store
from elasticd.store.watch_cache import RENEW_S, WatchCache
from elasticd.telemetry.log import get_logger

__all__ = ["ClusterRecords"]

T = TypeVar("T")
log = get_logger()


class ClusterRecords:
    """Watches of the records, until they are closed; one thread calls `read`."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        wake: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """The store's thread calls `wake` after each change that matters."""
        self._keys, self._now_s = keys, now_s
        self._unserved: dict[JobName, float] = {}
        """The time since which no node serves an active job."""
        self._jobs = JobItems(store, keys, wake)
        self._active = WatchCache(store, keys.active, wake=wake)
        self._drains = WatchCache(store, keys.drains, wake=wake)
        self._nodes = WatchCache(store, keys.nodes, wake=wake)
        self._labels = WatchCache(store, keys.node_labels, wake=wake)
        self._renew_s = now_s() + RENEW_S
        self._reports: dict[JobName, tuple[Items, JobReport | None]] = {}
        self._unreadable: set[JobName] = set()
        self._unreadable_uids: frozenset[str] = frozenset()
        self._unread: dict[str, str] = {}

    def is_unreadable(self, job: ElasticJob) -> bool:
        """Return whether the job of an object has records of a newer version: the operator leaves
        it alone. Before its first status the object does not name its job, whose mark in etcd does
        name the object.
        """
        return job.status.job in self._unreadable or job.uid in self._unreadable_uids

    def reports(self) -> Mapping[JobName, JobReport]:
        """Return a report of each job, from the records that this version can read."""
        before, self._reports = self._reports, {}
        self._unreadable &= before.keys()
        for name, items in (self._jobs.read() or {}).items():
            known = before.get(name)
            if known is None or known[0] is not items:
                known = items, self._report(name, items, known[1] if known else None)
            self._reports[name] = known
        return {name: report for name, (_, report) in self._reports.items() if report is not None}

    def read(self, measured: Mapping[JobName, ReportedProgress]) -> Records | None:
        """Return the present records; None if some records have not been read yet."""
        self._renew()
        is_ready = all(each.wait_ready(0.0) for each in self._caches)
        if not is_ready or self._jobs.read() is None:
            return None
        drains = {
            NodeId(key.removeprefix(self._keys.drains)): one
            for key, one in self._decoded(self._drains.items, Drain).items()
        }
        reports = _with_holders(self.reports(), self.agents().values(), drains)
        active = self._decoded(self._active.items, Active)
        ready = {JobName(key.removeprefix(self._keys.active)) for key in active}
        reserved = {
            JobName(key.removeprefix(self._keys.active))
            for key, mark in active.items()
            if not mark.is_ready
        }
        # A job with an unreadable record belongs to somebody, so the operator must not say that it
        # is gone.
        reserved |= self._unreadable
        marks = (active.get(self._keys.active_job(name)) for name in self._unreadable)
        self._unreadable_uids = frozenset(mark.uid for mark in marks if mark is not None)
        now_s, before = self._now_s(), self._unserved
        self._unserved = {
            name: before.get(name, now_s)
            for name, report in reports.items()
            if name in ready and not report.members
        }
        jobs: dict[JobName, JobRecords] = {}
        for name, report in reports.items():
            if name not in reserved:
                jobs[name] = job_records(
                    report,
                    is_active=name in ready,
                    measured=measured.get(name),
                    unserved_s=now_s - self._unserved.get(name, now_s),
                )
        return Records(
            jobs=jobs,
            reserved=frozenset(reserved),
            drains=drains,
            agents={
                NodeId(k.removeprefix(self._keys.nodes)): one for k, one in self.agents().items()
            },
            labels={
                NodeId(k.removeprefix(self._keys.node_labels)): one
                for k, one in self._decoded(self._labels.items, NodeLabels).items()
            },
        )

    def agents(self) -> Mapping[str, Node]:
        """Return the nodes whose agents live, by their keys."""
        return self._decoded(self._nodes.items, Node)

    def close(self) -> None:
        self._jobs.close()
        for cache in self._caches:
            cache.close()

    # --- private ------------------------------------------------------------------------------

    @property
    def _caches(self) -> tuple[WatchCache, ...]:
        return self._active, self._drains, self._nodes, self._labels

    def _renew(self) -> None:
        """Read everything again if it is time: else a lost event would have an effect for ever."""
        now_s = self._now_s()
        if now_s >= self._renew_s:
            self._renew_s = now_s + RENEW_S
            self._jobs.renew()
            for cache in self._caches:
                cache.renew()

    def _report(self, name: JobName, items: Items, before: JobReport | None) -> JobReport | None:
        try:
            report = job_report(items.values(), self._keys, name)
        except NotSupported as exc:
            self._say_unread(name, str(exc))
            self._unreadable.add(name)
            return before
        self._unreadable.discard(name)
        return report

    def _decoded(self, items: Mapping[str, KeyValue], kind: type[T]) -> dict[str, T]:
        found: dict[str, T] = {}
        for key, item in items.items():
            try:
                found[key] = decode(kind, item.value)
            except NotSupported as exc:
                self._say_unread(key, str(exc))
        return found

    def _say_unread(self, what: str, why: str) -> None:
        """Log once that a newer version wrote a record."""
        if self._unread.get(what) != why:
            self._unread[what] = why
            log.error("record.not_read", what=what, why=why)


def _with_holders(
    reports: Mapping[JobName, JobReport], agents: Iterable[Node], drains: Collection[NodeId]
) -> Mapping[JobName, JobReport]:
    """Add to each report of a job that waits for nodes which jobs use those nodes."""
    waiting = {
        name: report
        for name, report in reports.items()
        if report.status.phase in (Phase.PENDING, Phase.WAITING)
    }
    if not waiting:
        return reports
    uses = (uses_of(r.spec, r.status, r.world, r.members) for r in reports.values())
    cluster = ClusterOccupancy(
        nodes=tuple(sorted(agents, key=attrgetter("node"))),
        drained=frozenset(drains),
        uses=tuple(chain.from_iterable(uses)),
    )
    said: dict[object, str] = {}
    found = dict(reports)
    for name, report in waiting.items():
        # Jobs that no node serves wait for the same jobs if they ask for the same nodes.
        labels = tuple(sorted(report.spec.node_labels.items()))
        asks = (report.spec.min_nodes, report.spec.workers_per_node, labels)
        alike = name if report.members else asks
        if alike not in said:
            said[alike] = holders(report.spec, report.members, cluster)
        found[name] = replace(report, elsewhere=said[alike])
    return found

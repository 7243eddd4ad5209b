"""Watches the records of a cluster for an autoscaler: the active jobs and the nodes."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from elasticd.autoscale.loop.availability import AvailableNodes, nodes_of
from elasticd.autoscale.loop.job_watch import JobFacts, JobWatch
from elasticd.errors import NotSupported
from elasticd.records.codec import decode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import Active
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.store.api import KeyValue, Store
from elasticd.store.watch_cache import RENEW_S, WatchCache
from elasticd.telemetry.log import get_logger

__all__ = ["ActiveJob", "ClusterWatch"]

READY_LIMIT_S = 2.0
"""The time in seconds to wait for the first snapshots of new watches; the next evaluation reads
snapshots that come later."""

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveJob:
    """The present facts of a job that is not over."""

    name: JobName
    revision: int
    """The revision at which it was marked as active."""
    facts: JobFacts


class ClusterWatch:
    """Watches of the records, until they are closed. One thread uses them."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store, self._keys = store, keys
        self._active = WatchCache(store, keys.active)
        self._nodes = WatchCache(store, keys.nodes)
        self._drains = WatchCache(store, keys.drains)
        self._jobs: dict[JobName, tuple[int, JobWatch]] = {}
        self._unread: dict[JobName, str] = {}
        self._decoded: dict[str, tuple[KeyValue, Node]] = {}
        self._renew_s = time.monotonic() + RENEW_S

    def read(self) -> tuple[tuple[ActiveJob, ...], AvailableNodes]:
        """Return all jobs that are not over, and the nodes with the slots that jobs hold there."""
        self._renew()
        until_s = time.monotonic() + READY_LIMIT_S
        for cache in (self._active, self._nodes, self._drains):
            cache.wait_ready(max(0.0, until_s - time.monotonic()))
        self._follow()
        for _, records in self._jobs.values():
            records.wait_ready(max(0.0, until_s - time.monotonic()))
        jobs = tuple(self._facts())
        prefix = self._keys.drains
        drained = frozenset(NodeId(key.removeprefix(prefix)) for key in self._drains.items)
        found = self._read_nodes(self._nodes.items)
        nodes = nodes_of(found, drained, [job.facts for job in jobs])
        return jobs, nodes

    def close(self) -> None:
        for cache in (self._active, self._nodes, self._drains):
            cache.close()
        for _, records in self._jobs.values():
            records.close()

    # --- private ------------------------------------------------------------------------------

    def _renew(self) -> None:
        """Read everything again if it is time: else a lost event would have an effect for ever."""
        if time.monotonic() >= self._renew_s:
            self._renew_s = time.monotonic() + RENEW_S
            for each in (self._active, self._nodes, self._drains):
                each.renew()
            for _, records in self._jobs.values():
                records.renew()

    def _follow(self) -> None:
        """Watch the jobs that are active now; a job that began again gets a new watch."""
        active: dict[JobName, int] = {}
        for key, item in self._active.items.items():
            job = JobName(key.removeprefix(self._keys.active))
            if self._is_ready(job, item):
                active[job] = item.mod_revision
        for job, (revision, records) in list(self._jobs.items()):
            if active.get(job) != revision:
                records.close()
                del self._jobs[job]
                self._unread.pop(job, None)
        for job, revision in active.items():
            if job not in self._jobs:
                self._jobs[job] = revision, JobWatch(self._store, self._keys, job)

    def _is_ready(self, job: JobName, item: KeyValue) -> bool:
        try:
            return decode(Active, item.value).is_ready
        except NotSupported as exc:
            self._say_unread(job, str(exc))
            return False

    def _facts(self) -> Iterator[ActiveJob]:
        for job, (revision, records) in sorted(self._jobs.items()):
            try:
                facts = records.read()
            except NotSupported as exc:
                self._say_unread(job, str(exc))
                continue
            self._unread.pop(job, None)
            if facts is not None and not facts.status.phase.is_final:
                yield ActiveJob(name=job, revision=revision, facts=facts)

    def _read_nodes(self, items: Mapping[str, KeyValue]) -> Iterator[Node]:
        before, self._decoded = self._decoded, {}
        for key, item in items.items():
            known = before.get(key)
            if known is None or known[0] is not item:
                try:
                    known = item, decode(Node, item.value)
                except NotSupported:  # A newer agent's record: its slots are unknown.
                    continue
            self._decoded[key] = known
            yield known[1]

    def _say_unread(self, job: JobName, why: str) -> None:
        """Log once that nothing is decided about a job because its records cannot be read."""
        if self._unread.get(job) != why:
            self._unread[job] = why
            log.error("job.not_read", job=job, why=why)

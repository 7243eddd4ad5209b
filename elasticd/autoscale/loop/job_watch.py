"""Watches the records of one job that is not over, for an autoscaler."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from elasticd.records.account.incident import Incident
from elasticd.records.account.time_spent import JobProgress, TimeSpent
from elasticd.records.autoscale.policy import Policy
from elasticd.records.codec import decode
from elasticd.records.ids import Generation, JobName
from elasticd.records.job import JobSpec, JobStatus, Want
from elasticd.records.keys import Keys
from elasticd.records.member import Member
from elasticd.records.reason import Phase
from elasticd.records.world import World
from elasticd.store.api import KeyValue, Store
from elasticd.store.watch_cache import WatchCache

__all__ = ["JobFacts", "JobWatch"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """One job at one revision of etcd."""

    spec: JobSpec
    status: JobStatus
    world: World | None = None
    """The world that trains; None if there is none."""
    members: tuple[Member, ...] = ()
    wants: Mapping[str, Want] = field(default_factory=dict)
    policy: Policy | None = None
    """The policy; None if the job has none, or if the policy is from an earlier job of this
    name."""
    policy_revision: int = 0
    progress: JobProgress | None = None
    spent: tuple[TimeSpent, ...] = ()
    incidents: tuple[Incident, ...] = ()
    """The incidents of the newest world that its nodes have reported."""

    @property
    def generation(self) -> Generation:
        return self.world.generation if self.world is not None else Generation(0)


class JobWatch:
    """The watch of one job, until it is closed. One thread calls `read`."""

    def __init__(self, store: Store, keys: Keys, job: JobName) -> None:
        self._keys, self._job = keys, job
        self._unread = (
            keys.results(job),
            keys.decisions(job),
            keys.late(job),
            keys.curve(job),
            keys.autoscaler_memory(job),
        )
        self._cache = WatchCache(store, keys.job(job), self._is_read)
        self._decoded: dict[str, tuple[KeyValue, object]] = {}
        self._read: tuple[Mapping[str, KeyValue], JobFacts | None] | None = None

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the records have been read; return False if they do not arrive in time."""
        return self._cache.wait_ready(timeout_s)

    def read(self) -> JobFacts | None:
        """Return the present facts; None if nothing is known of the job yet.

        Raises: NotSupported: this version does not understand a record.
        """
        items = self._cache.items
        if self._read is None or self._read[0] is not items:
            before, self._decoded = self._decoded, {}
            self._read = items, self._put_together(items, before)
        return self._read[1]

    def renew(self) -> None:
        """Watch anew, as `WatchCache.renew` does."""
        self._cache.renew()

    def close(self) -> None:
        self._cache.close()

    # --- private ------------------------------------------------------------------------------

    def _is_read(self, key: str) -> bool:
        return not key.startswith(self._unread)

    def _put_together(
        self, items: Mapping[str, KeyValue], before: Mapping[str, tuple[KeyValue, object]]
    ) -> JobFacts | None:
        keys, job = self._keys, self._job
        names = sorted(items)

        def one(key: str, kind: type[R]) -> R | None:
            """Decode a record once, however often other records change."""
            item = items.get(key)
            if item is None:
                return None
            known = before.get(key)
            if known is None or known[0] is not item:
                known = item, decode(kind, item.value)
            self._decoded[key] = known
            record = known[1]
            assert isinstance(record, kind)
            return record

        def under(prefix: str, kind: type[R]) -> tuple[R, ...]:
            """Decode the records below a prefix, without a look at the other records."""
            begin, found = bisect_left(names, prefix), []
            for key in islice(names, begin, None):
                if not key.startswith(prefix):
                    break
                record = one(key, kind)
                if record is not None:
                    found.append(record)
            return tuple(found)

        spec = one(keys.spec(job), JobSpec)
        if spec is None:
            return None
        status = one(keys.status(job), JobStatus) or JobStatus()
        world = one(keys.world(job), World) if status.phase is Phase.RUNNING else None
        policy, progress = one(keys.policy(job), Policy), one(keys.progress(job), JobProgress)
        has_policy = policy is not None and policy.uid in ("", spec.uid)
        is_ours = progress is not None and progress.uid == spec.uid
        wants = {want.writer: want for want in under(keys.wants(job), Want)}
        spent = under(keys.times_spent(job), TimeSpent) if has_policy else ()
        incidents: tuple[Incident, ...] = ()
        if has_policy and world is not None:
            incidents = under(keys.incidents_of(job, world.generation), Incident)
        return JobFacts(
            spec=spec,
            status=status,
            world=world,
            members=under(keys.members(job), Member),
            wants=wants,
            policy=policy if has_policy else None,
            policy_revision=items[keys.policy(job)].mod_revision if policy is not None else 0,
            progress=progress if is_ours else None,
            spent=tuple(each for each in spent if each.uid == spec.uid),
            incidents=incidents,
        )

"""Writes an agent's account and the job's progress to etcd, on the thread of effects.

Every second is written down by exactly one record, whatever fails in between. An agent's record
holds its sums since the last time that they were taken over. The node of rank 0 takes them over: it
adds them to the progress and deletes the record in one transaction, which holds only if neither has
changed. The agent sees at its next write that its record is gone, and counts on from there; so it
does no harm to take over from an agent that lives.

Two hosts' clocks are not compared; the nodes compare for how long each has known a generation.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elasticd.errors import Fenced, NotSupported, Unavailable
from elasticd.records.account.time_spent import JobProgress, TimeSpent
from elasticd.records.codec import decode, encode
from elasticd.records.ids import Generation, JobName, Life
from elasticd.records.keys import Keys
from elasticd.store.api import Delete, KeyValue, ModifiedAt, Put, Store, Txn
from elasticd_agent.account.gap import KnownGenerations, gap_of

__all__ = ["PROGRESS_BYTES", "AccountReading", "RecordWriter", "check_held", "fitted"]

TRIES = 3
TAKEN_AT_ONCE = 40
"""How many records one write takes over: etcd allows 128 operations in a transaction. The next
write takes the rest."""
PROGRESS_BYTES = 1000
NAME_LENGTH = 64
CONCLUDED_KEPT = 8
"""For how many generations an inferred account of a gone agent is kept apart. If that agent comes
back by then, its own numbers replace it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountReading:
    """How things stood when a write became due. The owner's thread makes it."""

    spent: TimeSpent
    """All slot-seconds that this agent has counted since its account began."""
    progress: JobProgress | None = None
    """The job's progress; None if another node has rank 0. `wanted_s` is what this agent
    counted."""
    wanted_slots: int = 0
    ages_s: Mapping[Generation, float] = field(default_factory=dict)
    """How long ago each of the newest generations was first seen here."""
    known: KnownGenerations = field(default_factory=KnownGenerations)
    """What this node knows of generations, to infer what gone agents had not written yet."""
    present: frozenset[Life] = frozenset()
    """The agents that the job has now, as far as this node knows."""


class RecordWriter:
    """Write one job's account on one node, for the life of the agent.

    All methods run on the thread of effects.
    """

    def __init__(self, store: Store, keys: Keys, job: JobName, life: Life) -> None:
        self._store, self._keys, self._job, self._life = store, keys, job, life
        self._revision = 0
        """The revision of our record as we last saw it; 0: there is none."""
        self._acknowledged: Mapping[str, float] = {}
        """All that we counted, as of that write."""
        self._taken: Mapping[str, float] = {}
        """The part of it that was taken over."""
        self._earlier: Mapping[str, float] | None = None
        """What stood there of us before this account began; None: not read yet."""
        self._progress_revision: int | None = None
        self._gone: Mapping[str, float] = {}
        self._wanted_s = 0.0
        """Counted by others before us, less what we counted ourselves meanwhile."""
        self._searched: tuple[Generation, frozenset[Life]] | None = None

    def write(self, reading: AccountReading) -> None:
        """Write the agent's account and, on the node of rank 0, the job's progress.

        Raises:
            ElasticdError: etcd does not answer, or refuses.
        """
        self._write_spent(reading)
        if reading.progress is not None:
            self._write_progress(reading, reading.progress)

    def furthest(self, uid: str) -> int:
        """Return the newest step that others wrote of the job; 0: none.

        Raises:
            ElasticdError: etcd does not answer, or the record is of a newer schema.
        """
        item = self._store.get(self._keys.progress(self._job))
        found = decode(JobProgress, item.value) if item is not None else None
        return found.step if found is not None and found.uid == uid else 0

    # --- this agent's account ---------------------------------------------------------------------

    def _write_spent(self, reading: AccountReading) -> None:
        spent = reading.spent
        key = self._keys.time_spent(self._job, spent.node, self._life)
        if self._earlier is None:
            self._earlier = self._before(self._store.get(key), spent.uid)
        seconds = _more(spent.seconds, self._earlier)
        for _ in range(TRIES):
            record = replace(spent, seconds=_rounded(_less(seconds, self._taken)))
            when = (ModifiedAt(key=key, revision=self._revision),)
            done = self._store.commit(Txn(when=when, then=(Put(key=key, value=encode(record)),)))
            if done.succeeded:
                self._revision, self._acknowledged = done.revision, seconds
                return
            item = self._store.get(key)
            if item is None:
                self._revision, self._taken = 0, self._acknowledged
                continue
            self._revision = item.mod_revision
            found = decode(TimeSpent, item.value)
            if found.is_concluded:  # We were thought to be gone: we know better what we did since.
                self._taken = self._acknowledged
            else:  # Our own, of a write whose answer was lost.
                self._acknowledged = _more(self._taken, found.seconds)
        raise Unavailable("Others change this agent's account at the same time.")

    def _before(self, item: KeyValue | None, uid: str) -> Mapping[str, float]:
        """Go on from what this agent wrote when it was in the job before.

        That record is still there only if nobody took it over: the job had no other world
        meanwhile.
        """
        if item is None:
            return {}
        self._revision = item.mod_revision
        found = decode(TimeSpent, item.value)
        self._acknowledged = found.seconds if found.uid == uid else {}
        return self._acknowledged

    # --- the job's progress -----------------------------------------------------------------------

    def _write_progress(self, reading: AccountReading, progress: JobProgress) -> None:
        key = self._keys.progress(self._job)
        for _ in range(TRIES):
            if self._progress_revision is None:
                self._adopt(self._store.get(key), reading, progress)
            gone = self._gone_agents(reading)
            seconds = self._gone
            for _, record in gone:
                if record is not None:
                    seconds = _more(seconds, record.seconds)
            wanted_s = round(max(0.0, self._wanted_s + progress.wanted_s), 2)
            at_unix_s = round(time.time(), 3)
            new = replace(
                progress, seconds=_rounded(seconds), wanted_s=wanted_s, at_unix_s=at_unix_s
            )
            revision = self._progress_revision or 0
            same = tuple(ModifiedAt(key=i.key, revision=i.mod_revision) for i, _ in gone)
            put = Put(key=key, value=encode(fitted(new)))
            ends = tuple(_conclusion(item.key, record, reading) for item, record in gone)
            when = (ModifiedAt(key=key, revision=revision), *same)
            done = self._store.commit(Txn(when=when, then=(put, *ends)))
            if done.succeeded:
                self._progress_revision, self._gone = done.revision, seconds
                if len(gone) < TAKEN_AT_ONCE:
                    self._searched = (progress.generation, reading.present)
                return
            self._progress_revision = None
        raise Unavailable("Others write the job's progress at the same time.")

    def _adopt(self, item: KeyValue | None, reading: AccountReading, progress: JobProgress) -> None:
        """Go on from what the node that had rank 0 before us wrote last."""
        self._progress_revision = item.mod_revision if item is not None else 0
        found = decode(JobProgress, item.value) if item is not None else None
        if found is None or found.uid != progress.uid:
            self._gone, self._wanted_s = {}, 0.0
            return
        age_s = reading.ages_s.get(found.generation)
        since_s = max(0.0, age_s - found.generation_s) if age_s is not None else 0.0
        self._gone = found.seconds
        self._wanted_s = found.wanted_s + since_s * reading.wanted_slots - progress.wanted_s

    def _gone_agents(self, reading: AccountReading) -> list[tuple[KeyValue, TimeSpent | None]]:
        """Find the records of agents that the job no longer has, whenever it lost them."""
        assert reading.progress is not None
        generation = reading.progress.generation
        if self._searched == (generation, reading.present):
            return []
        prefix = self._keys.times_spent(self._job)
        kept = reading.present | {self._life}
        keys = [key for key in self._store.keys(prefix) if key.rpartition("/")[2] not in kept]
        found: list[tuple[KeyValue, TimeSpent | None]] = []
        for key in keys:
            item = self._store.get(key) if len(found) < TAKEN_AT_ONCE else None
            if item is not None:
                try:
                    record = decode(TimeSpent, item.value)
                except NotSupported:
                    continue  # A newer agent's: one of its version takes it over.
                is_ours = record.uid == reading.progress.uid
                if not (is_ours and _is_fresh(record, generation)):
                    found.append((item, record if is_ours else None))
        return found


def fitted(progress: JobProgress) -> JobProgress:
    """Return the record with as many of its scalars as fit into it."""
    scalars: dict[str, float] = {}
    best = replace(progress, scalars={})
    for name in sorted(progress.scalars):
        if len(name) > NAME_LENGTH:
            continue
        scalars[name] = float(f"{progress.scalars[name]:.6g}")
        new = replace(progress, scalars=dict(scalars))
        if len(encode(new)) > PROGRESS_BYTES:
            break
        best = new
    return best


def check_held(lease_deadline_s: float | None, now_s: float) -> None:
    """Check that this node may write.

    Raises: Fenced: its lease is not surely alive.
    """
    if lease_deadline_s is None or now_s >= lease_deadline_s:
        raise Fenced("The lease of this node is not surely alive.")


def _conclusion(key: str, record: TimeSpent | None, reading: AccountReading) -> Put | Delete:
    """Replace the record by what its agent did since; return nothing if no such time is known."""
    assert reading.progress is not None
    gap = gap_of(record, Life(key.rpartition("/")[2]), reading.known) if record is not None else {}
    if record is None or not _rounded(gap):
        return Delete(key=key)
    concluded = TimeSpent(
        node=record.node,
        uid=record.uid,
        seconds=_rounded(gap),
        generation=reading.progress.generation,
        is_concluded=True,
    )
    return Put(key=key, value=encode(concluded))


def _is_fresh(record: TimeSpent, generation: Generation) -> bool:
    """Return whether the record was inferred so lately that its agent may still come back."""
    return record.is_concluded and generation < record.generation + CONCLUDED_KEPT


def _more(one: Mapping[str, float], other: Mapping[str, float]) -> Mapping[str, float]:
    found = dict(one)
    for cause, seconds in other.items():
        found[cause] = found.get(cause, 0.0) + seconds
    return found


def _less(one: Mapping[str, float], other: Mapping[str, float]) -> Mapping[str, float]:
    return {cause: max(0.0, value - other.get(cause, 0.0)) for cause, value in one.items()}


def _rounded(seconds: Mapping[str, float]) -> Mapping[str, float]:
    """Round to hundredths of a second, which is enough, and leave out causes with no time."""
    return {cause: round(value, 2) for cause, value in seconds.items() if round(value, 2) > 0.0}

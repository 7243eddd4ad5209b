"""The leader's state for one job: its memory, its curve and the open decision.

The state is read from etcd when a term begins, and written back in one transaction with each wish.
The transaction holds only while the election holds, the job is the same and its policy has not
changed. If a write fails, or its result is not known, the state is read again. Measurements in
progress are kept.
"""

import zlib
from dataclasses import replace

from elasticd.autoscale.decide import Decided
from elasticd.autoscale.loop.job_watch import JobFacts
from elasticd.autoscale.loop.measurement import Measurement
from elasticd.control.job_policy import AUTOSCALER
from elasticd.leader.election import Term
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import DECISIONS_LIMIT, Decision
from elasticd.records.autoscale.memory import Memory, shifted
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName
from elasticd.records.job import Want
from elasticd.records.keys import Keys
from elasticd.store.api import Delete, ModifiedAt, Op, Put, Store, Txn

__all__ = ["WRITE_EVERY_S", "JobBook"]

WRITE_EVERY_S = 60.0
"""The time in seconds between two writes of a memory without an important change; windows of time
need these writes. Each job has its own moment within that time, so that many jobs are not all
written at once."""
UNSEEN_S = 2.0 * WRITE_EVERY_S
"""A memory older than this many seconds was not handed over directly from one leader to the
next."""


class JobBook:
    """The state for one job in one term. The loop's thread alone uses it."""

    def __init__(self, store: Store, keys: Keys, job: JobName, uid: str, active: int) -> None:
        """`active` is the revision at which the job was marked as active."""
        self._store, self._keys, self.job, self.uid = store, keys, job, uid
        self._is_active = ModifiedAt(key=keys.active_job(job), revision=active)
        self.measurement = Measurement()
        self.is_known = False
        """False if the state was not read yet, or if etcd's present state is not known."""
        self.memory = Memory(uid=uid)
        self.curve = Curve(uid=uid)
        self.open_decision: Decision | None = None
        self._written_memory: Memory | None = None
        self._written_curve: Curve | None = None
        self._written_s = 0.0
        self._phase_s = zlib.crc32(job.encode()) % WRITE_EVERY_S

    @property
    def active(self) -> int:
        return self._is_active.revision

    def read(self, now_s: float, unix_s: float) -> None:
        """Continue from the last records of the earlier leader.

        If no process has led for long, none has seen whether the metrics were present. Both wall
        clocks may be wrong: then the wait is at most one window longer.

        Raises: ElasticdError: etcd does not answer, or a record is from a newer version.
        """
        keys, job = self._keys, self.job
        self.memory, self._written_memory = Memory(uid=self.uid), None
        self.curve, self._written_curve = Curve(uid=self.uid), None
        memory = self._store.get(keys.autoscaler_memory(job))
        if memory is not None:
            found = decode(Memory, memory.value)
            if found.uid == self.uid:
                self.memory = self._written_memory = shifted(found, now_s)
                if abs(unix_s - found.at_unix_s) > UNSEEN_S:
                    self.memory = replace(self.memory, whole_since_s={})
        if not self.memory.decisions:  # An earlier policy was removed: its decisions stay.
            self.memory = replace(self.memory, decisions=self._newest_number())
        curve = self._store.get(keys.curve(job))
        if curve is not None:
            curved = decode(Curve, curve.value)
            if curved.uid == self.uid:
                self.curve = self._written_curve = curved
        self._written_s = now_s
        self.open_decision = self._read_decision(self.memory.open_decision)
        self.is_known = True

    def write(
        self, decided: Decided, facts: JobFacts, term: Term, *, now_s: float, unix_s: float
    ) -> bool:
        """Write the result of an evaluation, if it is worth a write, and keep it.

        Returns False if the election, the job or its policy has changed; then nothing was written.

        Raises: ElasticdError: etcd does not answer, or refuses; it is not known whether the write
        took place.
        """
        ops = self._ops(decided, facts, now_s, unix_s)
        self.is_known = not ops
        if ops:
            policy = ModifiedAt(key=self._keys.policy(self.job), revision=facts.policy_revision)
            when = (term.standing, self._is_active, policy)
            if not self._store.commit(Txn(when=when, then=tuple(ops))).succeeded:
                return False
        self._remember(decided, ops, now_s)
        self.is_known = True
        return True

    # --- private ------------------------------------------------------------------------------

    def _newest_number(self) -> int:
        prefix = self._keys.decisions(self.job)
        names = [key.removeprefix(prefix) for key in self._store.keys(prefix)]
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def _read_decision(self, number: int) -> Decision | None:
        if not number:
            return None
        item = self._store.get(self._keys.decision(self.job, number))
        found = decode(Decision, item.value) if item is not None else None
        return found if found is not None and found.uid in ("", self.uid) else None

    def _ops(self, decided: Decided, facts: JobFacts, now_s: float, unix_s: float) -> list[Op]:
        keys, job = self._keys, self.job
        ops: list[Op] = []
        closed, decision = decided.closed, decided.decision
        if closed is not None and (decision is None or closed.number != decision.number):
            ops.append(Put(key=keys.decision(job, closed.number), value=encode(closed)))
        if decision is not None:
            ops.append(Put(key=keys.decision(job, decision.number), value=encode(decision)))
            oldest = decision.number - DECISIONS_LIMIT + 1
            if oldest > 1:
                until = keys.decision(job, oldest)
                ops.append(Delete(key=keys.decisions(job), until=until))
        ops += self._want(decided, facts, unix_s)
        if ops or self._matters(decided, now_s):
            ops.append(Put(key=keys.autoscaler_memory(job), value=encode(decided.memory)))
            if decided.curve != self._written_curve:
                ops.append(Put(key=keys.curve(job), value=encode(decided.curve)))
        return ops

    def _want(self, decided: Decided, facts: JobFacts, unix_s: float) -> list[Op]:
        if decided.wanted is None:
            return []
        standing = facts.wants.get(AUTOSCALER)
        if standing is not None and standing.nodes == decided.wanted:
            return []
        want = Want(
            writer=AUTOSCALER,
            nodes=decided.wanted,
            why=decided.decision.why if decided.decision is not None else "",
            since_unix_s=round(unix_s, 3),
        )
        return [Put(key=self._keys.want(self.job, AUTOSCALER), value=encode(want))]

    def _matters(self, decided: Decided, now_s: float) -> bool:
        """Return whether the next leader needs this write to decide the same, or a write is due."""
        before = self._written_memory
        if before is None or self._is_due(now_s):
            return before is None or _without_moment(before) != _without_moment(decided.memory)
        has_learnt = _kept(self._written_curve) != _kept(decided.curve)
        return has_learnt or _gist(before) != _gist(decided.memory)

    def _is_due(self, now_s: float) -> bool:
        written, now = (at_s + self._phase_s for at_s in (self._written_s, now_s))
        return now // WRITE_EVERY_S > written // WRITE_EVERY_S

    def _remember(self, decided: Decided, ops: list[Op], now_s: float) -> None:
        self.memory, self.curve = decided.memory, decided.curve
        if ops:
            self._written_memory, self._written_curve = decided.memory, decided.curve
            self._written_s = now_s
        newest = decided.decision
        if newest is not None and newest.number == decided.memory.open_decision:
            self.open_decision = newest
        elif self.open_decision is None or (
            self.open_decision.number != decided.memory.open_decision
        ):
            self.open_decision = None


def _gist(memory: Memory) -> object:
    """Return the part of a memory that is written at once after a change.

    For a time only its presence counts. The next leader takes a memory to be as old as it was at
    its write, so that its windows end later and never sooner.
    """
    return (
        memory.uid,
        memory.proposed[-1].nodes if memory.proposed else None,
        len(memory.resized) and memory.resized[-1].delta,
        memory.wanted,
        memory.decisions,
        memory.open_decision,
        memory.judged_from,
        memory.held,
        bool(memory.missing),
        frozenset(memory.whole_since_s),
        memory.idle_since_s is not None,
        memory.decided_s is not None,
        memory.generation,
        memory.policy_at_unix_s,
        memory.is_dry_run,
    )


def _without_moment(memory: Memory) -> Memory:
    """Return all of a memory except the time at which it was written."""
    return replace(memory, now_s=0.0, at_unix_s=0.0)


def _kept(curve: Curve | None) -> object:
    """Return the part of a curve that is written at once: new sizes and costs, refused sizes."""
    if curve is None:
        return ((), 0, ())
    return (tuple(each.nodes for each in curve.sizes), curve.changes, curve.refused)

"""The node of rank 0 judges which nodes of a job are late, and writes down what it finds.

This node is a proposer, so it sees all members' reports. The next node that has rank 0 begins to
judge anew, and reads the earlier findings from the record: an entry stays open until a node that
knows the waits of all nodes finds that it is over, or until the job is over. Nothing is written
while nothing changes.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from elasticd.errors import ElasticdError, Fenced, Unavailable
from elasticd.goodput.late import LateJudgement, Lateness, judged
from elasticd.goodput.late_record import begun_or_over, drained, followed
from elasticd.records.account.late import LateNode, LateNodes, NodeWait, OnLate
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.keys import Keys
from elasticd.records.reason import Phase
from elasticd.rendezvous.state import JobState
from elasticd.store.api import Lease, ModifiedAt, Put, Store, Txn
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.clock import now_s
from elasticd_agent.loop.effect_thread import EffectThread

__all__ = ["LateJudge"]

DRAIN_AFTER_S = 10.0
"""A node is drained once it has been late for so long, and for a hundred steps."""
DRAIN_AFTER_STEPS = 100
REWRITE_RATIO, REWRITE_S = 0.05, 60.0
"""A written finding is corrected if it is off by this ratio, once a minute at most."""
RETRY_S = 5.0
DRAIN_RETRY_S = 60.0

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """A finding that is to be written down."""

    late: Mapping[NodeId, Lateness]
    unknown: frozenset[NodeId]
    """The nodes of the world of which nobody knows any more whether they are late."""
    to_drain: NodeId | None = None


class LateJudge:
    """Judge one job. The owner's thread uses it, and waits for nothing here."""

    def __init__(
        self,
        *,
        job: JobName,
        on_late: OnLate,
        store: Store,
        keys: Keys,
        effect_thread: EffectThread,
        lease: Callable[[], Lease | None],
        post: Callable[[Callable[[], None]], None],
        tell: Callable[[LateNode], None],
    ) -> None:
        """`tell` gets each node when it has become late, and again when it is late no more."""
        self._job, self._on_late, self._tell = job, on_late, tell
        self._store, self._keys = store, keys
        self._effect_thread, self._lease, self._post = effect_thread, lease, post
        self._judgement = LateJudgement()
        self._seen: tuple[object, ...] = ()
        self._written: Mapping[NodeId, Lateness] | None = None
        """What the record says, as far as this judge wrote it; None: it wrote nothing yet."""
        self._is_writing = False
        self._written_s = self._retry_s = 0.0
        self._since_s: dict[NodeId, float] = {}
        """When each was found late here."""
        self._notes: dict[NodeId, str] = {}
        self._drain_retry_s = 0.0

    @property
    def ratio(self) -> float:
        """Return by how much the latest node's steps take longer; 0 if no node is late, or another
        node judges.

        It is the metric `elasticd_late_ratio`.
        """
        return max((found.ratio for found in self._judgement.late.values()), default=0.0)

    @property
    def wake_s(self) -> float | None:
        """Return when `judge` is wanted, even if nothing was seen."""
        times = [self._judgement.wake_s]
        if not self._is_writing:
            due_s = self._drain_due_s
            times.append(max(due_s, self._retry_s) if due_s is not None else None)
            times.append(self._retry_s or None)
        return min((t for t in times if t is not None), default=None)

    def judge(self, state: JobState, at_s: float) -> None:
        """Judge, if this node is the one to do so and something has changed since the last look."""
        seen = (state.members, state.world, state.status)
        is_same = len(seen) == len(self._seen) and all(
            now is before for now, before in zip(seen, self._seen, strict=True)
        )
        wake_s = self.wake_s
        if is_same and (wake_s is None or at_s < wake_s):
            return
        self._seen = seen
        if _has_ended(state):
            self._close(at_s)
            return
        waits = _waits(state)
        if waits is None:
            self._judgement, self._written = LateJudgement(), None
            self._since_s, self._retry_s = {}, 0.0
            return
        self._judgement = judged(self._judgement, waits, at_s)
        late = self._judgement.late
        for node in late.keys() - self._since_s.keys():
            self._since_s[node] = at_s
            log.warning("node.late", job=self._job, node=node, ratio=round(late[node].ratio, 2))
        for node in self._since_s.keys() - late.keys():
            del self._since_s[node]
            self._notes.pop(node, None)
            log.info("node.in_time", job=self._job, node=node)
        self._write_if_news(waits, at_s)

    def _close(self, at_s: float) -> None:
        """Write down that nobody is late any more, since the job is over.

        It does not wait for a write that is under way, since this node may forget the job at once;
        the thread of effects carries them out in turn.
        """
        self._judgement, self._since_s = LateJudgement(), {}
        if at_s >= self._retry_s and (self._written is None or self._written):
            self._retry_s, self._written = 0.0, {}
            self._send(_Finding(late={}, unknown=frozenset()))

    def _write_if_news(self, waits: Mapping[NodeId, NodeWait | None], at_s: float) -> None:
        if self._is_writing or at_s < self._retry_s:
            return
        self._retry_s = 0.0
        late, complete = self._judgement.late, self._judgement.is_complete
        due_s = self._drain_due_s
        is_drain_due = due_s is not None and at_s >= due_s
        is_news = self._written is None or self._is_other(late, self._written, at_s)
        is_sure = complete and self._judgement.wake_s is None
        if not is_drain_due and not (is_news and (late or is_sure)):
            return
        unknown = frozenset() if is_sure else frozenset(waits)
        to_drain = min(late, key=lambda node: self._since_s[node]) if is_drain_due else None
        self._send(_Finding(late=late, unknown=unknown, to_drain=to_drain))

    def _send(self, finding: _Finding) -> None:
        self._is_writing = True
        self._effect_thread.send(
            lambda: self._carry_out(finding, dict(self._notes)),
            lambda note: self._post(partial(self._done, finding, note)),
            lambda exc: self._post(partial(self._not_done, exc)),
        )

    @property
    def _drain_due_s(self) -> float | None:
        """Return when the latest node is to be drained; None if none is."""
        if self._on_late is not OnLate.DRAIN or not self._since_s:
            return None
        first_s = min(self._since_s.values())
        after_s = max(DRAIN_AFTER_S, DRAIN_AFTER_STEPS * self._judgement.step_s)
        return max(first_s + after_s, self._drain_retry_s)

    def _is_other(
        self, late: Mapping[NodeId, Lateness], written: Mapping[NodeId, Lateness], at_s: float
    ) -> bool:
        if late.keys() != written.keys():
            return True
        is_off = any(abs(late[n].ratio - written[n].ratio) >= REWRITE_RATIO for n in late)
        return is_off and at_s - self._written_s >= REWRITE_S

    def _done(self, finding: _Finding, note: str) -> None:
        at_s = now_s()
        self._is_writing, self._written, self._written_s = False, finding.late, at_s
        if finding.to_drain is not None:
            # Also where it succeeded: the world without it takes a while to come.
            self._drain_retry_s = at_s + DRAIN_RETRY_S
            self._notes[finding.to_drain] = note
            if not note:
                log.warning("node.drained_late", job=self._job, node=finding.to_drain)
        self._seen = ()

    def _not_done(self, error: ElasticdError) -> None:
        self._is_writing, self._retry_s, self._written = False, now_s() + RETRY_S, None
        log.info("late.not_written", job=self._job, why=str(error))

    # --- on the thread of effects -----------------------------------------------------------------

    def _carry_out(self, finding: _Finding, notes: dict[NodeId, str]) -> str:
        """Bring the record up to date; return why no node was drained, if one should have been."""
        lease = self._lease()
        if lease is None or now_s() >= lease.deadline_s:
            raise Fenced("The lease of this node is not surely alive.")
        key, node = self._keys.late(self._job), finding.to_drain
        item = self._store.get(key)
        record = decode(LateNodes, item.value) if item is not None else LateNodes()
        if node is not None:
            # Only now: what changes clusters is loaded by who changes one.
            from elasticd_agent.late.drain import try_drain

            ratio = finding.late[node].ratio
            why_not = try_drain(self._store, self._keys, self._job, node, ratio=ratio)
            notes[node] = f"not drained: {why_not}" if why_not else ""
        at_unix_s = round(time.time(), 3)
        new = followed(
            record, finding.late, unknown=finding.unknown, notes=notes, now_unix_s=at_unix_s
        )
        if node is not None and not notes[node]:
            new = drained(new, node, now_unix_s=at_unix_s)
        if new != record:
            when = (ModifiedAt(key=key, revision=item.mod_revision if item is not None else 0),)
            put = Put(key=key, value=encode(new))
            if not self._store.commit(Txn(when=when, then=(put,))).succeeded:
                raise Unavailable("Somebody else wrote the record of late nodes at the same time.")
            for each in begun_or_over(record, new):
                self._tell(each)
        return notes[node] if node is not None else ""


def _has_ended(state: JobState) -> bool:
    """Return whether the job is over and this node was the one that judged.

    Where another job has the name by now, the record is that one's.
    """
    return state.is_over and not state.is_replaced and _has_rank_0(state)


def _has_rank_0(state: JobState) -> bool:
    world = state.world
    if world is None or not state.is_in_world:
        return False
    return world.nodes[0].node == state.me.node and world.nodes[0].first_rank == 0


def _waits(state: JobState) -> Mapping[NodeId, NodeWait | None] | None:
    """Return what each node of the world reports of its generation.

    The result is None if this node is not the one that judges.
    """
    world, status = state.world, state.status
    if world is None or not state.has_all_members or state.is_over or not _has_rank_0(state):
        return None
    if status is None or status.phase is not Phase.RUNNING or state.is_fenced:
        return None
    found: dict[NodeId, NodeWait | None] = {}
    for node in world.nodes:
        seen = state.members.get(node.node)
        wait = seen.member.wait if seen is not None else None
        is_current = (
            seen is not None
            and wait is not None
            and seen.member.incarnation == node.incarnation
            and wait.generation == world.generation
        )
        found[node.node] = wait if is_current else None
    return found

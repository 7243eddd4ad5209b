"""Effects on etcd: each is one call on the thread of effects and answers with exactly one event.

The lease's deadline is checked on that thread, right before the write, because the process may have
been stopped between the decision and now.

A call whose answer is lost is sent again, and etcd may carry out the first one much later: a member
of etcd that stood still passes on to the leader what it was asked before. So every write holds only
for what stood there, and none undoes a later one.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from elasticd.errors import ElasticdError, Fenced, NotSupported, Unavailable
from elasticd.records.account.incident import Incident, announced
from elasticd.records.codec import decode, encode
from elasticd.records.ids import Incarnation, JobName, NodeId
from elasticd.records.job import Active, EndedJob, JobSpec
from elasticd.records.keys import Keys
from elasticd.records.member import Member, Result
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.store.api import (
    Delete,
    KeyValue,
    Lease,
    ModifiedAt,
    Put,
    Store,
    Txn,
    UnchangedSince,
)
from elasticd_agent.job.agent_services import AgentServices
from elasticd_agent.loop.clock import now_s
from elasticd_agent.loop.effect_thread import EffectThread, later

__all__ = ["EtcdEffect", "EtcdEffects", "effects_of"]

EtcdEffect = (
    fx.WriteMember
    | fx.ProposeWorld
    | fx.WriteStatus
    | fx.WriteResult
    | fx.WriteIncident
    | fx.Withdraw
    | fx.FindOldest
)
Feed = Callable[[ev.Event], None]
TAKE_BACK_RETRY_S = 1.0
OWN_TRIES = 2
"""How often one write of a record of this node is tried: somebody else may have deleted it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdEffects:
    """Carry out one job's effects on etcd.

    `lease` returns the current lease, None if there is none.
    """

    store: Store
    keys: Keys
    job: JobName
    uid: str
    effect_thread: EffectThread
    lease: Callable[[], Lease | None]
    feed: Feed
    own: dict[str, int] = field(default_factory=dict)
    """At which revision each record of this node stood when it was last written, by its key. The
    thread of effects alone uses it."""

    def perform(self, effect: EtcdEffect) -> None:
        """Send the effect to etcd; the answer reaches `feed` from the thread of effects."""
        self.effect_thread.send(
            lambda: self._carry_out(effect),
            lambda answer: self._done(effect, answer),
            lambda exc: self._not_done(effect, exc),
        )

    def take_back(self, node: NodeId, incarnation: Incarnation) -> None:
        """Delete the record of a membership that no runner serves now, and whose workers ended.

        The node's lease would keep the record: the other members would count on this one, and wait
        for it if it is a proposer. The method writes no leave message, since nothing that the core
        knew of the job can be trusted.
        """
        self.effect_thread.send(
            lambda: self._take_back(node, incarnation),
            lambda _: None,
            lambda exc: later(TAKE_BACK_RETRY_S, lambda: self.take_back(node, incarnation)),
        )

    def _take_back(self, node: NodeId, incarnation: Incarnation) -> None:
        key = self.keys.member(self.job, node)
        item = self.store.get(key)
        if item is None or decode(Member, item.value).incarnation != incarnation:
            return
        same = ModifiedAt(key=key, revision=item.mod_revision)
        if not self.store.commit(Txn(when=(same,), then=(Delete(key=key),))).succeeded:
            raise Unavailable("Others write this member's record at the same time.")

    def _done(self, effect: EtcdEffect, answer: ev.Event) -> None:
        self.effect_thread.failed_writes.succeeded(self.job, type(effect).__name__)
        self.feed(answer)

    def _not_done(self, effect: EtcdEffect, error: ElasticdError) -> None:
        """Report the failure at once, or, where etcd refuses for good, after a pause that grows."""
        pause_s = self.effect_thread.failed_writes.failed(self.job, type(effect).__name__, error)
        answer = _failed(effect)
        if pause_s:
            later(pause_s, lambda: self.feed(answer))
        else:
            self.feed(answer)

    def _carry_out(self, effect: EtcdEffect) -> ev.Event:
        match effect:
            case fx.WriteMember(member=member):
                self._write_member(member)
                return ev.MemberWritten(member=member, ok=True)
            case fx.ProposeWorld():
                return self._propose(effect)
            case fx.WriteStatus():
                return self._write_status(effect)
            case fx.WriteResult(result=result):
                key = self.keys.result(self.job, result.node)
                self._write_own(key, encode(result), is_leased=False)
                return ev.EffectDone(name="WriteResult", ok=True)
            case fx.WriteIncident(incident=incident):
                self._held()
                self.store.commit(Txn(then=(self._put_incident(incident),)))
                return ev.EffectDone(name="WriteIncident", ok=True)
            case fx.Withdraw():
                self._withdraw(effect)
                return ev.WithdrawalDone(ok=True)
            case fx.FindOldest(count=count):
                return ev.OldestFound(nodes=self._oldest(count))

    def _write_member(self, member: Member) -> None:
        key = self.keys.member(self.job, member.node)
        self._write_own(key, encode(member), is_leased=True)

    def _write_own(self, key: str, value: bytes, *, is_leased: bool) -> None:
        """Put a record of this node's own in the place of the one that stands."""
        for _ in range(OWN_TRIES):
            self._held()
            revision = self.own.pop(key, None)  # A write without an answer leaves it unknown.
            if revision is None:
                item = self.store.get(key)
                revision = item.mod_revision if item is not None else 0
            same = ModifiedAt(key=key, revision=revision)
            put = Put(key=key, value=value, lease=self._held().id if is_leased else None)
            done = self.store.commit(Txn(when=(same,), then=(put,)))
            if done.succeeded:
                self.own[key] = done.revision
                return
        raise Unavailable(f"Others write {key} at the same time.")

    def _withdraw(self, effect: fx.Withdraw) -> None:
        """Say goodbye. The record is deleted only as it was read: a call that etcd carries out
        late, when the lease is over, must not delete what another life of the node wrote since.

        A later job of the same name gets no result of ours: it would speak of our state.
        """
        self._held()
        result = effect.result
        key = self.keys.member(self.job, result.node)
        item = self.store.get(key)
        when = [ModifiedAt(key=key, revision=item.mod_revision if item is not None else 0)]
        then: list[Put | Delete] = []
        if item is not None and _is_of(item, result.incarnation):
            then.append(Delete(key=key))
        active = self.store.get(self.keys.active_job(self.job))
        is_ours = active is None or _has_uid(active, self.uid)
        if is_ours and not self._has_earlier_result(result):
            then.append(Put(key=self.keys.result(self.job, result.node), value=encode(result)))
        elif is_ours and effect.world_revision is not None:
            world = self.keys.world(self.job)
            when.append(ModifiedAt(key=world, revision=effect.world_revision))
        self._held()
        if not self.store.commit(Txn(when=tuple(when), then=tuple(then))).succeeded:
            raise Unavailable("Others write this member's record at the same time.")

    def _has_earlier_result(self, result: Result) -> bool:
        """Return whether `result` is of an incarnation that was in no world, and the node's earlier
        one has left a result.
        """
        if result.generation:
            return False
        item = self.store.get(self.keys.result(self.job, result.node))
        with suppress(NotSupported):
            return item is not None and decode(Result, item.value).incarnation != result.incarnation
        return True

    def _put_incident(self, incident: Incident) -> Put:
        key = self.keys.incident(self.job, incident.generation, incident.node)
        dated = replace(incident, at_unix_s=round(time.time(), 3))
        return Put(key=key, value=encode(dated))

    def _propose(self, effect: fx.ProposeWorld) -> ev.ProposalAnswered:
        """Propose in one transaction: the world, the status and our own change. If that is refused,
        our own change is written alone.
        """
        own = () if effect.member is None else (self._put_member(effect.member),)
        self._held()
        stood = (ModifiedAt(key=p.key, revision=self.own[p.key]) for p in own if p.key in self.own)
        when: tuple[ModifiedAt | UnchangedSince, ...] = (
            ModifiedAt(key=self.keys.world(self.job), revision=effect.world_revision),
            ModifiedAt(key=self.keys.status(self.job), revision=effect.status_revision),
            *stood,
        )
        if effect.members_revision is not None:
            prefix = self.keys.members(self.job)
            when += (UnchangedSince(prefix=prefix, revision=effect.members_revision),)
        incidents = self.keys.incidents(self.job)
        then: tuple[Put | Delete, ...] = (
            Put(key=self.keys.world(self.job), value=encode(effect.world)),
            Put(key=self.keys.status(self.job), value=encode(effect.status)),
            self._put_incident(announced(effect.world)),
            Delete(key=incidents, until=self.keys.incidents_of(self.job, effect.oldest_kept)),
            *(Delete(key=self.keys.result(self.job, n)) for n in effect.unneeded_results),
        )
        result = self.store.commit(Txn(when=when, then=then + own))
        if result.succeeded:
            self.own.update((put.key, result.revision) for put in own)
        elif effect.member is not None:
            self._write_member(effect.member)
        return ev.ProposalAnswered(
            token=effect.world.token,
            accepted=result.succeeded,
            is_member_written=True,
            world=effect.world if result.succeeded else None,
            revision=result.revision,
        )

    def _write_status(self, effect: fx.WriteStatus) -> ev.StatusWritten:
        self._held()
        key = self.keys.status(self.job)
        then: tuple[Put | Delete, ...] = (Put(key=key, value=encode(effect.status)),)
        if effect.status.phase.is_final:
            counted = Put(key=self.keys.ended_job(self.job), value=encode(EndedJob()))
            then += (Delete(key=self.keys.active_job(self.job)), counted)
        when = (ModifiedAt(key=key, revision=effect.revision),)
        return ev.StatusWritten(ok=self.store.commit(Txn(when=when, then=then)).succeeded)

    def _oldest(self, count: int) -> tuple[NodeId, ...]:
        prefix = self.keys.members(self.job)
        keys = self.store.oldest(prefix, count)
        return tuple(NodeId(key.removeprefix(prefix)) for key in keys)

    def _put_member(self, member: Member) -> Put:
        key = self.keys.member(self.job, member.node)
        return Put(key=key, value=encode(member), lease=self._held().id)

    def _held(self) -> Lease:
        """Return the lease if it is surely alive.

        Raises: Fenced: the lease is not surely alive, so nothing may be written.
        """
        lease = self.lease()
        if lease is None or now_s() >= lease.deadline_s:
            raise Fenced("The lease of this node is not surely alive.")
        return lease


def _is_of(item: KeyValue, incarnation: Incarnation) -> bool:
    with suppress(NotSupported):
        return decode(Member, item.value).incarnation == incarnation
    return False


def _has_uid(item: KeyValue, uid: str) -> bool:
    with suppress(NotSupported):
        return decode(Active, item.value).uid == uid
    return False


def _failed(effect: EtcdEffect) -> ev.Event:
    match effect:
        case fx.WriteMember(member=member):
            return ev.MemberWritten(member=member, ok=False)
        case fx.ProposeWorld(world=world):
            return ev.ProposalAnswered(token=world.token, accepted=False, is_member_written=False)
        case fx.WriteStatus():
            return ev.StatusWritten(ok=False)
        case fx.Withdraw():
            return ev.WithdrawalDone(ok=False)
        case _:
            return ev.EffectDone(name=type(effect).__name__, ok=False)


def effects_of(host: AgentServices, spec: JobSpec, feed: Feed) -> EtcdEffects:
    """Return what carries out the effects of a job that this agent serves."""
    return EtcdEffects(
        store=host.store,
        keys=host.keys,
        job=spec.name,
        uid=spec.uid,
        effect_thread=host.effect_thread,
        lease=host.lease,
        feed=feed,
    )

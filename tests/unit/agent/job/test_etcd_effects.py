"""What the effects on etcd write, and what of it stays."""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import pytest

from elasticd.errors import ElasticdError, Refused
from elasticd.records.account.incident import Incident
from elasticd.records.codec import decode, encode
from elasticd.records.failure import TRACEBACK_LIMIT_BYTES
from elasticd.records.ids import Generation, JobName, NodeId
from elasticd.records.job import Active
from elasticd.records.keys import Keys
from elasticd.records.member import Member, Result
from elasticd.records.world import World
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous import history
from elasticd.rendezvous.next_world import exclusion
from elasticd.rendezvous.next_world.propose import propose
from elasticd.rendezvous.persistent_map import PersistentMap
from elasticd.rendezvous.state import SeenMember, replace
from elasticd.store.api import Delete, Put, Txn, TxnResult
from elasticd.store.memory import MemoryStore
from elasticd_agent.job import etcd_effects as perform
from elasticd_agent.job.etcd_effects import EtcdEffects
from elasticd_agent.loop.effect_thread import EffectThread
from elasticd_agent.loop.failed_writes import FailedWrites
from tests.fixtures.captured_log import captured_log
from tests.unit.rendezvous.cases import (
    Told,
    failure,
    incarnation,
    member,
    name,
    proposer,
    result,
    running,
    store,
    world,
)

T = TypeVar("T")
JOB = JobName("train")
KEYS = Keys()
EARLY = 100
"""By then all that is kept has been there: generations and exclusions."""


class PromptEffects(EffectThread):
    """Carries an effect out in the call, on the caller's thread."""

    def __init__(self) -> None:
        self.failed_writes = FailedWrites()

    def send(
        self,
        effect: Callable[[], T],
        answer: Callable[[T], None],
        failed: Callable[[ElasticdError], None],
    ) -> None:
        try:
            result = effect()
        except ElasticdError as exc:
            failed(exc)
        else:
            answer(result)


class Etcd:
    """One job's records, and the effects that write them."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.answers: list[ev.Event] = []
        lease = self.store.grant(5.0, lambda: None)
        self.performer = EtcdEffects(
            store=self.store,
            keys=KEYS,
            job=JOB,
            uid="uid",
            effect_thread=PromptEffects(),
            lease=lambda: lease,
            feed=self.answers.append,
        )

    def perform(self, effect: perform.EtcdEffect) -> ev.Event:
        self.performer.perform(effect)
        return self.answers.pop()

    def revision(self, key: str) -> int:
        item = self.store.get(key)
        assert item is not None
        return item.mod_revision

    def weight_bytes(self) -> int:
        return sum(len(i.key) + len(i.value) for i in self.store.list(KEYS.job(JOB)).items)


def _next_world(told: Told, etcd: Etcd, spot: int) -> None:
    """node-0 goes on with another spot machine; everybody writes what it writes at a change."""
    results = (decode(Result, i.value) for i in etcd.store.list(KEYS.results(JOB)).items)
    here = (member(0), member(spot))
    seen = (SeenMember(member=each, create_revision=1, mod_revision=1, seen_s=0.0) for each in here)
    told.state, effects = propose(
        replace(
            told.state,
            members=PersistentMap((s.member.node, s) for s in seen),
            results=PersistentMap((r.node, r) for r in results),
            members_revision=etcd.revision(KEYS.world(JOB)),
            world_revision=etcd.revision(KEYS.world(JOB)),
            status_revision=etcd.revision(KEYS.status(JOB)),
            stores=(store(0, 10 + spot),),
            plan_at_s=told.now_s,
            is_member_in_flight=False,
            proposal="",
        ),
        now_s=told.now_s,
    )
    (effect,) = effects
    assert isinstance(effect, fx.ProposeWorld)
    answer = etcd.perform(dataclasses.replace(effect, members_revision=None))
    assert isinstance(answer, ev.ProposalAnswered) and answer.accepted
    told.state = replace(told.state, world=effect.world, status=effect.status, formed_s=told.now_s)
    for node in (name(0), name(spot)):
        etcd.perform(fx.WriteIncident(incident=_incident(effect.world, node)))
    left = Result(
        node=name(spot),
        incarnation=incarnation(spot),
        generation=effect.world.generation,
        has_left=True,
    )
    etcd.perform(fx.Withdraw(result=left, world_revision=None))


def _incident(world: World, node: NodeId) -> Incident:
    return Incident(
        generation=world.generation,
        node=node,
        host=node,
        reason=world.reason,
        culprit=world.culprit,
        lost=world.lost,
    )


@pytest.mark.parametrize("changes", [500, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(300)
def test_what_a_running_job_leaves_in_etcd_is_bounded(
    changes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many machines come and go, each under a new name and with a goodbye."""
    monkeypatch.setattr(history, "GENERATIONS_KEPT", 50)
    monkeypatch.setattr(exclusion, "_EXCLUSIONS_KEPT", 10)
    told, etcd = proposer(), Etcd()
    assert told.state.world is not None and told.state.status is not None
    puts = (
        Put(key=KEYS.world(JOB), value=encode(told.state.world)),
        Put(key=KEYS.status(JOB), value=encode(told.state.status)),
    )
    etcd.store.commit(Txn(then=puts))
    early_bytes = 0
    for spot in range(1, changes + 1):
        _next_world(told, etcd, spot)
        if spot == EARLY:
            early_bytes = etcd.weight_bytes()
    assert told.state.world.generation == changes + 1
    assert etcd.weight_bytes() <= 1.1 * early_bytes


def test_incidents_tell_the_culprit_a_few_times_only() -> None:
    """A thousand copies of one traceback would fill etcd within weeks."""
    culprit = dataclasses.replace(failure(), traceback="x" * TRACEBACK_LIMIT_BYTES)
    last = world(2, *range(9), culprit=culprit, lost=(name(9),))
    sizes = []
    for index in range(9):
        told = Told(index, max_nodes=9)
        told.standby()
        told.status(running(2))
        told.world(last)
        told.up(nonce=2)
        effect = told.one(fx.WriteIncident)
        assert isinstance(effect, fx.WriteIncident)
        assert (effect.incident.culprit is None) == (not effect.incident.lost)
        sizes.append(len(encode(effect.incident)))
    assert sum(size > TRACEBACK_LIMIT_BYTES for size in sizes) == 3
    assert max(sizes[3:]) < 400


def test_world_is_announced_until_its_proposer_tells_more() -> None:
    """No generation is missing from `why`, also where nobody arrives before the next one."""
    told, etcd = proposer(1), Etcd()
    told.member(member(1, arrived=1, nonce=2, failed=failure(1, rank=1, signal="SIGKILL")))
    effect = told.one(fx.ProposeWorld)
    assert isinstance(effect, fx.ProposeWorld)
    first = dataclasses.replace(effect, world_revision=0, status_revision=0, members_revision=None)
    etcd.perform(first)
    (item,) = etcd.store.list(KEYS.incidents(JOB)).items
    found = decode(Incident, item.value)
    assert found.is_announced and found.at_unix_s > 0
    assert (found.generation, found.culprit) == (2, failure(1, rank=1, signal="SIGKILL"))
    etcd.perform(fx.WriteIncident(incident=_incident(effect.world, name(0))))
    (item,) = etcd.store.list(KEYS.incidents(JOB)).items
    assert not decode(Incident, item.value).is_announced


class RefusingStore(MemoryStore):
    why = ""

    def commit(self, txn: Txn) -> TxnResult:
        if self.why:
            raise Refused(self.why)
        return super().commit(txn)


def test_what_etcd_refuses_is_logged_once_and_tried_ever_more_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten times a second and without a word, as it was, it helped nobody."""
    store = RefusingStore()
    etcd = Etcd(store)
    failed_writes = etcd.performer.effect_thread.failed_writes
    pauses: list[float] = []

    def later(pause_s: float, call: Callable[[], object]) -> None:
        pauses.append(pause_s)
        call()

    monkeypatch.setattr(perform, "later", later)
    write = fx.WriteMember(member=member(0))
    with captured_log() as logs:
        for why in (*["full"] * 7, "not permitted", "full"):
            store.why = why
            assert etcd.perform(write) == ev.MemberWritten(member=member(0), ok=False)
            assert failed_writes.sentence == why
        store.why = ""
        assert etcd.perform(write) == ev.MemberWritten(member=member(0), ok=True)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0]
    failed = [(line["event"], line["what"], line.get("why")) for line in logs]
    assert failed == [
        ("etcd.write_failed", "WriteMember", "full"),
        ("etcd.write_failed", "WriteMember", "not permitted"),
        ("etcd.write_succeeded", "WriteMember", None),
    ]
    assert failed_writes.sentence == ""


def test_an_etcd_that_is_away_is_tried_again_at_once() -> None:
    """The store itself has waited for seconds by then, and the lease says that it is away."""
    store = MemoryStore()
    etcd = Etcd(store)
    store.go_away()
    answer = etcd.perform(fx.WriteMember(member=member(0)))
    assert answer == ev.MemberWritten(member=member(0), ok=False)
    assert etcd.performer.effect_thread.failed_writes.sentence == ""


def test_what_a_job_failed_to_write_is_forgotten_with_it() -> None:
    """Another job of this node may be well."""
    failed_writes = FailedWrites()
    failed_writes.failed(JOB, "WriteMember", Refused("full"))
    failed_writes.forget(JOB)
    assert failed_writes.sentence == ""


class Late(MemoryStore):
    """Carries a goodbye out when another life of the node has written its record."""

    is_late = False

    def commit(self, txn: Txn) -> TxnResult:
        if self.is_late:
            self.is_late = False
            put_member(self, life=2)
        return super().commit(txn)


def put_member(store: MemoryStore, *, life: int) -> None:
    record = encode(member(0, life=life))
    store.commit(Txn(then=(Put(key=KEYS.member(JOB, name(0)), value=record),)))


@pytest.mark.parametrize("is_seen", [True, False])
def test_goodbye_that_comes_late_leaves_the_record_of_another_life(is_seen: bool) -> None:
    """The lease may be over by then: what is deleted is not under it."""
    etcd = Etcd(Late())
    put_member(etcd.store, life=2 if is_seen else 1)
    goodbye = fx.Withdraw(result=result(0, 1, code=None, has_left=True), world_revision=None)
    if not is_seen:
        assert isinstance(etcd.store, Late)
        etcd.store.is_late = True
        assert etcd.perform(goodbye) == ev.WithdrawalDone(ok=False)
    assert etcd.perform(goodbye) == ev.WithdrawalDone(ok=True)
    item = etcd.store.get(KEYS.member(JOB, name(0)))
    assert item is not None and decode(Member, item.value).incarnation == incarnation(0, life=2)
    put_member(etcd.store, life=1)
    assert etcd.perform(goodbye) == ev.WithdrawalDone(ok=True)
    assert etcd.store.get(KEYS.member(JOB, name(0))) is None


def test_goodbye_leaves_no_result_to_a_later_job_of_the_same_name() -> None:
    """It would say of the new job what the old one saved."""
    etcd = Etcd()
    put_member(etcd.store, life=1)
    goodbye = fx.Withdraw(result=result(0, 1, code=None, has_left=True), world_revision=None)
    for uid, is_written in (("another", False), ("uid", True)):
        active = encode(Active(uid=uid, is_ready=True))
        etcd.store.commit(Txn(then=(Put(key=KEYS.active_job(JOB), value=active),)))
        assert etcd.perform(goodbye) == ev.WithdrawalDone(ok=True)
        assert etcd.store.get(KEYS.member(JOB, name(0))) is None
        assert (etcd.store.get(KEYS.result(JOB, name(0))) is not None) is is_written


class Repeating(MemoryStore):
    """Keeps what it is asked to write, to carry it out once more: a member of etcd that stood still
    passes on to the leader what has been sent to another member since.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Txn] = []

    def commit(self, txn: Txn) -> TxnResult:
        self.asked.append(txn)
        return super().commit(txn)

    def repeat(self, number: int) -> None:
        super().commit(self.asked[number])


def record_of(store: MemoryStore) -> Member | None:
    item = store.get(KEYS.member(JOB, name(0)))
    return decode(Member, item.value) if item is not None else None


@pytest.mark.parametrize("is_refused_proposal", [False, True])
def test_record_that_etcd_writes_late_undoes_no_newer_one(is_refused_proposal: bool) -> None:
    """Nobody would write the newer one again: the others would wait for this node for ever."""
    etcd = Etcd(Repeating())
    assert isinstance(etcd.store, Repeating)
    importing, ready = member(0, slots=0), member(0, slots=2)
    if is_refused_proposal:
        answer = etcd.perform(_refused_proposal(importing))
        assert isinstance(answer, ev.ProposalAnswered)
        assert not answer.accepted and answer.is_member_written
        assert record_of(etcd.store) == importing
    else:
        assert etcd.perform(fx.WriteMember(member=importing)) == _written(importing)
    assert etcd.perform(fx.WriteMember(member=ready)) == _written(ready)
    etcd.store.repeat(0)
    assert record_of(etcd.store) == ready
    etcd.perform(fx.Withdraw(result=result(0, 1, code=None, has_left=True), world_revision=None))
    etcd.store.repeat(-2)
    assert record_of(etcd.store) is None


def _goodbye_of_an_incarnation(generation: int, *, world_revision: int | None) -> fx.Withdraw:
    left = dataclasses.replace(
        result(0, generation, code=None, has_left=True), incarnation=incarnation(0, life=2)
    )
    return fx.Withdraw(result=left, world_revision=world_revision)


def _result_in(etcd: Etcd) -> Result:
    item = etcd.store.get(KEYS.result(JOB, name(0)))
    assert item is not None
    return decode(Result, item.value)


def test_incarnation_that_was_in_no_world_leaves_the_result_of_the_one_before() -> None:
    """A node was drained twice as its job ended: the exit 0 of its rank was known to nobody, and
    the job trained anew.
    """
    etcd = Etcd()
    etcd.perform(fx.Withdraw(result=result(0, 1, has_left=True), world_revision=0))
    put_member(etcd.store, life=2)
    goodbye = _goodbye_of_an_incarnation(0, world_revision=0)
    assert etcd.perform(goodbye) == ev.WithdrawalDone(ok=True)
    assert etcd.store.get(KEYS.member(JOB, name(0))) is None
    assert _result_in(etcd) == result(0, 1, has_left=True)
    assert etcd.perform(_goodbye_of_an_incarnation(2, world_revision=0)) == ev.WithdrawalDone(
        ok=True
    )
    assert _result_in(etcd).generation == 2, "it was in a world: the one before is history"


@pytest.mark.parametrize("is_over", [True, False])
def test_incarnation_leaves_no_world_that_named_it_without_a_word(is_over: bool) -> None:
    """Without its result, the members of that world would wait until its lease has run out."""
    etcd = Etcd()
    etcd.perform(fx.WriteResult(result=result(0, 1)))
    etcd.store.commit(Txn(then=(Put(key=KEYS.world(JOB), value=encode(world(2, 0, 1))),)))
    goodbye = _goodbye_of_an_incarnation(0, world_revision=None if is_over else 0)
    assert etcd.perform(goodbye) == ev.WithdrawalDone(ok=is_over)
    known = etcd.revision(KEYS.world(JOB))
    again = dataclasses.replace(goodbye, world_revision=known)
    assert etcd.perform(again) == ev.WithdrawalDone(ok=True)


def test_result_that_etcd_writes_late_undoes_no_newer_one() -> None:
    """The rank that finished last would be missing, and the job would never be over."""
    etcd = Etcd(Repeating())
    assert isinstance(etcd.store, Repeating)
    first, last = result(0, 1, code=None), result(0, 1)
    for each in (first, last):
        assert etcd.perform(fx.WriteResult(result=each)) == ev.EffectDone(
            name="WriteResult", ok=True
        )
    etcd.store.repeat(0)
    item = etcd.store.get(KEYS.result(JOB, name(0)))
    assert item is not None and decode(Result, item.value) == last


def test_record_that_somebody_deleted_is_written_again() -> None:
    """It stood at a revision that is gone."""
    etcd = Etcd()
    record = member(0)
    assert etcd.perform(fx.WriteMember(member=record)) == _written(record)
    etcd.store.commit(Txn(then=(Delete(key=KEYS.member(JOB, name(0))),)))
    assert etcd.perform(fx.WriteMember(member=record)) == _written(record)
    assert record_of(etcd.store) == record


def _written(record: Member) -> ev.MemberWritten:
    return ev.MemberWritten(member=record, ok=True)


def _refused_proposal(record: Member) -> fx.ProposeWorld:
    """Another world stands than the one that it was made for."""
    return fx.ProposeWorld(
        world=world(2, 0),
        status=running(2),
        world_revision=99,
        status_revision=99,
        members_revision=None,
        member=record,
        oldest_kept=Generation(0),
        unneeded_results=(),
    )

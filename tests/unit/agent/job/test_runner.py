"""One job on this node, and what is left of it where a bug of ours ends it."""

import json
import queue
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from elasticd.channel.worker import Beat, Progressed
from elasticd.goodput.cause import TimeCause
from elasticd.records.account.incident import Incident
from elasticd.records.account.time_spent import JobProgress, TimeSpent
from elasticd.records.codec import decode, encode
from elasticd.records.ids import Generation, Incarnation, JobName, Nonce, Rank, Slot
from elasticd.records.keys import Keys
from elasticd.records.member import Member
from elasticd.records.reason import Reason
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.own_record import desired_result
from elasticd.rendezvous.state import JobState, Past, Worker
from elasticd.store.api import Put, Txn
from elasticd.store.memory import MemoryStore
from elasticd_agent.account.account_book import AccountBook
from elasticd_agent.account.job_account import JobAccount
from elasticd_agent.job import runner as module
from elasticd_agent.job.agent_services import AgentServices
from elasticd_agent.job.job_guard import JobGuard
from elasticd_agent.job.runner import Runner
from elasticd_agent.late.late_judge import LateJudge
from elasticd_agent.loop.effect_thread import EffectThread
from elasticd_agent.loop.inbox import Item
from elasticd_agent.metrics.job_meters import JobMeters
from elasticd_agent.workers.attached_workers import AttachedWorkers
from elasticd_agent.workers.final_save import FinalSaves
from tests.fixtures.patience import patience_s
from tests.fixtures.pool import ChildrenOfTest
from tests.sim.schedule import spec_of
from tests.unit.rendezvous.cases import incarnation, member, name

WAIT_S = patience_s(30.0)
KEYS = Keys()
JOB = JobName("job")


class NoWorkers:
    """There are none; the pool is up."""

    def __init__(self, **given: object) -> None:
        self.attached = AttachedWorkers(lambda pid, message: None, lambda event: None)

    def serve(self, incarnation: Incarnation, feed: object, broke: object) -> None: ...


class Scene:
    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        run_folder: Path = Path("/nowhere"),
        store: MemoryStore | None = None,
    ) -> None:
        monkeypatch.setattr(module, "Workers", NoWorkers)
        self.store, self.effect_thread = store or MemoryStore(), EffectThread()
        self.lease = self.store.grant(5.0, lambda: None)
        self.inbox = inbox = queue.SimpleQueue[Item]()
        self.runners: dict[JobName, Runner] = {}
        self.meters = JobMeters()
        guard = JobGuard(inbox.put, self.runners)

        def guarded(item: Callable[[], None]) -> None:
            guard.run(JOB, item)

        host = AgentServices(
            node=name(0),
            host="here",
            address="10.0.0.1",
            port=7000,
            environ={},
            store=self.store,
            keys=KEYS,
            effect_thread=self.effect_thread,
            lease=lambda: self.lease,
            post=guard.post_for(JOB),
            guard=guarded,
            children=ChildrenOfTest(),
            fork_server=None,
            monitor=None,  # type: ignore[arg-type]
            accounts=AccountBook(),
            run_folder=run_folder,
            event_log=None,
            is_for_one_job=False,
            meters=self.meters,
        )
        spec = spec_of(name=JOB)
        slots = (Slot(0),)
        self.changes: list[str] = []
        """One for each time that the agent is told to look at its jobs."""
        told = partial(self.changes.append, "told")
        self.runner = Runner(host, spec, 1, incarnation(0), slots, told, Past())
        self.runners[JOB] = self.runner

    def writes(self, value: Member) -> None:
        key = KEYS.member(JOB, value.node)
        self.store.commit(Txn(then=(Put(key=key, value=encode(value), lease=self.lease.id),)))

    def crashes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have the core break at the next event."""

        def breaks(*_: object, **__: object) -> None:
            raise KeyError("worker")

        monkeypatch.setattr(module, "decide", breaks)
        self.runner.feed(ev.LeaseHeld())

    def counted(self) -> int:
        """Steps, by the job's meter."""
        (reading,) = self.meters.readings().jobs
        return reading.counts.steps

    def done(self) -> None:
        """Wait for what the effect_thread was given."""
        done = queue.Queue[None]()
        self.effect_thread.send(lambda: None, done.put, lambda exc: None)
        done.get(timeout=WAIT_S)


def test_an_event_that_breaks_the_core_ends_the_job_here_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever tells it: the lease, a peer, a worker, a signal."""
    scene = Scene(monkeypatch)
    scene.crashes(monkeypatch)
    assert scene.runner.retired is not None and "KeyError" in scene.runner.retired.error


def test_slots_that_a_job_gives_back_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for them is given them then: nothing else might happen on this node for hours."""
    scene = Scene(monkeypatch)
    scene.runner.feed(ev.SlotsGranted(slots=(Slot(0), Slot(1))))
    before = len(scene.changes)
    scene.runner.feed(ev.SlotsGranted(slots=(Slot(1),)))
    assert scene.runner.state.slots == (Slot(1),)
    assert len(scene.changes) > before


@pytest.mark.parametrize("life", [1, 2])
def test_nobody_is_left_among_the_members_that_nobody_serves(
    monkeypatch: pytest.MonkeyPatch, life: int
) -> None:
    """The node's lease lives on: of a proposer the others would wait for a world without end."""
    scene = Scene(monkeypatch)
    scene.done()
    scene.writes(member(0, life=life))
    scene.crashes(monkeypatch)
    key = KEYS.member(JOB, name(0))
    assert scene.store.get(key) is not None, "its workers may still run"
    scene.runner.ended()
    scene.done()
    is_own = life == 1
    assert (scene.store.get(key) is None) == is_own


def test_an_incident_says_what_the_change_cost_and_the_account_follows_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In etcd and in the job's folder; what the agent counted so far is written behind it."""
    scene = Scene(monkeypatch, tmp_path)
    (tmp_path / JOB).mkdir()
    monkeypatch.setattr(scene.runner.account, "change_s", lambda _: {TimeCause.RECOVER: 3.004})
    node, one = name(0), Generation(1)
    incident = Incident(generation=one, node=node, host="h", reason=Reason.NODE_LOST)
    scene.runner._perform(fx.WriteIncident(incident=incident))
    scene.done()
    item = scene.store.get(KEYS.incident(JOB, one, node))
    assert item is not None
    assert decode(Incident, item.value).spent_s == {"recover": 3.0}
    (spent,) = scene.store.list(KEYS.times_spent(JOB)).items
    assert decode(TimeSpent, spent.value).slots == 1
    scene.runner._incidents.file.wait(WAIT_S)
    (line,) = (tmp_path / JOB / "incidents.jsonl").read_text().splitlines()
    assert json.loads(line)["spent_s"] == {"recover": 3.0}


def test_in_restart_mode_the_way_to_the_first_step_is_told_when_it_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same record once more, with what it adds; only once, and of the standing world."""
    scene = Scene(monkeypatch, tmp_path)
    account, one = scene.runner.account, Generation(1)
    costs = iter([{TimeCause.RECOVER: 1.0}, {TimeCause.RECOVER: 2.5}])
    monkeypatch.setattr(account, "change_s", lambda _: next(costs))
    monkeypatch.setattr(JobAccount, "way_s", 2.5)
    account.generations.observe(one, 0.0)
    incident = Incident(
        generation=one, node=name(0), host="h", reason=Reason.NODE_LOST, phases_s={"start": 0.5}
    )
    scene.runner._perform(fx.WriteIncident(incident=incident))
    counted: list[Incident] = []
    monkeypatch.setattr(scene.runner._meter, "count_more", lambda _, told: counted.append(told))
    monkeypatch.setattr(account, "count_reported_steps", lambda *_: True)
    for _ in range(2):
        scene.runner._progressed(Slot(0), Nonce(1), Progressed(step=1))
    assert [each.phases_s for each in counted] == [{"start": 0.5, "step": 2.5}]
    scene.done()
    item = scene.store.get(KEYS.incident(JOB, one, name(0)))
    assert item is not None
    found = decode(Incident, item.value)
    assert found.phases_s == {"start": 0.5, "step": 2.5}
    assert found.spent_s == {"recover": 3.5}
    assert found.step == 0


def test_an_agent_learns_how_far_the_job_was_before_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else steps that are done again after all nodes were lost would count as new ones."""
    scene = Scene(monkeypatch)
    progress = JobProgress(uid=scene.runner.spec.uid, step=70)
    scene.store.commit(Txn(then=(Put(key=KEYS.progress(JOB), value=encode(progress)),)))
    writer = scene.runner.account.writer
    assert writer is not None
    assert writer.furthest(scene.runner.spec.uid) == 70
    assert writer.furthest("another") == 0
    known: list[int] = []
    monkeypatch.setattr(JobAccount, "note_furthest", lambda self, step: known.append(step))
    again = Scene(monkeypatch, store=scene.store)
    again.done()
    while not again.inbox.empty():
        again.inbox.get()()
    assert known == [70]


def test_the_account_is_written_again_before_the_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes it over then knows that nothing is missing."""
    scene = Scene(monkeypatch)
    scene.runner.workers.final_saves = FinalSaves(scene.runner.workers.attached, is_wanted=False)
    scene.runner._perform(
        fx.Withdraw(result=desired_result(scene.runner.state, has_left=True), world_revision=None)
    )
    scene.done()
    (spent,) = scene.store.list(KEYS.times_spent(JOB)).items
    assert decode(TimeSpent, spent.value).is_last


def test_an_account_is_not_written_without_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    monkeypatch.setattr(scene, "lease", None)
    scene.runner._recording.write(scene.runner.state, 0.0)
    scene.done()
    assert not scene.store.list(KEYS.times_spent(JOB)).items


@pytest.mark.parametrize(
    ("first_step", "told", "lost"), [(1, 0, 89), (89, 0, 1), (90, 1, 1), (90, 0, 0)]
)
def test_steps_that_no_process_remembers_are_lost_too(
    first_step: int, told: int, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes were killed at step 89: those that begin anew say that they repeat nothing."""
    scene = Scene(monkeypatch)
    decided: list[ev.Event] = []

    def decides(state: JobState, event: ev.Event, **_: object) -> tuple[JobState, tuple[()]]:
        decided.append(event)
        return state, ()

    monkeypatch.setattr(module, "decide", decides)
    generations = scene.runner.account.generations
    generations.commit(89)
    generations.observe(Generation(2), 0.0)
    stepped = ev.WorkerStepped(
        slot=Slot(0),
        nonce=Nonce(1),
        generation=Generation(2),
        step=first_step,
        lost_steps=told,
    )
    scene.runner.feed(stepped)
    assert decided == [replace(stepped, lost_steps=lost)]


def test_what_workers_say_of_their_steps_is_counted_while_the_job_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A heartbeat in a world, and what a script of restart mode tells; its meter outlives it."""
    scene = Scene(monkeypatch)
    runner, attached = scene.runner, scene.runner.workers.attached
    worker = Worker(slot=Slot(0), nonce=Nonce(1), generation=Generation(1), rank=Rank(0))
    runner.state = replace(runner.state, workers={Slot(0): worker})
    for nonce, step in ((1, 7), (1, 9), (2, 99)):  # The last one is of a process that was before.
        attached.progressed(Slot(0), Nonce(nonce), Progressed(step=step, first_step=7))
    assert scene.counted() == 3
    beat = Beat(generation=Generation(2), step=12, step_s=0.1, batches=1, sequence=1)
    attached.rank_heard(Rank(0), beat, 10)
    assert scene.counted() > 3
    runner.close()
    assert scene.counted() > 3


def test_waits_of_steps_and_late_nodes_are_in_the_jobs_meter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What this membership measures and judges, at the moment of the scrape."""
    scene = Scene(monkeypatch)
    scene.runner.node_waits.total_s = 2.5
    monkeypatch.setattr(LateJudge, "ratio", 0.3)
    (reading,) = scene.meters.readings().jobs
    assert (reading.step_wait_s, reading.late_ratio) == (2.5, 0.3)

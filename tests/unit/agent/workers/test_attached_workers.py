"""What an agent keeps of what its workers say of their progress."""

import math
from pathlib import Path

import pytest

from elasticd.channel import worker as ch
from elasticd.records.ids import Generation, Nonce, Rank, Slot
from elasticd.rendezvous import event as ev
from elasticd_agent.worker_setup.worker_env import WorkerFiles
from elasticd_agent.workers.attached_workers import NOT_FINITE_LIMIT, AttachedWorkers
from tests.unit.rendezvous.cases import world

PID = 4711
ONE = Generation(1)


class Node:
    def __init__(self) -> None:
        self.fed: list[ev.Event] = []
        self.attached = AttachedWorkers(lambda pid, message: None, self.fed.append)
        self.attached.expect(PID, Slot(0), Nonce(1))
        self.receive(ch.Formed(generation=ONE, step=0))

    def receive(self, message: ch.FromWorker) -> None:
        self.attached.receive(PID, message)

    def beat(self, step: int, **rest: object) -> None:
        given: dict[str, object] = {"step_s": 0.1, "batches": 1, "sequence": 1, **rest}
        self.receive(ch.Beat(generation=ONE, step=step, **given))  # type: ignore[arg-type]


def test_age_of_the_last_commit_is_that_of_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats go on while nothing is committed."""
    node = Node()
    for at_s in (11.0, 12.0, 19.0):
        monkeypatch.setattr("elasticd_agent.workers.attached_workers.now_s", lambda at_s=at_s: at_s)
        node.beat(3, epoch=2)
    found = node.attached.progress_of(PID)
    assert found is not None
    assert (found.step, found.epoch, found.committed_at_s) == (3, 2, 11.0)


def test_what_is_read_late_is_as_old_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent was stopped: its workers had ended seconds before it read of their last commit."""
    monkeypatch.setattr("elasticd_agent.workers.attached_workers.now_s", lambda: 17.0)
    node, heard = Node(), []
    node.attached.on_beat = lambda slot, nonce, beat: heard.append(beat.committed_ago_s)
    node.beat(3, committed_ago_s=0.5, sent_s=12.0)
    node.beat(3, committed_ago_s=0.5, sent_s=17.1)
    node.beat(3, committed_ago_s=0.5)
    assert heard == [5.5, 0.5, 0.5]
    node.receive(ch.Entered(generation=ONE, committed_ago_s=0.25, sent_s=16.0))
    (entered,) = [event for event in node.fed if isinstance(event, ev.WorkerEntered)]
    assert entered.committed_ago_s == 1.25


def test_number_that_is_not_finite_is_kept_with_its_first_step() -> None:
    """It is shown as long as the job runs, and told in what stays of it."""
    node = Node()
    node.beat(3, scalars={"loss": 0.5})
    node.beat(4, scalars={"loss": math.nan, "norm": 1.0})
    node.beat(9, scalars={"loss": math.nan, "norm": 1.0})
    found = node.attached.progress_of(PID)
    assert found is not None
    assert (found.scalars, found.not_finite) == ({"norm": 1.0}, {"loss": 4})
    node.receive(ch.Finished(step=9, epochs=1, samples=9, repeated=0, skipped=0))
    (done,) = [event for event in node.fed if isinstance(event, ev.WorkerFinished)]
    assert done.training.note == "loss was not finite, first seen at step 4"


def test_new_names_for_ever_are_not_kept() -> None:
    """A script that puts the step's number into the name; its result must fit into etcd."""
    node = Node()
    for step in range(10 * NOT_FINITE_LIMIT):
        node.beat(step, scalars={f"loss-{step}": math.nan})
    found = node.attached.progress_of(PID)
    assert found is not None and len(found.not_finite) == NOT_FINITE_LIMIT


def test_heartbeat_is_heard_with_the_rank_of_its_generation() -> None:
    """A worker is told its next rank while it still makes steps as the old one."""
    heard: list[tuple[Rank, int, int]] = []
    attached = AttachedWorkers(lambda pid, message: None, lambda event: None)
    attached.rank_heard = lambda rank, beat, formed: heard.append((rank, beat.step, formed))
    attached.expect(PID, Slot(0), Nonce(1))
    files = WorkerFiles(out=Path("o"), err=Path("e"), error=Path("r"))

    def enters(generation: int, *nodes: int) -> None:
        standing = world(generation, *nodes)
        placement = next(p for p in standing.placements() if p.node.node == "node-0")
        attached.enter(PID, standing, placement, files)

    def beats(generation: int, step: int) -> None:
        now = Generation(generation)
        attached.receive(PID, ch.Beat(generation=now, step=step, step_s=1, batches=1, sequence=1))

    beats(1, 1)  # Of nobody that was told of a world.
    enters(1, 0, 1)
    attached.receive(PID, ch.Formed(generation=ONE, step=10))
    beats(1, 11)
    enters(2, 1, 0)
    beats(1, 12)
    attached.receive(PID, ch.Formed(generation=Generation(2), step=12))
    beats(1, 13)
    beats(2, 14)
    assert heard == [(0, 11, 10), (0, 12, 10), (1, 14, 12)]


def test_backend_of_a_group_that_formed_goes_to_the_core() -> None:
    """An older worker names none."""
    found: list[ev.Event] = []
    attached = AttachedWorkers(lambda pid, message: None, found.append)
    attached.expect(PID, Slot(0), Nonce(1))
    attached.receive(PID, ch.Formed(generation=ONE, step=0, backend="cpu:gloo,cuda:nccl"))
    attached.receive(PID, ch.Formed(generation=ONE, step=0))
    assert [e.backend for e in found if isinstance(e, ev.WorkerFormed)] == [
        "cpu:gloo,cuda:nccl",
        "",
    ]


def test_script_of_restart_mode_shows_what_it_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """To people alone: no event is made of it, and a failure does not depend on it."""
    monkeypatch.setattr("elasticd_agent.workers.attached_workers.now_s", lambda: 50.0)
    fed: list[ev.Event] = []
    heard: list[int] = []
    attached = AttachedWorkers(lambda pid, message: None, fed.append)
    attached.progressed = lambda slot, nonce, told: heard.append(told.step)
    attached.expect(PID, Slot(0), Nonce(1))
    assert attached.shown_progress(PID) is None
    for step, loss in ((7, math.nan), (8, 0.5)):
        scalars = {"loss": loss}
        told = ch.Progressed(step=step, epoch=2, scalars=scalars, told_ago_s=1.5, step_s=0.1)
        attached.receive(PID, told)
    found = attached.shown_progress(PID)
    assert found is not None
    assert (found.step, found.epoch, found.step_s, found.is_told) == (8, 2, 0.1, True)
    assert (found.scalars, found.not_finite) == ({"loss": 0.5}, {"loss": 7})
    assert found.committed_at_s == 48.5
    assert (attached.progress_of(PID), fed, heard) == (None, [], [7, 8])


def test_what_a_script_told_before_run_is_forgotten() -> None:
    """Its heartbeats count steps that were committed; a late word of the other kind does not."""
    node = Node()
    node.receive(ch.Attached(pid=PID))
    node.beat(3)
    node.receive(ch.Progressed(step=99))
    found = node.attached.shown_progress(PID)
    assert found is not None
    assert found.step == 3


def test_commits_of_a_script_that_told_of_its_steps_before_are_commits() -> None:
    """And are said to be."""
    attached = AttachedWorkers(lambda pid, message: None, lambda event: None)
    attached.expect(PID, Slot(0), Nonce(1))
    attached.receive(PID, ch.Progressed(step=99))
    attached.receive(PID, ch.Attached(pid=PID))
    attached.receive(PID, ch.Formed(generation=ONE, step=0))
    attached.receive(PID, ch.Beat(generation=ONE, step=3, step_s=0.1, batches=3, sequence=3))
    found = attached.shown_progress(PID)
    assert found is not None and (found.step, found.is_told) == (3, False)

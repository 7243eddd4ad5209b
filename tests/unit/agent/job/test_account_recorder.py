"""When an agent writes down its account, and what stands in it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from elasticd.errors import ElasticdError, Unavailable
from elasticd.goodput.cause import TimeCause
from elasticd.records.ids import Generation, Rank
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.state import JobState
from elasticd_agent.account.record_writer import AccountReading
from elasticd_agent.account.slot_history import spent_between
from elasticd_agent.job import account_recorder as module
from elasticd_agent.job.account_recorder import EVERY_S, RANK_0_EVERY_S, AccountRecorder
from tests.unit.agent.account.account_case import Accounted, beat, training_job
from tests.unit.rendezvous.cases import NOW_S


class FakeEffectThread:
    """Keeps what it is given until the test has it answered."""

    def __init__(self) -> None:
        self.effects: list[Callable[[], object]] = []
        self.failed: list[Callable[[ElasticdError], None]] = []
        self.answers: list[Callable[[Any], None]] = []

    def send(self, effect: Any, answer: Any, failed: Any) -> None:
        self.effects.append(effect)
        self.answers.append(answer)
        self.failed.append(failed)


class Lease:
    deadline_s = float("inf")


class Writer:
    def __init__(self) -> None:
        self.readings: list[AccountReading] = []

    def write(self, reading: AccountReading) -> None:
        self.readings.append(reading)


class Scene:
    def __init__(self, told: Accounted) -> None:
        self.told, self.effect_thread, self.writer = told, FakeEffectThread(), Writer()
        lease = Lease()
        self.recording = AccountRecorder(
            told.account,
            self.writer,  # type: ignore[arg-type]
            self.effect_thread,  # type: ignore[arg-type]
            lambda: lease,  # type: ignore[arg-type, return-value]
        )

    def write(self, *, is_last: bool = False) -> None:
        self.recording.write(self.told.state, self.told.now_s, is_last=is_last)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(module, "now_s", lambda: NOW_S)
    return Scene(training_job(1))


def not_rank_0(state: JobState, times: int = 1) -> JobState:
    """Give rank 0 to another node, in a world of so many times the nodes."""
    world = state.world
    assert world is not None
    moved = tuple(
        replace(node, first_rank=Rank(1)) if node.node == state.me.node else node
        for node in world.nodes
    )
    return replace(state, world=replace(world, nodes=moved * times))


def test_a_write_is_due_every_15_seconds(scene: Scene) -> None:
    state = not_rank_0(scene.told.state)
    assert scene.recording.wake_s == NOW_S + EVERY_S
    scene.recording.take_due(state, NOW_S + 14.0)
    assert not scene.effect_thread.effects
    scene.recording.take_due(state, NOW_S + 15.0)
    assert len(scene.effect_thread.effects) == 1
    assert scene.recording.wake_s == NOW_S + 30.0


def test_the_node_of_rank_0_writes_more_often_of_however_many_nodes(scene: Scene) -> None:
    """What it writes of the whole job is what an autoscaler measures by."""
    world = scene.told.state.world
    assert world is not None
    many = replace(world, nodes=world.nodes * 32)
    scene.recording.write(replace(scene.told.state, world=many), NOW_S)
    assert scene.recording.wake_s == NOW_S + RANK_0_EVERY_S


def test_a_write_says_what_slots_are_held_for_and_what_they_did_lately(scene: Scene) -> None:
    """By that another node can conclude what these slots did after it, and this one of others."""
    scene.told.now_s += 4.0
    beat(scene.told, 9)
    scene.write()
    scene.effect_thread.effects[0]()
    (reading,) = scene.writer.readings
    assert reading.spent.held == {"train": 1} and reading.spent.slots == 1
    known = reading.known
    assert len(known.named[Generation(1)]) == 2
    began_s = known.began_s[Generation(1)]
    assert began_s == scene.told.now_s - reading.spent.generation_s
    lately = spent_between(known.spans, scene.told.now_s - 4.0, scene.told.now_s)
    assert lately == {TimeCause.TRAIN: 4.0}


def test_of_many_nodes_each_writes_less_often(scene: Scene) -> None:
    """About one write a second for the whole job."""
    scene.recording.write(not_rank_0(scene.told.state, times=32), NOW_S)
    assert scene.recording.wake_s == NOW_S + 64.0


def test_one_write_is_under_way_at_a_time_and_the_last_goes_all_the_same(scene: Scene) -> None:
    scene.write()
    scene.write()
    assert len(scene.effect_thread.effects) == 1
    scene.effect_thread.failed[0](Unavailable("nobody answers"))
    scene.write()
    assert len(scene.effect_thread.effects) == 2
    scene.write(is_last=True)
    assert len(scene.effect_thread.effects) == 3


def test_a_node_that_may_not_write_does_not_try(scene: Scene) -> None:
    scene.told.tell(ev.LeaseUncertain())
    scene.write()
    assert not scene.effect_thread.effects


def test_the_node_of_rank_0_says_how_far_the_job_is(scene: Scene) -> None:
    told = scene.told
    told.now_s += 10.0
    beat(told, 15, samples=960)
    scene.write(is_last=True)
    scene.effect_thread.effects[0]()
    (reading,) = scene.writer.readings
    assert reading.spent.seconds == {"start": 10.0, "train": 10.0}
    assert (reading.spent.slots, reading.spent.generation, reading.spent.is_last) == (1, 1, True)
    assert reading.spent.generation_s == 16.0
    assert reading.progress is not None
    assert (reading.progress.step, reading.progress.samples) == (15, 960)
    assert reading.progress.has_steps
    # Of four nodes of one slot each, for the 20 s since it was told of the job.
    assert reading.progress.wanted_s == 80.0
    assert len(reading.present) == 2

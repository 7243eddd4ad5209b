"""How an agent guides its workers from world to world."""

import dataclasses

import pytest

from elasticd.records.ids import Nonce, Slot
from elasticd.records.reason import Phase, Reason
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from tests.unit.rendezvous.cases import Told, failure, result, running, world
from tests.unit.rendezvous.trainers import (
    attach,
    entered,
    finished,
    kept,
    paced,
    stepped,
    trainer,
    training,
)


def test_attached_worker_is_told_to_enter_the_world_it_was_started_for() -> None:
    """Once; its process is in the record as prepared."""
    told = Told(0)
    told.standby()
    told.world(world(1, 0))
    told.started()
    attach(told)
    effect = told.one(fx.EnterWorld)
    assert isinstance(effect, fx.EnterWorld) and effect.world.generation == 1
    attach(told)
    assert told.count(fx.EnterWorld) == 0


def test_worker_goes_on_in_the_next_world() -> None:
    """Nothing is stopped or started."""
    told = training(1)
    told.world(kept(2, 0, 1, reason=Reason.JOINED))
    assert told.count(fx.EnterWorld) == 1
    assert told.count(fx.StopWorker) == told.count(fx.StartWorker) == 0


def test_node_arrives_when_all_of_its_named_workers_entered() -> None:
    """Not when they were told."""
    told = training(1)
    told.world(kept(2, 0, 1))
    assert told.state.adopted_arrival == 1
    entered(told, 2)
    assert told.state.adopted_arrival == 2


@pytest.mark.parametrize(
    ("reason", "idle_s", "expected_s"),
    [
        (Reason.NODE_LOST, 5.0, 5.0),
        (Reason.WORKER_HUNG, 60.0, 60.0),
        (Reason.WORKER_KILLED, 0.5, 0.0),
        (Reason.JOINED, 60.0, 0.0),
    ],
)
def test_time_without_a_step_before_a_change_was_noticed_is_told(
    reason: Reason, idle_s: float, expected_s: float
) -> None:
    """Beyond a step's own time, once, and not where nothing was wrong or it is not known."""
    told = training(1)
    paced(told, 1, 9, step_s=0.1)
    for _ in range(2):
        paced(told, 1, 9, step_s=0.1)
    told.tick(idle_s + 0.1)
    told.world(kept(2, 0, 1, reason=reason))
    entered(told, 2)
    assert told.state.incident is not None
    assert told.state.incident.unnoticed_s == pytest.approx(expected_s, abs=0.02)
    told.tick(50.0)
    told.world(kept(3, 0, 1, reason=reason))
    entered(told, 3)
    assert told.state.incident is not None and told.state.incident.unnoticed_s == 0.0


def test_time_that_a_pause_took_was_no_standstill() -> None:
    """An evaluation that was announced."""
    told = training(1)
    paced(told, 1, 9, is_paused=True)
    told.tick(60.0)
    paced(told, 1, 9, is_paused=True)
    told.world(kept(2, 0, 1, reason=Reason.NODE_LOST))
    entered(told, 2)
    assert told.state.incident is not None and told.state.incident.unnoticed_s == 0.0


def test_node_whose_worker_ended_on_the_way_does_not_arrive() -> None:
    """Whoever counts on it must not take the world for formed."""
    told = training(1)
    told.world(kept(2, 0, 1))
    told.exited(-9)
    assert told.state.adopted_arrival == 1
    sent = told.state.member_sent
    assert sent is not None and sent.slots[0].nonce == 2 and not sent.slots[0].is_prepared


def test_worker_that_no_world_names_is_told_to_leave_and_lives_on() -> None:
    """At the step that was agreed on."""
    told = training(1)
    told.world(kept(2, 1, at_step=9, reason=Reason.SCALED))
    effect = told.one(fx.LeaveWorld)
    assert isinstance(effect, fx.LeaveWorld) and effect.at_step == 9
    assert told.count(fx.StopWorker) == 0


def test_drained_worker_has_the_time_that_its_last_step_takes() -> None:
    """Steps of a minute are not cut short by a limit that is meant for processes that hang."""
    told = training(1, shutdown_timeout_s=30.0)
    paced(told, 1, 5, step_s=60.0)
    told.tell(ev.LeaveRequested(reason=Reason.DRAINED))
    told.world(kept(2, 1, at_step=6, reason=Reason.DRAINED))
    worker = told.state.workers[Slot(0)]
    assert worker.leave_by_s is not None
    assert worker.leave_by_s - told.now_s > 30.0 + 2 * 60.0


def test_waiting_job_keeps_its_workers_and_proves_that_they_left() -> None:
    """Rule 4 for processes that never get another number."""
    told = training(1, min_nodes=2)
    told.status(running(1, is_in_process=True, refilled_step=0))
    told.members(trainer(0))
    waiting = running(1, is_in_process=True)
    told.status(type(waiting)(phase=Phase.WAITING, generation=waiting.generation))
    assert told.count(fx.LeaveWorld) == 1 and told.count(fx.StopWorker) == 0
    told.written()
    assert told.state.member_sent is not None and told.state.member_sent.left == 0
    told.tell(ev.WorkerLeft(slot=Slot(0), nonce=told.state.workers[Slot(0)].nonce))
    while told.written():
        pass
    assert told.state.member_sent.left == 1


def test_process_outlives_the_incarnation_whose_lease_ended() -> None:
    """Its state may be the newest; it leaves its world and waits for our next incarnation."""
    told = training(1)
    told.tell(ev.LeaseEnded())
    assert told.count(fx.LeaveWorld) == 1 and told.count(fx.StopWorker) == 0
    told.tell(ev.WorkerLeft(slot=Slot(0), nonce=told.state.workers[Slot(0)].nonce))
    retire = told.one(fx.Retire)
    assert isinstance(retire, fx.Retire)
    assert retire.keeps_workers and retire.rejoin_after_s == 0.0


def test_replacement_is_prepared_only_when_the_survivors_have_stepped() -> None:
    """Its start must not slow them."""
    told = training(1)
    told.tell(ev.SlotsGranted(slots=(Slot(0), Slot(1))))
    assert told.count(fx.PrepareWorker) == 1
    told = training(1)
    told.world(kept(2, 0, 1))
    told.tell(ev.SlotsGranted(slots=(Slot(0), Slot(1))))
    entered(told, 2)
    assert told.count(fx.PrepareWorker) == 0
    stepped(told, 2, 6)
    assert told.count(fx.PrepareWorker) == 1


def test_how_a_worker_ended_is_told_as_long_as_a_world_names_it() -> None:
    """Who agreed on that world had not heard of it; and of what it does not name nobody asks."""
    told = training(1)
    told.tell(ev.SlotsGranted(slots=(Slot(0), Slot(1))))
    told.started()
    attach(told, slot=1)
    told.world(kept(2, 0, 1, nonces={0: (1, 1)}))
    for slot in (0, 1):
        entered(told, 2, slot)
        stepped(told, 2, 6, slot)
    ended = dataclasses.replace(failure(0, generation=2, rank=1), slot=Slot(1), nonce=Nonce(1))
    told.tell(ev.WorkerFailed(slot=Slot(1), nonce=Nonce(1), failure=ended))
    assert told.state.failure is not None
    told.world(kept(3, 0, 1, nonces={0: (1, 1)}, reason=Reason.COLLECTIVE_BROKEN))
    assert told.state.adopted == 3 and told.state.failure == dataclasses.replace(ended, in_a_row=1)
    told.world(kept(4, 0, 1, reason=Reason.WORKER_FAILED))
    assert told.state.adopted == 4 and told.state.failure is None


def test_nothing_is_prepared_for_a_job_at_its_end() -> None:
    """A rank of ours has finished, whether its script has ended or not."""
    told = training(1)
    finished(told)
    told.tell(ev.SlotsGranted(slots=(Slot(0), Slot(1))))
    assert told.count(fx.PrepareWorker) == 0
    told.exited(0)
    assert told.count(fx.PrepareWorker) == 0


def test_finished_process_is_replaced_when_its_world_came_to_nothing() -> None:
    """Else a job below min would wait for it for ever."""
    told = training(1, min_nodes=2)
    told.exited(0)
    told.tell(ev.ResultSeen(result=result(0, 1)))
    waiting = running(1, is_in_process=True)
    told.status(type(waiting)(phase=Phase.WAITING, generation=waiting.generation))
    assert told.count(fx.PrepareWorker) == 1


def test_process_that_finished_has_finished_in_the_next_world_too() -> None:
    """A join at the very end: its exit must count where the proposers look for it."""
    told = training(1)
    finished(told)
    told.exited(0)
    told.world(kept(2, 0, 1, reason=Reason.JOINED))
    assert told.count(fx.EnterWorld) == 0
    assert told.state.adopted == 2 and told.state.exits[0].rank == 0
    assert told.state.adopted_arrival == 1


def test_finished_worker_is_not_sent_into_another_world() -> None:
    """It would not hear it; what its script still does is left alone."""
    told = training(1)
    finished(told)
    told.world(kept(2, 0, 1, reason=Reason.JOINED))
    assert told.count(fx.EnterWorld) == told.count(fx.StopWorker) == 0
    told.exited(0)
    assert told.state.adopted == 2 and told.state.exits[0].code == 0


def test_worker_older_than_the_one_that_the_world_names_is_stopped() -> None:
    """A world agreed on by somebody who did not know yet that processes go on."""
    told = training(1)
    told.world(kept(2, 0, 1, nonces={0: (2,)}))
    assert told.count(fx.StopWorker) == 1
    told.exited(-15)
    assert told.count(fx.StartWorker) == 1


def test_trainer_of_the_record_is_what_the_tests_count_on() -> None:
    """The record that the facts give to node-0 is the one that it writes itself."""
    sent = training(1).state.member_sent
    assert sent is not None and sent.slots == trainer(0).slots

"""The account of one job on one node: what each second of a slot was for."""

import dataclasses

import pytest

from elasticd.channel.worker import Progressed
from elasticd.goodput.cause import TimeCause
from elasticd.records.ids import Generation, Nonce, Slot
from elasticd.records.reason import Phase, Reason
from elasticd.rendezvous import event as ev
from tests.unit.agent.account.account_case import (
    NONCE,
    Accounted,
    beat,
    running_job,
    seconds,
    training_job,
)
from tests.unit.rendezvous.cases import failure, running, world
from tests.unit.rendezvous.trainers import attach, entered, finished, kept, paced, stepped, trainer

T = TimeCause
ONE, TWO, THREE = Generation(1), Generation(2), Generation(3)


def left_for(generation: int, *, committed_ago_s: float) -> ev.WorkerEntered:
    return ev.WorkerEntered(
        slot=Slot(0),
        nonce=Nonce(1),
        generation=Generation(generation),
        committed_ago_s=committed_ago_s,
    )


def adds_up(told: Accounted) -> None:
    spent_s = sum(told.account.account.seconds(told.now_s).values())
    assert spent_s == pytest.approx(told.now_s - told.begin_s)


def test_all_until_the_first_commit_is_start() -> None:
    told = training_job()
    assert told.spent() == {T.START: 10.0}
    told.now_s += 3.0
    assert told.spent() == {T.START: 10.0, T.TRAIN: 3.0}
    assert told.account.account.counted(told.now_s) == {T.START: 10.0}
    beat(told, 8)
    assert told.account.account.counted(told.now_s) == {T.START: 10.0, T.TRAIN: 3.0}


def test_too_few_nodes_before_the_first_world_is_waiting() -> None:
    told = Accounted(0, min_nodes=2)
    told.standby()
    told.tick(7.0)
    assert told.spent() == {T.WAIT: 7.0}


def test_the_pools_imports_are_start_and_a_ready_node_that_is_not_needed_is_spare() -> None:
    told = Accounted(0)
    told.tell(ev.SlotsGranted(slots=(Slot(0),)))
    told.tell(ev.StatusSeen(status=running(1), revision=101))
    told.tell(ev.WorldSeen(world=world(1, 1, 2, 3, 4), revision=102))
    told.tick(3.0)
    told.tell(ev.PoolChanged(is_ready=True))
    told.tick(20.0)
    assert told.spent() == {T.START: 3.0, T.SPARE: 20.0}


def test_from_a_fault_to_its_notice_nobody_trains() -> None:
    """The last commit was 6 s before; a step takes 1 s, of which the work is lost."""
    told = training_job(1)
    told.now_s += 2.0
    beat(told, 7)
    told.now_s += 6.0
    told.world(kept(2, 0, reason=Reason.NODE_LOST))
    told.now_s += 1.5
    entered(told, 2)
    told.now_s += 0.5
    stepped(told, 2, 8)
    told.now_s += 1.0
    beat(told, 9, generation=2)
    assert told.spent() == {
        T.START: 10.0,
        T.TRAIN: 3.0,
        T.REDONE: 1.0,
        T.NOTICE: 5.0,
        T.RECOVER: 2.0,
    }
    adds_up(told)


def test_steps_that_are_heard_of_after_a_fault_were_made_before_it() -> None:
    """An agent that was stopped sees that it is shut out, and then reads what its workers said."""
    told = training_job(1)
    told.now_s += 1.0
    beat(told, 6)
    told.now_s += 5.0
    told.world(kept(2, 0, reason=Reason.NODE_LOST))
    for step, ago_s in ((7, 4.5), (8, 2.5), (8, 2.5)):
        beat(told, step, ago_s=ago_s)
    told.now_s += 1.5
    entered(told, 2)
    told.now_s += 0.5
    stepped(told, 2, 8)
    assert told.spent() == {
        T.START: 10.0,
        T.TRAIN: 3.5,
        T.REDONE: 1.0,
        T.NOTICE: 1.5,
        T.RECOVER: 2.0,
    }
    adds_up(told)


def test_a_fault_is_known_where_it_happened_before_there_is_another_world() -> None:
    told = training_job(1)
    told.now_s += 1.0
    beat(told, 6)
    told.tell(ev.WorkerBroken(slot=Slot(0), nonce=Nonce(1), generation=Generation(1)))
    told.now_s += 4.0
    assert told.spent() == {T.START: 10.0, T.TRAIN: 1.0, T.RECOVER: 4.0}


def test_what_a_recovery_cost_that_was_overtaken_counts_with_the_next() -> None:
    """Its own incident is written when the next world stands already."""
    told = training_job(1, 2)
    told.account.change_s(ONE)
    told.world(kept(2, 0, 1, reason=Reason.NODE_LOST))
    entered(told, 2)
    told.now_s += 2.0
    told.world(kept(3, 0, reason=Reason.NODE_LOST))
    told.account.change_s(TWO)
    told.now_s += 1.0
    entered(told, 3)
    stepped(told, 3, 6)
    assert told.account.change_s(THREE) == {T.RECOVER: 3.0}


def test_commits_that_no_heartbeat_told_of_are_training() -> None:
    """A worker says when it committed last as soon as it has left the world that broke."""
    told = training_job(1)
    told.now_s += 2.0
    beat(told, 7)
    told.now_s += 6.0
    told.world(kept(2, 0, reason=Reason.NODE_LOST))
    told.now_s += 1.0
    told.tell(left_for(2, committed_ago_s=2.5))
    told.now_s += 2.0
    stepped(told, 2, 8)
    assert told.spent() == {
        T.START: 10.0,
        T.TRAIN: 6.5,
        T.REDONE: 1.0,
        T.NOTICE: 0.5,
        T.RECOVER: 3.0,
    }
    adds_up(told)


def test_a_resize_begins_with_the_last_commit() -> None:
    told = training_job(1)
    told.world(kept(2, 0, 1, reason=Reason.JOINED, at_step=9))
    told.now_s += 4.0
    told.tell(left_for(2, committed_ago_s=0.5))
    told.now_s += 2.0
    stepped(told, 2, 10)
    assert told.spent() == {T.START: 10.0, T.TRAIN: 3.5, T.RESIZE: 2.5}


def test_a_fault_of_a_worker_that_never_tells_is_divided_in_the_end() -> None:
    told = training_job(1)
    told.now_s += 4.0
    told.world(kept(2, 0, reason=Reason.NODE_LOST))
    told.now_s += 1.0
    told.account.leave(told.now_s, keeps_workers=False)
    assert told.spent() == {T.START: 10.0, T.NOTICE: 4.0, T.RECOVER: 1.0}


def test_the_change_says_what_it_cost_from_the_fault_to_the_next_commit() -> None:
    told = training_job(1)
    assert told.account.change_s(ONE) == {T.START: 10.0}
    told.now_s += 2.0
    beat(told, 7)
    told.now_s += 6.0
    told.world(kept(2, 0, reason=Reason.NODE_LOST))
    told.now_s += 2.0
    entered(told, 2)
    stepped(told, 2, 8)
    cost_s = told.account.change_s(TWO)
    assert cost_s == pytest.approx({T.REDONE: 1.0, T.NOTICE: 5.0, T.RECOVER: 2.0})
    assert told.account.change_s(TWO) == {}


def test_a_planned_change_trains_up_to_its_step_and_is_then_a_resize() -> None:
    told = training_job(1)
    planned = kept(2, 0, 1, reason=Reason.JOINED, at_step=9)
    told.now_s += 1.0
    told.world(planned)
    told.now_s += 3.0
    entered(told, 2)
    told.now_s += 2.0
    stepped(told, 2, 10)
    assert told.spent() == {T.START: 10.0, T.TRAIN: 4.0, T.RESIZE: 2.0}


def test_what_a_resize_becomes_when_a_fault_comes_between_is_a_recovery() -> None:
    told = training_job(1)
    told.world(kept(2, 0, reason=Reason.NODE_LOST))
    entered(told, 2)
    told.now_s += 3.0
    told.world(kept(3, 0, 1, reason=Reason.JOINED))
    told.now_s += 4.0
    entered(told, 3)
    stepped(told, 3, 6)
    assert seconds(told, T.RECOVER) == 7.0
    assert seconds(told, T.RESIZE) == 0.0


def test_below_min_the_job_waits_and_then_recovers() -> None:
    told = training_job(1, min_nodes=2)
    ended = running(1, is_in_process=True)
    told.status(dataclasses.replace(ended, phase=Phase.WAITING, reason=Reason.NODE_LOST))
    told.now_s += 30.0
    told.world(kept(2, 0, 1, reason=Reason.JOINED))
    told.status(running(2, is_in_process=True))
    told.now_s += 2.0
    entered(told, 2)
    stepped(told, 2, 6)
    assert seconds(told, T.WAIT) == 30.0
    assert seconds(told, T.RESIZE) + seconds(told, T.RECOVER) == 2.0
    adds_up(told)


def test_a_world_that_ends_by_a_drain_takes_the_step_in_flight_along() -> None:
    """The nodes that stay cannot end that step, which waits for the one that has left."""
    told = training_job(1, min_nodes=2)
    told.now_s += 10.0
    beat(told, 15)
    told.now_s += 4.0
    ended = running(1, is_in_process=True)
    told.status(dataclasses.replace(ended, phase=Phase.WAITING, reason=Reason.DRAINED))
    told.now_s += 30.0
    spent = told.spent()
    # Steps may have been made between the last heartbeat and the end, within its period.
    assert 10.0 <= spent.pop(T.TRAIN) <= 10.2
    assert spent.pop(T.REDONE) == 1.0
    assert 2.8 <= spent.pop(T.RESIZE) <= 3.0
    assert spent == {T.START: 10.0, T.WAIT: 30.0}
    adds_up(told)


def test_a_state_from_storage_is_restored_and_the_steps_since_it_are_redone() -> None:
    told = training_job(1)
    told.now_s += 10.0
    beat(told, 15)
    told.world(kept(2, 0, reason=Reason.NODE_LOST))
    told.now_s += 0.5
    entered(told, 2)
    told.now_s += 3.5
    told.tell(
        ev.WorkerStepped(
            slot=Slot(0),
            nonce=Nonce(1),
            generation=Generation(2),
            step=11,
            phases_s={"copy": 3.0},
            place="storage",
        )
    )
    told.now_s += 8.0
    beat(told, 19, generation=2)
    spent = told.spent()
    assert spent[T.RESTORE] == 3.0
    assert spent[T.RECOVER] == 1.0
    assert spent[T.REDONE] == 4.0  # Steps 12 to 15, of eight in 8 s.
    repeated = told.account.generations.repeated_steps(Generation(2), 11)
    assert repeated == 5, "the same, and step 11 itself"
    assert spent[T.TRAIN] == 14.0
    adds_up(told)


def test_what_workers_measure_is_a_part_of_their_steps() -> None:
    told = training_job()
    told.now_s += 10.0
    beat(told, 10, data_s=2.0, save_s=1.0)
    told.now_s += 10.0
    beat(told, 20, data_s=5.0, save_s=1.0)
    assert told.spent() == {T.START: 10.0, T.TRAIN: 14.0, T.DATA: 5.0, T.SAVE: 1.0}


def test_what_was_measured_before_the_first_commit_is_no_part_of_later_steps() -> None:
    told = training_job(1)
    told.world(kept(2, 0, reason=Reason.NODE_LOST))
    entered(told, 2)
    told.now_s += 5.0
    beat(told, 5, data_s=4.0)
    stepped(told, 2, 6)
    told.now_s += 5.0
    beat(told, 8, generation=2, data_s=4.5)
    assert seconds(told, T.DATA) == 0.5


def test_a_pause_is_not_training() -> None:
    told = training_job()
    told.now_s += 2.0
    beat(told, 7)
    told.now_s += 0.1
    paced(told, 1, 7, is_paused=True)
    told.now_s += 30.0
    paced(told, 1, 7)
    assert told.spent() == {T.START: 10.0, T.TRAIN: 2.0, T.PAUSE: 30.1}


def test_a_worker_that_is_lost_recovers_until_its_successor_commits() -> None:
    told = training_job(1)
    told.failed(failure(0, generation=1, signal="SIGKILL"))
    told.exited(-9)
    told.now_s += 1.0
    told.world(kept(2, 1, reason=Reason.WORKER_KILLED))
    told.now_s += 40.0
    attach(told, nonce=2)
    told.now_s += 5.0
    told.world(kept(3, 1, 0, nonces={0: (2,)}, reason=Reason.JOINED))
    told.now_s += 1.0
    entered(told, 3, nonce=2)
    stepped(told, 3, 30, nonce=2)
    told.now_s += 1.0
    assert told.spent() == {T.START: 10.0, T.RECOVER: 47.0, T.TRAIN: 1.0}


def test_who_is_to_be_taken_in_is_no_spare() -> None:
    told = Accounted(0, max_nodes=2)
    told.standby()
    told.status(running(1))
    told.world(world(1, 1))
    told.tick(5.0)
    told.world(world(2, 1, 2))
    told.tick(20.0)
    assert told.spent() == {T.START: 5.0, T.SPARE: 20.0}


def test_what_came_after_a_change_was_told_is_its_cost_and_not_that_of_the_next() -> None:
    """Before it is known that the script calls `elasticd.run`, its arrival is told of."""
    told = running_job()
    told.account.change_s(ONE)
    told.tell(ev.WorkerAttached(slot=Slot(0), nonce=Nonce(1)))
    told.now_s += 6.0
    entered(told, 1)
    stepped(told, 1, 1)
    assert told.account.change_s(ONE) == {T.START: 6.0}
    assert told.account.change_s(TWO) == {}


def test_the_end_of_training_is_saved_and_then_the_processes_end() -> None:
    told = training_job(checkpoint=None)
    told.now_s += 2.0
    beat(told, 7)
    finished(told)
    told.now_s += 3.0
    assert told.spent() == {T.START: 13.0, T.TRAIN: 2.0}


def test_the_end_of_a_job_waits_for_its_last_checkpoint() -> None:
    told = training_job()
    told.now_s += 2.0
    beat(told, 7)
    beat(told, 7, has_returned=True, is_paused=True)
    told.now_s += 5.0
    finished(told)
    told.now_s += 1.0
    assert told.spent() == {T.START: 11.0, T.TRAIN: 2.0, T.SAVE: 5.0}


def test_in_restart_mode_a_worker_that_runs_trains() -> None:
    told = running_job(1)
    told.now_s += 50.0
    assert told.spent() == {T.WAIT: 4.0, T.START: 5.0, T.TRAIN: 50.0}
    told.failed(failure(0, generation=1))
    told.now_s += 2.0
    assert told.spent() == {T.WAIT: 4.0, T.START: 5.0, T.TRAIN: 50.0, T.RECOVER: 2.0}
    assert not told.account.has_steps


def progressed(told: Accounted, step: int, *, first: int, stepping_s: float, **more: float) -> bool:
    """What a script of restart mode says now, `stepping_s` after its first call."""
    said = Progressed(step=step, first_step=first, stepping_s=stepping_s, step_s=1.0, **more)  # type: ignore[arg-type]
    return told.account.count_reported_steps(Slot(0), NONCE, said, told.now_s)


def test_a_script_that_says_how_far_it_is_is_counted_from_its_first_step() -> None:
    """Its way there was no training, nor is what it waits for its checkpoints."""
    told = running_job()
    told.now_s += 6.0
    assert progressed(told, 1, first=1, stepping_s=0.0), "the only worker has made its first step"
    assert told.account.way_s == 6.0
    assert told.account.change_s(ONE)[T.START] == 11.0
    told.now_s += 10.0
    assert not progressed(told, 11, first=1, stepping_s=10.0, save_s=3.0)
    assert told.spent() == {T.WAIT: 4.0, T.START: 11.0, T.TRAIN: 7.0, T.SAVE: 3.0}
    assert told.account.has_steps
    assert told.account.newest.step == 11


def test_steps_since_the_checkpoint_are_redone_after_a_restart() -> None:
    told = running_job(1)
    progressed(told, 1, first=1, stepping_s=0.0)
    told.now_s += 20.0
    progressed(told, 21, first=1, stepping_s=20.0)
    told.now_s += 3.0
    told.failed(failure(0, generation=1))
    told.exited(1)
    told.world(world(2, 0, 1))
    told.now_s += 2.0
    told.up(nonce=2)
    told.now_s += 5.0
    said = Progressed(step=11, first_step=11, step_s=1.0)
    told.account.count_reported_steps(Slot(0), Nonce(2), said, told.now_s)
    assert told.account.repeated_steps == 11, "11 to 21"
    told.now_s += 20.0
    said = Progressed(step=31, first_step=11, stepping_s=20.0, step_s=1.0)
    told.account.count_reported_steps(Slot(0), Nonce(2), said, told.now_s)
    assert told.spent() == {
        T.WAIT: 4.0,
        T.START: 5.0,
        T.TRAIN: 30.0,
        T.REDONE: 11.0,
        T.NOTICE: 2.0,
        T.RECOVER: 7.0,
    }
    adds_up(told)


def test_a_script_that_counts_from_0_repeats_nothing_at_first() -> None:
    """Its step 0 is a step, and none that was made before."""
    told = running_job()
    told.account.note_furthest(0)  # The record's word for none.
    told.now_s += 6.0
    progressed(told, 0, first=0, stepping_s=0.0)
    assert (told.account.first_step, told.account.repeated_steps) == (0, 0)
    told.now_s += 10.0
    progressed(told, 10, first=0, stepping_s=10.0)
    assert told.spent()[T.TRAIN] == 10.0


def test_a_node_that_says_goodbye_is_no_fault_where_all_leave_together() -> None:
    told = training_job(1)
    told.world(kept(2, 0, reason=Reason.NODE_LEFT, at_step=8))
    told.now_s += 3.0
    told.tell(left_for(2, committed_ago_s=0.5))
    told.now_s += 1.0
    stepped(told, 2, 9)
    assert told.spent() == {T.START: 10.0, T.TRAIN: 2.5, T.RESIZE: 1.5}


def test_a_script_that_comes_to_run_later_was_starting() -> None:
    told = running_job()
    told.now_s += 50.0
    told.account.charge(told.now_s)
    told.tell(ev.WorkerAttached(slot=Slot(0), nonce=Nonce(1)))
    told.now_s += 1.0
    assert told.spent() == {T.WAIT: 4.0, T.START: 56.0}


def test_a_node_that_joins_before_the_first_commit_makes_no_resize_of_the_start() -> None:
    """Nothing trained yet that a change of size could have held up."""
    told = running_job()
    told.now_s += 1.0
    told.world(dataclasses.replace(world(2, 0, 1), reason=Reason.JOINED))
    told.now_s += 2.0
    told.exited(-15)
    told.up(nonce=2)
    told.now_s += 50.0
    attach(told, nonce=2)
    told.now_s += 3.0
    entered(told, 2, nonce=2)
    told.now_s += 1.0
    stepped(told, 2, 1, nonce=2)
    assert told.spent() == {
        T.WAIT: 4.0,
        T.START: 5.0 + 50.0 + 3.0 + 1.0,
        T.TRAIN: 1.0,  # It ran, and was stopped before it came to `elasticd.run`.
        T.RESIZE: 2.0,
    }
    adds_up(told)


def test_in_restart_mode_what_has_run_for_long_is_counted() -> None:
    told = running_job()
    told.now_s += 1000.0
    told.account.charge(told.now_s)
    assert told.account.account.counted(told.now_s)[T.TRAIN] == 700.0


def test_kept_workers_recover_until_the_next_incarnation() -> None:
    told = training_job(1)
    told.account.leave(told.now_s, keeps_workers=True)
    told.now_s += 6.0
    assert told.spent() == {T.START: 10.0, T.RECOVER: 6.0}
    told.account.leave(told.now_s, keeps_workers=False)
    told.now_s += 6.0
    assert told.spent() == {T.START: 10.0, T.RECOVER: 6.0}


def test_a_node_that_is_drained_trains_until_it_leaves() -> None:
    told = training_job(1)
    told.tell(ev.LeaveRequested(reason=Reason.DRAINED))
    told.now_s += 2.0
    told.world(kept(2, 1, reason=Reason.DRAINED, at_step=8))
    told.now_s += 1.0
    told.tell(ev.WorkerLeft(slot=Slot(0), nonce=Nonce(1)))
    told.now_s += 4.0
    spent = told.spent()
    assert spent[T.TRAIN] == 3.0
    assert T.RECOVER not in spent


def test_members_that_are_seen_change_nothing() -> None:
    told = training_job(1)
    before = told.account.account
    told.member(trainer(1, is_paused=True))
    assert told.account.account is before

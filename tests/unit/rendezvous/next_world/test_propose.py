"""When another world is asked for, what it costs, and what is said of the job meanwhile."""

import dataclasses

import pytest

from elasticd.records.ids import Life, Nonce, Slot
from elasticd.records.job import Budget, JobStatus, Limits, Want
from elasticd.records.reason import Phase, Reason
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.decide import wake_at_s
from elasticd.rendezvous.next_world.propose import BURST_WINDOW_S
from elasticd.rendezvous.next_world.wait import CAUSE_MOST_S, SECONDARY_GRACE_S
from elasticd.rendezvous.state import WorkerStage, replace
from tests.unit.rendezvous.cases import (
    Told,
    failure,
    member,
    name,
    proposer,
    result,
    running,
    world,
)
from tests.unit.rendezvous.trainers import trainer, training


def proposal(told: Told) -> fx.ProposeWorld:
    found = told.one(fx.ProposeWorld)
    assert isinstance(found, fx.ProposeWorld)
    return found


def written_status(told: Told) -> JobStatus:
    found = told.one(fx.WriteStatus)
    assert isinstance(found, fx.WriteStatus)
    return found.status


def test_kill_elsewhere_is_answered_at_once_by_the_first_proposer() -> None:
    """Nothing to wait for."""
    told = proposer(1, 2)
    told.member(member(1, arrived=1, nonce=2, failed=failure(1, rank=1, signal="SIGKILL")))
    assert proposal(told).world.reason is Reason.WORKER_KILLED
    assert proposal(told).status.budget == Budget(node_loss=1)


def test_exception_waits_for_the_kill_that_may_have_caused_it() -> None:
    """What a killed process left behind may look like anything; the signal names it."""
    told = proposer(1, 2)
    told.member(member(1, arrived=1, nonce=2, failed=failure(1, rank=1)))
    assert told.count(fx.ProposeWorld) == 0
    killed = failure(2, rank=2, signal="SIGKILL")
    told.member(member(2, arrived=1, nonce=2, failed=killed))
    assert proposal(told).world.culprit == killed
    assert proposal(told).status.budget == Budget(node_loss=1)


def test_exception_alone_is_the_cause_after_its_grace() -> None:
    """It is the script's error then, and paid for as such."""
    told = proposer(1, 2)
    told.member(member(1, arrived=1, nonce=2, failed=failure(1, rank=1)))
    told.tick(SECONDARY_GRACE_S)
    assert proposal(told).world.reason is Reason.WORKER_FAILED
    assert proposal(told).status.budget == Budget(user_error=1)


def test_abort_of_a_process_explains_nobody_elses_exception() -> None:
    """NCCL's watchdog aborts a process because a peer is gone."""
    told = proposer(1, 2)
    told.member(member(1, arrived=1, nonce=2, failed=failure(1, rank=1)))
    told.member(member(2, arrived=1, nonce=2, failed=failure(2, rank=2, signal="SIGABRT")))
    told.tick(SECONDARY_GRACE_S)
    assert proposal(told).world.culprit == failure(1, rank=1)


def test_kill_here_beats_an_exception_here_that_was_told_first() -> None:
    """One record tells of both ranks of a node."""
    told = proposer(1)
    told.failed(failure(0))
    told.written()
    first = told.state.workers[Slot(0)]
    other = dataclasses.replace(first, slot=Slot(1), stage=WorkerStage.RUNNING, stop_sent=False)
    told.state = replace(told.state, workers={**told.state.workers, Slot(1): other})
    killed = failure(0, rank=1, signal="SIGKILL")
    told.tell(ev.WorkerExited(slot=Slot(1), nonce=Nonce(1), code=-9, failure=killed))
    assert proposal(told).world.culprit == killed


def test_rank_that_left_with_0_while_others_needed_it_is_named_and_charged_once() -> None:
    """What broke is only where it shows; `--max-restarts 0` ends the job."""
    for limit in (3, 0):
        told = proposer(1, 2, limits=Limits(user_error=limit))
        told.tell(ev.ResultSeen(result=result(2, 1)))
        echo = failure(1, rank=1, is_secondary=True)
        told.member(member(1, arrived=1, nonce=2, failed=echo))
        told.tick(SECONDARY_GRACE_S)
        status = proposal(told).status if limit else written_status(told)
        culprit = status.failure
        assert culprit is not None and culprit.rank == 2 and culprit.ending == "exit code 0"
        assert "rank 2 exited with 0 while other ranks still waited for it" in culprit.exception
        if limit:
            assert status.budget == Budget(user_error=1)
        else:
            assert status.phase is Phase.FAILED


@pytest.mark.parametrize(
    "exception",
    [
        "OSError: [Errno 28] No space left on device: 'x'",
        "RuntimeError: write: Disk quota exceeded",
    ],
)
def test_job_that_ends_as_a_disk_is_full_names_its_host(exception: str) -> None:
    """It is charged as an error of the script, but no change of the script helps."""
    for text in (exception, "ValueError: too hot"):
        told = proposer(1, 2, limits=Limits(user_error=0))
        failed = dataclasses.replace(failure(1, rank=1), exception=text)
        told.member(member(1, arrived=1, nonce=2, failed=failed))
        told.tick(SECONDARY_GRACE_S)
        status = written_status(told)
        assert status.phase is Phase.FAILED
        full = f"; a disk of {failed.host} is full: make room there, and start the job again"
        assert status.message.endswith(full) == (text == exception)


def test_rank_that_is_done_before_a_node_is_lost_is_not_to_blame() -> None:
    """The loss is a cause of its own."""
    told = proposer(1, 2)
    told.tell(ev.ResultSeen(result=result(2, 1)))
    told.tell(ev.PeerDied(node=name(1), life=Life("n1l1")))
    told.tick(0.2)
    assert proposal(told).world.reason is Reason.NODE_DEAD


def test_own_failure_goes_into_the_proposal_without_a_round_through_etcd() -> None:
    """Our record travels with the world, which saves a write and a watch."""
    told = proposer(1, 2)
    killed = failure(0, signal="SIGKILL")
    told.failed(killed)
    found = proposal(told)
    assert found.member is not None and found.member.failure == killed
    assert found.world.culprit == killed and told.count(fx.WriteMember) == 0


def test_echo_waits_for_the_failure_that_caused_it() -> None:
    """A broken collective is most likely explained within a tenth of a second."""
    told = proposer(1, 2)
    told.member(member(1, arrived=1, nonce=2, failed=failure(1, is_secondary=True)))
    assert told.count(fx.ProposeWorld) == 0
    told.member(member(2, arrived=1, nonce=2, failed=failure(2, rank=2)))
    told.tick(SECONDARY_GRACE_S)
    assert proposal(told).world.culprit == failure(2, rank=2)


def test_echo_alone_is_a_reason_after_its_grace() -> None:
    """Nobody saw the peer die."""
    told = proposer(1, 2)
    told.member(member(1, arrived=1, nonce=2, failed=failure(1, is_secondary=True)))
    told.tick(SECONDARY_GRACE_S)
    assert proposal(told).world.reason is Reason.COLLECTIVE_BROKEN


def test_second_change_within_a_formation_waits_for_the_burst_to_end() -> None:
    """A burst becomes one world."""
    told = proposer(1, 2)
    told.world(world(2, 0, 1, 2))
    told.status(running(2))
    told.member(member(1, arrived=1, nonce=3, failed=failure(1, generation=2)))
    assert told.count(fx.ProposeWorld) == 0
    told.tick(BURST_WINDOW_S - 0.01)
    assert told.count(fx.ProposeWorld) == 0
    told.tick(0.02)
    assert told.count(fx.ProposeWorld) == 1


def test_second_proposer_waits_for_its_turn() -> None:
    """So that one write is normal."""
    told = Told(1)
    told.standby()
    told.status(running(1))
    told.world(world(1, 0, 1, 2))
    told.started()
    told.tell(ev.ResultsListed(results=()))
    told.members(*(member(i, arrived=1) for i in range(3)))
    told.member(member(2, arrived=1, nonce=2))
    assert told.count(fx.ProposeWorld) == 0
    told.tick(0.031)
    assert told.count(fx.ProposeWorld) == 1


def test_outsider_proposes_nothing() -> None:
    """It does not even know enough to."""
    told = Told(3)
    told.standby()
    told.status(running(1))
    told.world(world(1, 0, 1, 2, 3))
    told.member(member(2, arrived=1, nonce=2))
    told.tick(5.0)
    assert told.count(fx.ProposeWorld) == 0


def test_nothing_is_proposed_while_world_and_status_speak_of_different_generations() -> None:
    """In between, one's budget would be charged for what happened to the other."""
    told = proposer(1, 2)
    told.status(running(2))
    assert told.member(member(1, arrived=1, nonce=2, failed=failure(1))) == ()
    (reread,) = told.tick(1.0)
    assert isinstance(reread, fx.Observe), "the world is missed, and looked for"
    told.world(world(2, 0, 1, 2))
    assert told.count(fx.ProposeWorld) == 0, "the failure was that of generation 1"


def test_nothing_is_proposed_without_a_lease() -> None:
    """Rule 5; and it is when the lease is sure again."""
    told = proposer(1, 2)
    told.tell(ev.LeaseUncertain())
    told.member(member(1, arrived=1, nonce=2))
    told.tick(1.0)
    assert told.effects == ()
    told.tell(ev.LeaseHeld())
    told.tell(ev.MembersListed(revision=999, members=()))
    assert not told.state.is_fenced


def test_late_formation_is_not_forgotten_when_the_proposal_loses_a_race() -> None:
    """The deadline comes once, and etcd may refuse any write."""
    told = proposer(1, 2)
    told.world(world(2, 0, 1, 2))
    told.status(running(2))
    told.member(member(1, arrived=2, nonce=2))
    deadline_s = told.state.formation_deadline_s
    assert deadline_s is not None
    told.tick(deadline_s - told.now_s)
    told.members(*(member(i, arrived=a, nonce=2) for i, a in ((0, 2), (1, 2), (2, 1))))
    told.tick(BURST_WINDOW_S)
    first = proposal(told)
    assert first.world.reason is Reason.DID_NOT_ARRIVE and name(2) in first.world.lost
    told.tell(ev.ProposalAnswered(token=first.world.token, accepted=False, is_member_written=False))
    told.tick(0.02)
    assert proposal(told).world.reason is Reason.DID_NOT_ARRIVE


def test_lost_races_end_with_a_proposal_that_only_the_world_can_refuse() -> None:
    """Else members that write all the time would keep a world from forming."""
    told = proposer(1, 2)
    told.member(member(1, arrived=1, nonce=2))
    for _ in range(3):
        found = proposal(told)
        assert found.members_revision is not None
        told.tell(
            ev.ProposalAnswered(token=found.world.token, accepted=False, is_member_written=True)
        )
        told.tick(0.2)
    assert proposal(told).members_revision is None


def test_process_that_failed_is_charged_once_however_often_it_is_told_of() -> None:
    """Another world named it again, as its node's record had not reached etcd."""
    lost = failure(1)
    told = proposer(1, limits=Limits(user_error=1))
    told.status(running(1, budget=Budget(user_error=1), last_user_error=lost))
    told.member(member(1, arrived=1, nonce=2, failed=lost))
    told.tick(SECONDARY_GRACE_S)
    assert proposal(told).status.budget.user_error == 1
    again = dataclasses.replace(lost, nonce=Nonce(7))
    assert not again.is_same_process(lost)


def test_error_that_a_slot_pays_for_ends_the_job_where_another_process_has_it() -> None:
    """The first was told with an older step: each that came after it was charged to its slot."""
    first = dataclasses.replace(failure(1), step=37)
    second = dataclasses.replace(failure(1), nonce=Nonce(2), step=39, in_a_row=2)
    told = training(1)
    told.status(running(1, is_in_process=True, last_user_error=first))
    told.members(trainer(0), trainer(1, (0, 3, ""), failure=second))
    told.tick(SECONDARY_GRACE_S)
    told.tick(CAUSE_MOST_S)
    status = proposal(told).status
    assert status.budget == Budget(node_loss=1) and status.last_user_error == second
    third = dataclasses.replace(failure(1), nonce=Nonce(3), step=39, in_a_row=2)
    told = training(1)
    told.status(running(1, is_in_process=True, last_user_error=second))
    told.members(trainer(0), trainer(1, (0, 4, ""), failure=third))
    told.tick(SECONDARY_GRACE_S)
    assert written_status(told).reason is Reason.REPEATED_ERROR


def test_budget_that_is_spent_ends_the_job_with_the_culprit() -> None:
    """I11: a poison job ends FAILED."""
    told = proposer(1, limits=Limits(user_error=1))
    told.status(running(1, budget=Budget(user_error=1)))
    told.member(member(1, arrived=1, nonce=2, failed=failure(1)))
    told.tick(SECONDARY_GRACE_S)
    status = written_status(told)
    assert status.phase is Phase.FAILED and status.reason is Reason.BUDGET_SPENT
    assert status.failure == failure(1)


@pytest.mark.parametrize("by", ["steps", "time"])
def test_loss_for_which_the_job_waits_stays_charged(by: str) -> None:
    """The budget was refilled just before; the wait is no progress, nor are the steps once more."""
    limits = Limits(node_loss=1, refill_after_steps=100, refill_after_s=600.0)
    told = training(1, step=150 if by == "steps" else 5, min_nodes=2, limits=limits)
    told.tick(700.0 if by == "time" else 0.0)
    told.members(trainer(0), trainer(1))
    told.tell(ev.ResultsListed(results=()))
    told.tell(ev.PeerDied(node=name(1), life=Life("n1l1")))
    told.tick(0.2)
    waiting = written_status(told)
    assert (waiting.phase, waiting.budget) == (Phase.WAITING, Budget(node_loss=1))
    assert waiting.refilled_step == (150 if by == "steps" else 5)
    told.tell(ev.StatusWritten(ok=True))
    told.status(waiting)
    told.tick(700.0)
    while told.written():
        pass
    told.tell(ev.ResultsListed(results=()))
    told.members(trainer(0), trainer(1), trainer(2, (0, 1, "p"), arrived=0))
    told.tick(70.0)
    while told.count(fx.ProposeWorld) == 0:
        told.tell(ev.ResultsListed(results=()))
        told.members(trainer(0), trainer(2, (0, 1, "p"), arrived=0))
        told.tick(0.3)
    assert proposal(told).status.budget == Budget(node_loss=1)
    assert proposal(told).status.refilled_step == waiting.refilled_step


def test_each_cause_has_a_budget_of_its_own() -> None:
    """A lost node is not paid for by the script's errors."""
    told = proposer(1, 2, limits=Limits(user_error=0))
    told.members(member(0, arrived=1), member(1, arrived=1))
    told.tick(0.2)
    assert proposal(told).status.budget == Budget(node_loss=1)


def test_long_run_makes_the_budget_whole_again() -> None:
    """Progress refills it."""
    told = proposer(1, limits=Limits(user_error=1, refill_after_s=600.0))
    told.status(running(1, budget=Budget(user_error=1)))
    told.now_s += 601.0
    told.member(member(1, arrived=1, nonce=2, failed=failure(1)))
    told.tick(SECONDARY_GRACE_S)
    assert proposal(told).status.budget == Budget(user_error=1)


def test_same_error_without_a_group_in_two_generations_ends_the_job() -> None:
    """Restarting will not help."""
    told = proposer(1)
    told.status(running(1, last_user_error=failure(1, generation=0, has_group=False)))
    told.member(member(1, arrived=1, nonce=2, failed=failure(1, has_group=False)))
    told.tick(SECONDARY_GRACE_S)
    assert written_status(told).reason is Reason.REPEATED_ERROR


@pytest.mark.parametrize(
    "last",
    [
        failure(1, generation=0, has_group=True),
        failure(1, generation=0, has_group=None),
        failure(1, generation=0, has_group=False, where="/x/train.py:4"),
    ],
)
def test_other_errors_are_tried_again(last: object) -> None:
    """Another line, or a group that had been formed: it may go well next time."""
    told = proposer(1)
    told.status(running(1, last_user_error=last))
    told.member(member(1, arrived=1, nonce=2, failed=failure(1, has_group=False)))
    told.tick(SECONDARY_GRACE_S)
    assert told.count(fx.ProposeWorld) == 1


def test_job_succeeds_when_all_ranks_of_the_generation_exited_with_0() -> None:
    """Rule 9."""
    told = proposer(1)
    told.tell(ev.ResultSeen(result=result(0, 1)))
    told.tell(ev.ResultSeen(result=result(1, 1)))
    told.tick(0.2)
    assert told.state.is_status_in_flight
    assert told.state.ok_ranks == 2


def test_results_of_an_older_generation_do_not_count() -> None:
    """Rule 6."""
    told = proposer(1)
    told.tell(ev.ResultSeen(result=result(0, 0)))
    told.tell(ev.ResultSeen(result=result(1, 0)))
    assert told.state.ok_ranks == 0


def test_stop_is_a_final_status() -> None:
    """`elasticd stop`, with its why."""
    told = proposer(1)
    told.tell(ev.WantsListed(wants={"user": Want(writer="user", is_stop=True, why="lunch")}))
    status = written_status(told)
    assert status.phase is Phase.STOPPED and status.message == "lunch"


def test_falling_below_min_is_charged_once_and_said_once() -> None:
    """Then the wait is free, and so is going on."""
    told = proposer(1, min_nodes=2)
    told.members(member(0, arrived=1))
    told.tick(0.2)
    status = written_status(told)
    assert status.phase is Phase.WAITING and status.budget == Budget(node_loss=1)
    told.tell(ev.StatusWritten(ok=True))
    told.status(status)
    told.tick(0.5)
    assert told.count(fx.WriteStatus) == 0
    told.members(member(0, nonce=2), member(1, life=2))
    told.tick(0.5)
    found = proposal(told)
    assert found.status.budget == Budget(node_loss=1)
    assert found.world.reason is Reason.NODE_LOST


@pytest.mark.parametrize(
    ("gone", "phase"),
    [
        ((), Phase.WAITING),
        ((ev.PeerDied(node=name(1), life=Life("n1l1")),), Phase.FAILED),
        ((ev.ResultSeen(result=result(1, 1, code=None, has_left=True)),), Phase.FAILED),
    ],
)
def test_local_run_waits_for_a_host_that_may_come_back(
    gone: tuple[ev.Event, ...], phase: Phase
) -> None:
    """Too few nodes are left beside a useless one; but a lease is soon lost, and trains on."""
    told = training(1, 2, min_nodes=2, is_local=True)
    for event in gone:
        told.tell(event)
    told.members(trainer(0), trainer(2, (0, 9, ""), given_up=(Slot(0),)))
    told.tick(0.1)
    assert written_status(told).phase is phase


def test_other_wording_of_a_wait_is_no_reason_to_look_again() -> None:
    """Two proposers that know different things would answer each other without end."""
    told = proposer(1, min_nodes=2)
    told.members(member(0, arrived=1))
    told.tick(0.2)
    status = written_status(told)
    told.tell(ev.StatusWritten(ok=True))
    told.status(status)
    told.tick(0.5)
    told.status(dataclasses.replace(status, message="waiting for something else"))
    assert told.state.plan_at_s is None


def test_running_status_says_without_whom() -> None:
    """Rule 8 for people: names and reasons."""
    told = proposer(1, 2)
    told.members(member(0, arrived=1), member(1, arrived=1))
    told.tick(0.2)
    assert proposal(told).status.message == "began without node-2, whose lease ran out"


def test_first_world_waits_for_members_that_are_still_preparing() -> None:
    """Up to the first window; whoever is here now would only be joined later."""
    told = Told(0, first_window_s=3.0)
    told.standby()
    told.status(running(0))
    told.tell(ev.OldestFound(nodes=(name(0),)))
    told.tell(ev.ResultsListed(results=()))
    told.members(member(0), member(1, slots=0))
    told.tick(0.3)
    assert told.count(fx.ProposeWorld) == 0
    told.tick(2.8)
    assert [n.node for n in proposal(told).world.nodes] == [name(0)]


def test_alarm_is_never_in_the_past_once_it_was_heard() -> None:
    """Else the agent would spin."""
    told = proposer(1, 2)
    for _ in range(50):
        wake_s = wake_at_s(told.state)
        assert wake_s is not None and wake_s > told.now_s
        told.tick(wake_s - told.now_s)


def test_stop_before_the_first_world_waits_for_nobody_who_may_still_join() -> None:
    """torchrun's last_call_timeout may be ten minutes, and so long Ctrl-C had no effect."""
    told = Told(0, join_window_s=600.0)
    told.standby()
    told.status(running(0))
    told.tell(ev.OldestFound(nodes=(name(0),)))
    told.tell(ev.ResultsListed(results=()))
    told.members(member(0))
    assert told.count(fx.WriteStatus) == 0
    told.tell(ev.WantsListed(wants={"user": Want(writer="user", is_stop=True, why="lunch")}))
    assert written_status(told).phase is Phase.STOPPED

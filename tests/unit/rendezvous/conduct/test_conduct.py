"""What a member does about the world that stands."""

import dataclasses

from elasticd.records.ids import Generation, Slot
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import Exclusion
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.state import Stage
from tests.unit.rendezvous.cases import (
    Told,
    failure,
    incarnation,
    name,
    proposer,
    running,
    store,
    world,
)


def outsider(**spec: object) -> Told:
    """node-3 in generation 1 of four nodes, started: no proposer."""
    told = Told(3, **spec)
    told.standby()
    told.status(running(1))
    told.world(world(1, 0, 1, 2, 3))
    told.started()
    return told


def test_new_worker_is_started_only_when_nothing_of_the_old_one_is_left() -> None:
    """Rule 1: one process per slot."""
    told = outsider()
    told.world(world(2, 0, 1, 2, 3))
    assert told.count(fx.StopWorker) == 1 and told.count(fx.StartWorker) == 0
    told.exited(-15)
    started = told.one(fx.StartWorker)
    assert isinstance(started, fx.StartWorker) and started.placement.worker.nonce == 2


def test_planned_change_gives_the_full_grace_and_a_failure_the_short_one() -> None:
    """A rank stuck in a collective runs no handler."""
    told = outsider(shutdown_timeout_s=30.0, failure_timeout_s=3.0)
    told.world(dataclasses.replace(world(2, 0, 1, 2, 3), reason=Reason.JOINED))
    stop = told.one(fx.StopWorker)
    assert isinstance(stop, fx.StopWorker) and stop.grace_s == 30.0
    told = outsider(shutdown_timeout_s=30.0, failure_timeout_s=3.0)
    told.world(dataclasses.replace(world(2, 0, 1, 2, 3), reason=Reason.NODE_LOST))
    stop = told.one(fx.StopWorker)
    assert isinstance(stop, fx.StopWorker) and stop.grace_s == 3.0


def test_arrival_is_said_with_the_incident() -> None:
    """One record each, nothing per step."""
    told = outsider()
    told.world(world(2, 0, 1, 2, 3))
    told.exited(-15)
    told.up(nonce=2)
    assert told.count(fx.WriteIncident) == 1 and told.count(fx.WriteMember) == 1
    assert told.state.member_sent is not None and told.state.member_sent.arrived == 2


def test_older_world_that_is_seen_late_is_not_started() -> None:
    """Rules 1 and 7: a watch may repeat itself."""
    told = outsider()
    told.revision -= 50
    told.world(world(1, 3))
    assert told.effects == () or told.count(fx.StartWorker) == 0
    assert told.state.adopted == 1


def test_failure_of_a_worker_that_was_told_to_stop_is_no_news() -> None:
    """The world has moved on: no second generation for it."""
    told = outsider()
    told.world(world(2, 0, 1, 2, 3))
    told.failed(failure(3))
    assert told.state.failure is None and told.count(fx.WriteMember) == 0


def test_exit_0_after_a_stop_is_no_success() -> None:
    """A script that ends well on SIGTERM has not finished."""
    told = outsider()
    told.world(world(2, 0, 1, 2, 3))
    told.exited(0)
    assert told.state.exits == () and told.count(fx.WriteResult) == 0


def test_exit_0_is_written_down() -> None:
    """Rule 9: it outlives the agent's lease; the slot keeps its number."""
    told = outsider()
    told.exited(0)
    assert told.count(fx.WriteResult) == 1 and told.count(fx.WriteMember) == 0


def test_result_that_could_not_be_written_is_tried_again_after_a_while() -> None:
    """Not at once: etcd is in trouble enough."""
    told = outsider()
    told.exited(0)
    told.tell(ev.EffectDone(name="WriteResult", ok=False))
    assert told.count(fx.WriteResult) == 0
    told.tick(0.3)
    assert told.count(fx.WriteResult) == 1


def test_fenced_agent_writes_nothing_and_starts_nothing() -> None:
    """Rule 5."""
    told = outsider()
    told.tell(ev.LeaseUncertain())
    told.world(world(2, 0, 1, 2, 3))
    told.exited(-15)
    assert told.effects == ()
    told.tell(ev.LeaseHeld())
    assert told.count(fx.StartWorker) == 1


def test_fenced_agent_keeps_its_news_until_the_lease_is_sure() -> None:
    """Rule 5: its record in etcd may already be somebody else's reason to go on without it."""
    told = outsider()
    told.tell(ev.LeaseUncertain())
    told.tell(ev.SlotsGranted(slots=()))
    assert told.effects == ()
    told.tell(ev.LeaseHeld())
    assert told.count(fx.WriteMember) == 1


def test_ended_lease_stops_the_workers_and_begins_a_new_incarnation() -> None:
    """Nothing of this one may be written any more, whatever lease the agent gets."""
    told = outsider()
    told.tell(ev.LeaseEnded())
    assert told.count(fx.StopWorker) == 1
    told.tell(ev.LeaseHeld())
    assert told.state.is_fenced
    told.exited(-15)
    retire = told.one(fx.Retire)
    assert isinstance(retire, fx.Retire) and retire.rejoin_after_s == 0.0


def test_void_world_gets_the_short_grace_even_if_it_was_made_as_planned() -> None:
    """Rule 4: strangers count from the loss of our record, and wait for no more than the margin."""
    told = outsider(shutdown_timeout_s=30.0, failure_timeout_s=3.0)
    told.world(dataclasses.replace(world(2, 0, 1, 2, 3), reason=Reason.DRAINED))
    told.exited(-15)
    told.up(nonce=2)
    told.tell(ev.LeaseEnded())
    stop = told.one(fx.StopWorker)
    assert isinstance(stop, fx.StopWorker) and stop.grace_s == 3.0


def test_node_that_should_leave_does_not_come_back_after_its_lease_ended() -> None:
    """The wish to leave outlives the incarnation."""
    told = outsider()
    told.tell(ev.LeaseEnded())
    told.tell(ev.LeaveRequested(reason=Reason.DRAINED))
    told.exited(-15)
    retire = told.one(fx.Retire)
    assert isinstance(retire, fx.Retire) and retire.rejoin_after_s is None


def shut_out(losses: int) -> Told:
    told = outsider()
    excluded = Exclusion(
        node=name(3),
        incarnation=incarnation(3),
        reason=Reason.NODE_LOST,
        generation=Generation(2),
        losses=losses,
    )
    told.world(world(2, 0, 1, 2, excluded=(excluded,)))
    told.exited(-15)
    return told


def test_excluded_member_withdraws_and_comes_back_after_its_delay() -> None:
    """Rule 6: only as a new incarnation."""
    told = shut_out(losses=3)
    withdraw = told.one(fx.Withdraw)
    assert isinstance(withdraw, fx.Withdraw) and withdraw.result.has_left
    told.tell(ev.WithdrawalDone(ok=True))
    retire = told.one(fx.Retire)
    assert isinstance(retire, fx.Retire) and retire.rejoin_after_s == 2.0


def test_goodbye_that_was_not_heard_is_said_again() -> None:
    """Else its record would stand as long as the agent's lease."""
    told = shut_out(losses=1)
    told.tell(ev.WithdrawalDone(ok=False))
    assert told.count(fx.Withdraw) == 0
    told.tick(0.3)
    assert told.count(fx.Withdraw) == 1


def test_slot_of_an_ended_world_is_offered_beyond_a_process_that_never_began() -> None:
    """The proof for the others that nothing of it runs, where nothing ever did."""
    told = outsider()
    told.world(world(2, 0, 1, 2, 3))
    told.status(dataclasses.replace(running(2), phase=Phase.WAITING))
    told.exited(-15)
    sent = told.state.member_sent
    assert sent is not None and sent.slots[0].nonce == 3


def test_leaving_node_waits_for_a_world_without_it() -> None:
    """Until then the others count on its workers."""
    told = outsider()
    told.tell(ev.LeaveRequested(reason=Reason.DRAINED))
    assert told.count(fx.Withdraw) == 0 and told.count(fx.StopWorker) == 0
    assert told.state.stage is Stage.LEAVING
    told.world(world(2, 0, 1, 2))
    told.exited(-15)
    assert told.count(fx.Withdraw) == 1


def test_finished_node_may_leave_at_once() -> None:
    """Its ranks' exits are written; the world does without it."""
    told = outsider()
    told.exited(0)
    told.tell(ev.LeaveRequested(reason=Reason.PREEMPTED))
    assert told.count(fx.Withdraw) == 0, "not before the result is safe"
    told.tell(ev.EffectDone(name="WriteResult", ok=True))
    while told.written():
        pass
    assert told.state.stage is Stage.WITHDRAWING


def test_store_of_a_world_that_we_never_started_is_given_up() -> None:
    """It was named once: others may have tried to reach it."""
    told = Told(0)
    told.standby()
    told.status(running(2))
    told.world(world(2, 1, 0, spent_stores=(store(0, 1),)))
    used = told.one(fx.UseStore)
    assert isinstance(used, fx.UseStore) and used.store == store(0, 1)
    assert not used.is_begun, "it takes no place of a world that has workers"
    assert told.state.stores == (store(0, 2), store(0, 3))


def test_world_with_a_store_that_is_not_fresh_counts_as_lost_workers() -> None:
    """Better one more generation than ranks that meet in the store of an older one."""
    told = Told(0)
    told.standby()
    told.status(running(1))
    told.world(dataclasses.replace(world(1, 0, 1), store=store(0, 90)))
    assert told.count(fx.StartWorker) == 0
    sent = told.state.member_sent
    assert sent is not None and sent.slots[0].nonce == 2


def test_news_of_stores_alone_do_not_cost_a_write() -> None:
    """While one that the record names is left."""
    told = proposer(1)
    told.tell(ev.StoresChanged(stores=(store(0, 2), store(0, 3))))
    assert told.count(fx.WriteMember) == 0
    told.tell(ev.StoresChanged(stores=(store(0, 4), store(0, 5))))
    assert told.count(fx.WriteMember) == 1


def test_slots_that_are_taken_away_are_said() -> None:
    """The next world does without them."""
    told = outsider()
    told.tell(ev.SlotsGranted(slots=()))
    assert told.count(fx.WriteMember) == 1
    told.tell(ev.SlotsGranted(slots=(Slot(0),)))
    assert told.state.slots == (Slot(0),)

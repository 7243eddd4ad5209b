"""When an in-process job needs another world, what it looks like, and when the job is done."""

import dataclasses

import pytest

from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Nonce, Slot
from elasticd.records.job import Limits
from elasticd.records.member import Member
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import Exclusion, World
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.next_world.change import WorldChange, alike, find_change, offers_of
from elasticd.rendezvous.next_world.job_end import is_ending, is_trained
from elasticd.rendezvous.next_world.node_condition import has_ended
from elasticd.rendezvous.next_world.plan import plan_world
from elasticd.rendezvous.next_world.restart_budget import is_refilled
from elasticd.rendezvous.next_world.wait import ALIKE_GRACE_S, CAUSE_MOST_S, Wait
from elasticd.rendezvous.state import replace
from tests.unit.rendezvous.cases import (
    Told,
    failure,
    incarnation,
    member,
    name,
    proposer,
    result,
    running,
)
from tests.unit.rendezvous.trainers import kept, paced, stall, trainer, training


def change_of(told: Told, target: int = 4, *, is_overdue: bool = False) -> Reason | None:
    found = find_change(told.state, target, is_overdue)
    return found.reason if found is not None else None


def planned(told: Told, target: int = 4, *, is_overdue: bool = False) -> World | Wait:
    change = find_change(told.state, target, is_overdue)
    assert change is not None
    return plan_world(told.state, change, now_s=told.now_s)


def raiser(index: int) -> Member:
    """Its one rank raised."""
    return trainer(index, (0, 2, ""), failure=_raised(index), raised_alike=1)


def formed(told: Told, *members: Member) -> Told:
    told.members(*members)
    assert told.state.formed_s is not None
    return told


def unformed(told: Told, world: World, *members: Member) -> Told:
    """This world stands, and not all of its members have arrived."""
    told.status(running(world.generation, is_in_process=True))
    told.world(world)
    told.members(*members)
    assert told.state.formed_s is None
    return told


# --- who is told late -----------------------------------------------------------------------------


def test_a_worker_whose_end_nobody_had_heard_of_when_the_world_was_agreed_on_is_named() -> None:
    """etcd was away: who was back first knew of a broken collective, and named it once more."""
    told = training(1)
    unformed(told, kept(2, 0, 1, reason=Reason.COLLECTIVE_BROKEN), trainer(0), raiser(1))
    change = find_change(told.state, 4, False)
    assert change is not None and change.reason is Reason.WORKER_FAILED
    assert change.culprit == raiser(1).failure
    older = dataclasses.replace(_raised(1), nonce=Nonce(0))
    told.members(trainer(0), trainer(1, (0, 2, ""), failure=older))
    change = find_change(told.state, 4, False)
    assert change is not None and (change.reason, change.culprit) == (Reason.WORKER_KILLED, None)


# --- who left without a word ----------------------------------------------------------------------


def test_rank_that_left_in_the_middle_with_0_is_named() -> None:
    """Its process called `os._exit(0)` in `train`: what breaks elsewhere is only its echo."""
    told = training(1)
    left = result(1, 1)
    told.tell(ev.ResultSeen(result=left))
    formed(told, trainer(0, broken=Generation(1)), trainer(1, (0, 1, "f")))
    change = find_change(told.state, 4, False)
    assert change is not None and change.culprit is not None
    assert (change.reason, change.culprit.rank) == (Reason.WORKER_FAILED, 1)
    told.tell(ev.ResultSeen(result=dataclasses.replace(left, trained_in=Generation(1))))
    assert change_of(told) is Reason.COLLECTIVE_BROKEN, "that one had trained to the end"


# --- offers ---------------------------------------------------------------------------------------


def test_only_prepared_processes_are_named() -> None:
    """The one that is in the world first, then one that has the state."""
    told = training(1, workers_per_node=1)
    one = trainer(1, (0, 1, "p"), (1, 1, "ps"), (2, 1, ""))
    assert [(o.slot, o.nonce) for o in offers_of(told.state, one)] == [(0, 1)]
    other = trainer(2, (0, 1, "p"), (1, 1, "ps"), (2, 1, ""))
    assert [(o.slot, o.nonce) for o in offers_of(told.state, other)] == [(1, 1)]
    assert [o.slot for o in offers_of(training(1).state, other)] == [0, 1], "as many as there are"


def test_process_older_than_the_one_that_was_named_is_not_named_again() -> None:
    """Rule 1: its agent is about to stop it."""
    told = unformed(training(1), kept(2, 0, 1, nonces={1: (2,)}), trainer(0), trainer(1))
    assert offers_of(told.state, trainer(1, (0, 1, "ps"))) == ()
    assert len(offers_of(told.state, trainer(1, (0, 2, "p")))) == 1


def test_empty_slot_proves_that_its_process_has_ended() -> None:
    """Rule 4, where the replacement takes long or never comes."""
    told = formed(training(1), trainer(0), trainer(1))
    world = told.state.world
    assert world is not None and not has_ended(told.state, world, world.nodes[1])
    told.member(trainer(1, (0, 2, "")))
    assert has_ended(told.state, world, world.nodes[1])


def test_processes_that_left_their_world_prove_that_it_is_over() -> None:
    """Rule 4: they keep their numbers."""
    told = training(1)
    told.member(trainer(1, left=Generation(1)))
    world = told.state.world
    assert world is not None and has_ended(told.state, world, world.nodes[1])


# --- changes --------------------------------------------------------------------------------------


def test_new_process_on_a_node_of_the_world_is_a_newcomer() -> None:
    """Part of a node comes back."""
    told = training(1)
    told.member(trainer(1, (0, 1, "ps"), (1, 1, "p")))
    assert change_of(told) is Reason.JOINED


def test_agreed_step_that_is_not_made_in_time_accuses_nobody() -> None:
    """Everybody leaves at once instead, but for a pause."""
    world = kept(2, 0, 1, at_step=9, reason=Reason.JOINED, restarts=1)
    told = unformed(training(1), world, trainer(0), trainer(1))
    assert change_of(told) is None
    assert change_of(told, is_overdue=True) is Reason.COLLECTIVE_BROKEN
    following = planned(told, is_overdue=True)
    assert isinstance(following, World)
    assert following.at_step is None and len(following.nodes) == 2
    told.member(trainer(1, is_paused=True))
    assert change_of(told, is_overdue=True) is None


@pytest.mark.parametrize("is_listed", [False, True])
def test_after_a_pause_a_world_has_its_time_to_form_anew(is_listed: bool) -> None:
    """The step that was agreed on could not be made in the pause, which outlasted the time."""
    world = kept(2, 0, 1, at_step=9, reason=Reason.JOINED, restarts=1)
    told = unformed(training(1), world, trainer(0), trainer(1, is_paused=True))
    told.tick(told.state.spec.formation_timeout_s)
    if is_listed:
        told.members(trainer(0), trainer(1))
    else:
        told.member(trainer(1))
    assert told.state.formation_deadline_s == told.now_s + told.state.spec.formation_timeout_s


def test_rank_that_is_alone_does_not_raise_alike() -> None:
    """It proves nothing."""
    for others, is_replicated in (((), False), ((1,), True)):
        told = training(*others)
        records = [raiser(i) for i in (0, *others)]
        told.members(*records)
        assert told.state.world is not None
        assert alike(told.state, told.state.world).is_all is is_replicated


def test_other_ranks_of_a_node_must_have_raised_too() -> None:
    """One raised, and then somebody killed the other: that says nothing of the script."""
    told = training(1)
    told.world(kept(2, 0, 1, nonces={1: (1, 1)}))
    lost = trainer(1, (0, 2, ""), (1, 2, ""), failure=failure(1, generation=2), raised_alike=1)
    first = trainer(0, (0, 2, ""), failure=failure(0, generation=2), raised_alike=1)
    told.members(first, lost)
    world = told.state.world
    assert world is not None and not alike(told.state, world).is_all
    told.members(first, dataclasses.replace(lost, raised_alike=2))
    assert alike(told.state, world).is_all


def test_node_that_is_gone_raises_nothing_any_more() -> None:
    told = training(1)
    told.members(trainer(0), raiser(1))
    world = told.state.world
    assert world is not None
    assert alike(told.state, world).failure is not None
    told.state = replace(told.state, dead=frozenset({world.nodes[0].incarnation}))
    assert alike(told.state, world).failure is None


def test_agreed_step_of_long_steps_is_not_late_before_its_time() -> None:
    """The deadline of a formation begins where the step can be done."""
    told = training(1)
    paced(told, 1, 5, step_s=120.0)
    told.world(kept(2, 0, 1, at_step=7, reason=Reason.JOINED))
    deadline_s = told.state.formation_deadline_s
    assert deadline_s is not None and deadline_s - told.now_s > 3 * 120.0


def test_rank_that_has_not_ended_may_raise_alike() -> None:
    """Until it says that its collective broke, or raises something else."""
    told = training(1)
    told.members(trainer(0), raiser(1))
    world = told.state.world
    assert world is not None
    shown = alike(told.state, world)
    assert shown.failure is not None and not shown.is_all
    told.member(trainer(0, broken=Generation(1)))
    assert alike(told.state, world).failure is None
    other = dataclasses.replace(_raised(0), exception="KeyError: 'x'")
    told.members(trainer(0, (0, 2, ""), failure=other), raiser(1))
    assert alike(told.state, world).failure is None


def test_no_world_is_proposed_while_all_may_raise_alike() -> None:
    """A bug strikes slow ranks later; and a broken collective is seen at once."""
    told = training(1)
    told.member(raiser(1))
    told.tick(ALIKE_GRACE_S + 0.1)
    assert told.count(fx.ProposeWorld) == 0
    told.tell(ev.WorkerBroken(slot=Slot(0), nonce=Nonce(1), generation=Generation(1)))
    told.written()
    told.tick(0.2)
    assert told.count(fx.ProposeWorld) == 1


def test_raise_of_one_rank_is_recovered_from_though_the_others_say_nothing() -> None:
    """They may compute for minutes."""
    told = training(1)
    told.member(raiser(1))
    told.tick(ALIKE_GRACE_S + 0.1)
    assert told.count(fx.ProposeWorld) == 0
    told.tick(CAUSE_MOST_S)
    assert told.count(fx.ProposeWorld) == 1


def test_error_that_ends_the_job_ends_it() -> None:
    """No other rank is waited for, and no other world is tried."""
    told = training(1)
    told.member(trainer(1, (0, 2, ""), failure=dataclasses.replace(_raised(1), ends_job=True)))
    told.tick(ALIKE_GRACE_S + 0.1)
    effect = told.one(fx.WriteStatus)
    assert isinstance(effect, fx.WriteStatus)
    assert (effect.status.phase, effect.status.reason) == (Phase.FAILED, Reason.ENDS_JOB)
    assert effect.status.failure is not None and effect.status.failure.rank == 1


def test_rank_that_returned_early_ends_the_job() -> None:
    """Where others wait for it in a collective; not where all have returned, or one takes long."""
    told = training(1)
    done = stall(8, has_returned=True)
    told.members(trainer(0, stall=stall(9)), trainer(1, stall=done))
    change = find_change(told.state, 4, False)
    assert change is not None and change.reason is Reason.WORKER_FAILED
    assert change.culprit is not None and change.culprit.ends_job
    assert "rank 1 returned from train after step 5" in change.culprit.exception
    for other in (stall(8), done):
        told.members(trainer(0, stall=other), trainer(1, stall=done))
        assert change_of(told) is None
    told.members(trainer(0), trainer(1, stall=done))
    assert change_of(told) is None


def test_node_that_others_cannot_reach_is_left_out() -> None:
    """All of them reach etcd. Who is accused by most goes first; of a pair the higher rank."""
    told = training(1, 2)
    broken = {"broken": Generation(1)}
    told.members(
        trainer(0, **broken, cut_off=(name(1),)),
        trainer(1, **broken, cut_off=(name(0), name(2))),
        trainer(2, **broken, cut_off=(name(1),)),
    )
    found = planned(told)
    assert isinstance(found, World) and found.reason is Reason.CUT_OFF
    assert [n.node for n in found.nodes] == [name(0), name(2)]
    exclusion = found.exclusion(name(1))
    assert exclusion is not None and exclusion.reason is Reason.CUT_OFF
    told.members(
        trainer(0, **broken),
        trainer(1, **broken, cut_off=(name(2),)),
        trainer(2, **broken, cut_off=(name(1),)),
    )
    found = planned(told)
    assert isinstance(found, World) and [n.node for n in found.nodes] == [name(0), name(1)]


def test_what_was_out_of_reach_in_an_older_world_accuses_nobody() -> None:
    """The network may be well again."""
    told = training(1)
    told.members(trainer(0, broken=Generation(0), cut_off=(name(1),)), trainer(1))
    assert change_of(told) is None


def test_node_that_was_cut_off_comes_back_when_it_reaches_the_others() -> None:
    """Its agent is told to try that first."""
    told = training(1)
    told.tell(
        ev.WorkerBroken(
            slot=Slot(0), nonce=Nonce(1), generation=Generation(1), unreachable=(name(1),)
        )
    )
    while told.written():
        pass
    assert told.state.member_sent is not None and told.state.member_sent.cut_off == (name(1),)
    excluded = Exclusion(
        node=name(0), incarnation=incarnation(0), reason=Reason.CUT_OFF, generation=Generation(2)
    )
    told.status(running(2, is_in_process=True))
    told.world(kept(2, 1, 2, reason=Reason.CUT_OFF, excluded=(excluded,)))
    told.tell(ev.WorkerLeft(slot=Slot(0), nonce=Nonce(1)))
    told.one(fx.Withdraw)
    told.tell(ev.WithdrawalDone(ok=True))
    retire = told.one(fx.Retire)
    assert isinstance(retire, fx.Retire) and retire.keeps_workers and retire.is_cut_off


def test_node_that_is_lost_makes_nobody_else_out_of_reach() -> None:
    """It is the one that does not answer."""
    told = training(1)
    told.members(trainer(0, broken=Generation(1), cut_off=(name(1),)))
    change = find_change(told.state, 4, False)
    assert change is not None and change.reason is Reason.NODE_LOST
    assert dict(change.lost) == {name(1): Reason.NODE_LOST}


# --- plans ----------------------------------------------------------------------------------------


def test_join_begins_a_few_steps_ahead() -> None:
    """So far that the news comes in time."""
    told = training(1)
    told.members(trainer(0), trainer(1), trainer(2))
    found = planned(told)
    assert isinstance(found, World) and found.at_step is not None
    assert 5 < found.at_step < 20
    assert [w.nonce for n in found.nodes for w in n.workers] == [1, 1, 1]


def test_failure_begins_at_once() -> None:
    """Nobody can make another step."""
    told = training(1)
    told.members(trainer(0), trainer(1, (0, 2, "")))
    found = planned(told)
    assert isinstance(found, World) and found.at_step is None
    assert [n.node for n in found.nodes] == [name(0)]


def test_process_that_hung_is_not_named_again() -> None:
    """Its node may go on with another one: its own record still offers both."""
    told = training(1)
    other = trainer(1, (0, 1, "ps"), (1, 1, "p"), stall=stall(8))
    told.members(trainer(0, stall=stall(9)), other)
    found = planned(told)
    assert isinstance(found, World)
    assert [[w.slot for w in n.workers] for n in found.nodes] == [[0], [1]]
    told.members(trainer(0, stall=stall(9)), trainer(1, stall=stall(8)))
    found = planned(told)
    assert isinstance(found, World) and [n.node for n in found.nodes] == [name(0)]


def test_planned_change_waits_for_the_first_step() -> None:
    """So every world commits something."""
    told = training(1)
    told.state = replace(told.state, pace=None)
    told.members(trainer(0), trainer(1), trainer(2))
    found = planned(told)
    assert isinstance(found, Wait) and "first step" in found.message


def test_leave_waits_for_the_newcomers_of_a_world_under_way_to_have_the_state() -> None:
    """Else the only one with the state could go before it has handed it over."""
    world = kept(2, 0, 1, at_step=9, reason=Reason.JOINED, restarts=1)
    told = unformed(
        training(1), world, trainer(0, leaving=Reason.DRAINED), trainer(1, (0, 1, "p"), arrived=2)
    )
    found = planned(told)
    assert isinstance(found, Wait) and "to form" in found.message and not found.is_below_min


def test_last_node_with_the_state_hands_it_over_before_it_leaves() -> None:
    """It asks to go, and whoever could take its place is new."""
    told = training(max_nodes=2)
    told.members(trainer(0, leaving=Reason.DRAINED), trainer(1, (0, 1, "p")))
    found = planned(told, target=2)
    assert isinstance(found, World)
    assert [n.node for n in found.nodes] == [name(0), name(1)] and found.at_step is not None


def test_standby_with_the_state_goes_before_one_without() -> None:
    """An old state is better than none."""
    told = training(1, max_nodes=1)
    told.members(
        trainer(0, (0, 2, "")), trainer(1, (0, 2, "")), trainer(2, (0, 1, "p")), trainer(3)
    )
    found = planned(told, target=1)
    assert isinstance(found, World) and [n.node for n in found.nodes] == [name(3)]


def test_state_of_a_process_that_hangs_makes_nobody_stay() -> None:
    """The next process of its node has none, and a standby has it."""
    told = training(max_nodes=1)
    hung = dataclasses.replace(failure(0), is_hung=True)
    change = WorldChange(reason=Reason.WORKER_HUNG, culprit=hung)
    told.members(trainer(0, (0, 1, "ps"), (1, 1, "p")), trainer(1, arrived=0))
    found = plan_world(told.state, change, now_s=told.now_s)
    assert isinstance(found, Wait) and "node-0 to stop its workers" in found.message
    told.members(trainer(0, (1, 1, "p"), left=1), trainer(1, arrived=0))
    found = plan_world(told.state, change, now_s=told.now_s)
    assert isinstance(found, World) and [n.node for n in found.nodes] == [name(1)]


# --- the budget and the mode ----------------------------------------------------------------------


def test_budget_is_whole_again_after_enough_steps() -> None:
    """Steps that were made since it was whole last."""
    told = training(1, limits=Limits(refill_after_steps=100))
    told.status(running(1, is_in_process=True, refilled_step=50))
    paced(told, 1, 149)
    assert not is_refilled(told.state, told.now_s)
    paced(told, 1, 150)
    assert is_refilled(told.state, told.now_s)


def test_proposer_says_once_that_the_job_is_in_process() -> None:
    """Nodes that join later must come prepared."""
    told = proposer(1)
    told.member(trainer(1))
    told.tick(1.0)
    effect = told.one(fx.WriteStatus)
    assert isinstance(effect, fx.WriteStatus) and effect.status.is_in_process
    told.status(effect.status)
    told.tick(1.0)
    assert told.count(fx.WriteStatus) == 0


# --- the end --------------------------------------------------------------------------------------


def test_job_at_its_end_takes_nobody_in_and_lets_nobody_go() -> None:
    """A rank has finished: so have all of them, but for the rest of their scripts."""
    told = training(1)
    told.members(trainer(0, (0, 1, "sf")), trainer(1, leaving=Reason.DRAINED), trainer(2))
    assert told.state.world is not None and is_ending(told.state, told.state.world)
    assert change_of(told) is None
    assert change_of(told, target=1) is None


def test_loss_at_the_end_is_a_loss() -> None:
    """A script that dies after elasticd.run did not do what it had to do."""
    told = training(1)
    told.members(trainer(0, (0, 1, "sf")), trainer(1, (0, 2, "")))
    assert change_of(told) is Reason.WORKER_KILLED


def test_job_is_done_when_all_who_trained_have_exited_with_0() -> None:
    """A world was agreed on too late: its newcomer waits in vain."""
    told = _overtaken()
    world = told.state.world
    assert world is not None and not is_trained(told.state, world)
    told.tell(_exit(0))
    told.tell(_exit(1))
    assert is_trained(told.state, world)
    told.member(trainer(2, (0, 1, "p"), arrived=2, broken=Generation(2)))
    assert change_of(told) is None


def test_process_that_a_smaller_world_left_out_is_not_waited_for_at_the_end() -> None:
    """It has a state, of the step at which it was left out; the others have gone beyond."""
    told = training(1)
    left_out = trainer(1, (0, 2, "p"), (1, 1, "ps"), arrived=1)
    told.members(trainer(0), left_out)
    told.tick(5.0)
    grown = told.one(fx.ProposeWorld)
    assert isinstance(grown, fx.ProposeWorld)
    assert [node.new_slots for node in grown.world.nodes] == [(), (Slot(0), Slot(1))]
    told = unformed(training(1), grown.world, _done(0), left_out)
    assert not is_trained(told.state, grown.world)
    told.tell(_exit(0))
    assert is_trained(told.state, grown.world)


def test_proposer_that_was_started_anew_knows_the_processes_of_a_world_that_formed() -> None:
    """It saw nobody arrive; to call them new would be to end the job without one that raised."""
    assert _called_new(trainer(0), trainer(1, (0, 1, "ps"), (1, 1, "ps"), arrived=2)) == [(), ()]


def test_proposer_that_was_started_anew_calls_those_new_who_never_entered() -> None:
    """Nobody arrived: the process that the world took in has trained with no one."""
    left_out = trainer(1, (0, 1, "ps"), (1, 1, "p"))
    assert _called_new(trainer(0), left_out) == [(), (Slot(1),)]


def test_node_of_rank_0_that_refused_the_store_has_not_arrived() -> None:
    """It says "arrived" and "broken" in one, so that the next world need not wait for it."""
    refuser = trainer(0, arrived=2, broken=Generation(2))
    assert _called_new(refuser, trainer(1, (0, 1, "ps"), (1, 1, "p"))) == [(), (Slot(1),)]


def _called_new(*members: Member) -> list[tuple[Slot, ...]]:
    """By node, in generation 3: world 2 took in node-1's second process, and node-2 was lost."""
    two = kept(2, 0, 1, 2, nonces={1: (1, 1)}, restarts=1)
    taken_in = dataclasses.replace(two.nodes[1], new_slots=(Slot(1),))
    two = dataclasses.replace(two, nodes=(two.nodes[0], taken_in, two.nodes[2]))
    told = unformed(training(1, 2), two, *members)
    lost = WorldChange(reason=Reason.NODE_LOST, culprit=None, lost={name(2): Reason.NODE_LOST})
    found = plan_world(told.state, lost, now_s=told.now_s)
    assert isinstance(found, World)
    return [node.new_slots for node in found.nodes]


def test_members_are_read_once_more_before_the_newcomers_are_passed_over() -> None:
    """Rule 7: a watch may have missed that one of them has the state."""
    told = _overtaken()
    told.tell(_exit(0))
    told.tell(_exit(1))
    told.tick(1.0)
    assert told.count(fx.WriteStatus) == 0
    told.tick(0.0)
    assert told.count(fx.Observe) == 1 and told.count(fx.WriteStatus) == 0
    told.tell(_results(_exit(0), _exit(1)))
    told.members(_done(0), _done(1), trainer(2, (0, 1, "p"), arrived=2))
    told.tick(1.0)
    effect = told.one(fx.WriteStatus)
    assert isinstance(effect, fx.WriteStatus) and effect.status.phase is Phase.SUCCEEDED


def test_newcomer_with_the_state_is_waited_for() -> None:
    """It trained in the world before: a replaced process on a node that stayed."""
    told = _overtaken()
    told.member(trainer(1, (0, 1, "ps"), arrived=1))
    told.tell(_exit(0))
    assert told.state.world is not None and not is_trained(told.state, told.state.world)


def _overtaken() -> Told:
    """Generation 2 takes node-2 in; node-0 and node-1 finished before they could enter it."""
    world = kept(2, 0, 1, 2, at_step=9, reason=Reason.JOINED, restarts=1)
    nodes = (*world.nodes[:2], dataclasses.replace(world.nodes[2], since=Generation(2)))
    told = training(1)
    return unformed(
        told,
        dataclasses.replace(world, nodes=nodes),
        _done(0),
        _done(1),
        trainer(2, (0, 1, "p"), arrived=2),
    )


def _done(index: int) -> Member:
    return trainer(index, (0, 1, "sf"), arrived=1)


def _exit(index: int) -> ev.ResultSeen:
    return ev.ResultSeen(result=result(index, 2))


def _results(*seen: ev.ResultSeen) -> ev.ResultsListed:
    return ev.ResultsListed(results=tuple(one.result for one in seen))


def _raised(index: int) -> Failure:
    return failure(index, generation=1, rank=index)


def test_member_without_processes_is_no_trainer() -> None:
    """The facts tell restart mode's offers from ours."""
    assert offers_of(training(1).state, member(2)) == ()

"""A broken collective without a culprit waits for the ranks that have said nothing, for a bound."""

import dataclasses

from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Life, Nonce, Slot
from elasticd.records.job import Limits
from elasticd.records.member import Member
from elasticd.records.reason import Reason
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.next_world.node_condition import is_silent
from elasticd.rendezvous.next_world.wait import (
    CAUSE_MOST_S,
    SECONDARY_GRACE_S,
    WORD_WINDOW_S,
)
from elasticd.rendezvous.own_record import desired_member
from tests.unit.rendezvous.cases import Told, failure, incarnation, running
from tests.unit.rendezvous.trainers import attach, entered, kept, trainer, training


def broken(index: int, **more: object) -> Member:
    return dataclasses.replace(trainer(index), broken=Generation(1), **more)  # type: ignore[arg-type]


def broken_here(told: Told) -> None:
    told.tell(ev.WorkerBroken(slot=Slot(0), nonce=Nonce(1), generation=Generation(1)))
    while told.written():
        pass


def raised(index: int) -> tuple[Member, Failure]:
    failed = failure(index, rank=index)
    return trainer(index, (0, 2, ""), failure=failed, raised_alike=1), failed


def told_of_a_silent_rank() -> Told:
    """Ranks 0 and 1 fell out of a collective, and rank 2 has said nothing of it yet."""
    told = training(1, 2)
    broken_here(told)
    told.member(broken(1))
    told.tick(SECONDARY_GRACE_S)
    assert told.count(fx.ProposeWorld) == 0
    return told


def proposal(told: Told) -> fx.ProposeWorld:
    found = told.one(fx.ProposeWorld)
    assert isinstance(found, fx.ProposeWorld)
    return found


def test_word_of_the_rank_that_raised_is_waited_for_and_names_the_change() -> None:
    """Its process, or its agent, stood still between its exception and the report."""
    told = told_of_a_silent_rank()
    told.tick(CAUSE_MOST_S / 2)
    assert told.count(fx.ProposeWorld) == 0
    member, failed = raised(2)
    told.member(member)
    world = proposal(told).world
    assert (world.reason, world.culprit) == (Reason.WORKER_FAILED, failed)


def test_rank_that_never_says_anything_is_waited_for_no_longer_than_the_bound() -> None:
    """It is nobody's fault then."""
    told = told_of_a_silent_rank()
    told.tick(CAUSE_MOST_S)
    world = proposal(told).world
    assert (world.reason, world.culprit) == (Reason.COLLECTIVE_BROKEN, None)


def test_nothing_is_waited_for_once_every_rank_has_said_that_it_broke() -> None:
    """No rank is left that could have been the cause."""
    told = told_of_a_silent_rank()
    told.member(broken(2))
    told.tick(WORD_WINDOW_S)
    assert proposal(told).world.reason is Reason.COLLECTIVE_BROKEN


def test_nothing_is_waited_for_where_all_have_said_it_in_time() -> None:
    """The wait costs those nothing that know all there is to know."""
    told = training(1)
    broken_here(told)
    told.member(broken(1))
    told.tick(SECONDARY_GRACE_S)
    assert proposal(told).world.reason is Reason.COLLECTIVE_BROKEN


def test_a_cause_of_another_kind_ends_the_wait() -> None:
    """A node that is found dead explains the broken collective."""
    told = told_of_a_silent_rank()
    told.tell(ev.PeerDied(node=trainer(2).node, life=Life("n2l1")))
    told.tick(SECONDARY_GRACE_S)
    assert proposal(told).world.reason is Reason.NODE_DEAD


def test_job_is_not_ended_for_a_broken_collective_before_the_word_is_there() -> None:
    """The budget for lost nodes is not that for the script's errors."""
    told = training(1, 2, limits=Limits(node_loss=0))
    broken_here(told)
    told.member(broken(1))
    told.tick(SECONDARY_GRACE_S)
    assert told.count(fx.WriteStatus) == told.count(fx.ProposeWorld) == 0
    told.member(raised(2)[0])
    assert proposal(told).world.reason is Reason.WORKER_FAILED


def test_who_is_paused_or_gone_or_has_raised_is_not_silent() -> None:
    """Nothing is to be expected of them."""
    told = training(1)
    finished = dataclasses.replace(trainer(1).slots[0], is_finished=True)
    for member, is_expected in (
        (trainer(1), True),
        (broken(1), False),
        (broken(1, is_partly_broken=True), True),
        (trainer(1, is_paused=True), False),
        (raised(1)[0], False),
        (trainer(1, backend="gloo"), True),
        (trainer(1, backend="cpu:gloo,cuda:nccl"), False),
        (dataclasses.replace(trainer(1), leaving=Reason.PREEMPTED), False),
        (dataclasses.replace(trainer(1), slots=(finished,)), False),
        (dataclasses.replace(trainer(1), incarnation=incarnation(1, 2)), False),
    ):
        told.members(broken(0), member)
        world = told.state.world
        assert world is not None
        assert is_silent(told.state, world, world.nodes[1]) is is_expected


def test_ranks_that_see_nothing_of_a_broken_collective_are_not_waited_for() -> None:
    """Over NCCL they wait on their devices, and would cost each such change the whole bound."""
    told = training(1, 2)
    told.tell(
        ev.WorkerFormed(
            slot=Slot(0), nonce=Nonce(1), generation=Generation(1), backend="cpu:gloo,cuda:nccl"
        )
    )
    assert desired_member(told.state).backend == "cpu:gloo,cuda:nccl"
    for index in (0, 1, 2):
        told.member(trainer(index, backend="cpu:gloo,cuda:nccl"))
    broken_here(told)
    told.tick(SECONDARY_GRACE_S)
    world = proposal(told).world
    assert (world.reason, world.culprit) == (Reason.COLLECTIVE_BROKEN, None)


def test_node_with_several_ranks_tells_whether_all_of_them_have_spoken() -> None:
    """One of them may have raised, and fell the other out of its collective."""
    told = Told(0, workers_per_node=0)
    told.tell(ev.SlotsGranted(slots=(Slot(0), Slot(1))))
    told.standby()
    told.status(running(1, is_in_process=True))
    told.world(kept(1, 0, 1, nonces={0: (1, 1)}))
    told.started()
    for slot in (0, 1):
        attach(told, slot)
        entered(told, 1, slot)
    for slot, is_partly in ((0, True), (1, False)):
        told.tell(ev.WorkerBroken(slot=Slot(slot), nonce=Nonce(1), generation=Generation(1)))
        member = desired_member(told.state)
        assert (member.broken, member.is_partly_broken) == (1, is_partly)

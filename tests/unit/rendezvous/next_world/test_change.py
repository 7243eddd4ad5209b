"""Why the next world is needed, and what the gravest of several reasons is."""

import pytest

from elasticd.records.member import Member
from elasticd.records.reason import Phase, Reason
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.next_world.change import find_change
from elasticd.rendezvous.next_world.node_condition import has_ended
from elasticd.rendezvous.state import replace
from tests.unit.rendezvous.cases import failure, member, name, proposer, result, running


def reason_of(*members: Member, is_overdue: bool = False) -> Reason | None:
    told = proposer(1, 2)
    told.members(*members)
    change = find_change(told.state, 3, is_overdue)
    return change.reason if change is not None else None


WELL = [member(i, arrived=1) for i in range(3)]


def test_world_whose_members_are_well_may_stand() -> None:
    """No reason, no change."""
    assert reason_of(*WELL) is None


@pytest.mark.parametrize(
    ("third", "reason"),
    [
        (None, Reason.NODE_LOST),
        (member(2, life=2), Reason.NODE_RETURNED),
        (member(2, arrived=1, leaving=Reason.DRAINED), Reason.DRAINED),
        (member(2, arrived=1, nonce=2), Reason.WORKER_KILLED),
        (member(2, arrived=1, slots=0), Reason.WORKER_KILLED),
        (member(2, arrived=1, nonce=2, failed=failure(2)), Reason.WORKER_FAILED),
        (
            member(2, arrived=1, nonce=2, failed=failure(2, is_secondary=True)),
            Reason.COLLECTIVE_BROKEN,
        ),
        (
            member(2, arrived=1, nonce=2, failed=failure(2, signal="SIGKILL")),
            Reason.WORKER_KILLED,
        ),
    ],
)
def test_each_fact_about_a_node_has_its_reason(third: Member | None, reason: Reason) -> None:
    """One closed list of words."""
    assert reason_of(*WELL[:2], *([third] if third else [])) is reason


def test_failure_of_an_older_generation_blames_nobody() -> None:
    """It was paid for already; the worker is lost without a known cause."""
    old = member(2, arrived=1, nonce=2, failed=failure(2, generation=0))
    assert reason_of(*WELL[:2], old) is Reason.WORKER_KILLED


def test_gravest_reason_names_the_change() -> None:
    """A user's error explains the broken collective beside it."""
    echo = member(1, arrived=1, nonce=2, failed=failure(1, is_secondary=True))
    cause = member(2, arrived=1, nonce=2, failed=failure(2))
    assert reason_of(WELL[0], echo, cause) is Reason.WORKER_FAILED


def test_member_that_has_not_arrived_is_only_accused_when_it_is_late() -> None:
    """Before the deadline it is just starting."""
    slow = member(2)
    assert reason_of(*WELL[:2], slow) is None
    assert reason_of(*WELL[:2], slow, is_overdue=True) is Reason.DID_NOT_ARRIVE


def test_finished_node_is_no_loss() -> None:
    """Rule 9: exit 0 of all its ranks is a recorded fact."""
    told = proposer(1, 2)
    told.tell(ev.ResultSeen(result=result(2, 1)))
    told.members(*WELL[:2])
    assert find_change(told.state, 3, is_overdue=False) is None


def test_result_of_another_generation_finishes_nothing() -> None:
    """Rule 6: it speaks of other workers."""
    told = proposer(1, 2)
    told.tell(ev.ResultSeen(result=result(2, 0)))
    told.members(*WELL[:2])
    change = find_change(told.state, 3, is_overdue=False)
    assert change is not None and change.reason is Reason.NODE_LOST


def test_goodbye_is_not_a_loss_but_a_leave() -> None:
    """The result of the withdrawal says so."""
    told = proposer(1, 2)
    told.tell(ev.ResultSeen(result=result(2, 1, code=None, has_left=True)))
    told.members(*WELL[:2])
    change = find_change(told.state, 3, is_overdue=False)
    assert change is not None and change.reason is Reason.NODE_LEFT
    assert change.lost == {name(2): Reason.NODE_LEFT}


def test_world_that_is_finishing_is_not_changed_for_its_size() -> None:
    """A newcomer would make ranks that are done begin again."""
    told = proposer(1)
    told.tell(ev.ResultSeen(result=result(1, 1)))
    told.members(*WELL)
    assert find_change(told.state, 3, is_overdue=False) is None


def test_resumed_job_keeps_the_reason_that_stopped_it() -> None:
    """Who was first is still worth knowing after the wait; that workers are gone is no news."""
    told = proposer(1, 2)
    waiting = replace_status(Reason.WORKER_FAILED)
    told.status(waiting)
    told.members(*[member(i, nonce=2) for i in range(3)])
    change = find_change(told.state, 3, is_overdue=False)
    assert change is not None and change.reason is Reason.WORKER_FAILED
    assert change.culprit == waiting.failure


def replace_status(reason: Reason):  # type: ignore[no-untyped-def]
    import dataclasses

    return dataclasses.replace(
        running(1), phase=Phase.WAITING, reason=reason, failure=failure(1, rank=1)
    )


def test_end_is_proved_by_goodbye_probe_return_or_later_process_numbers() -> None:
    """Rule 4; a lease that ran out proves nothing, nor does a wish to leave."""
    told = proposer(1)
    world = told.state.world
    assert world is not None
    node = world.nodes[1]
    told.members(member(0, arrived=1), member(1, arrived=1, leaving=Reason.DRAINED))
    assert not has_ended(told.state, world, node)
    told.members(member(0, arrived=1), member(1, nonce=2))
    assert has_ended(told.state, world, node)
    told.members(member(0, arrived=1), member(1, count=2))
    assert has_ended(told.state, world, node)
    # Another agent under its name, whatever that one says.
    told.members(member(0, arrived=1), member(1, life=2, nonce=2))
    assert not has_ended(told.state, world, node)
    told.members(member(0, arrived=1))
    assert not has_ended(told.state, world, node)
    dead = replace(told.state, dead=frozenset({node.incarnation}))
    assert has_ended(dead, world, node)


@pytest.mark.parametrize("reason", Reason)
def test_any_word_for_why_a_node_leaves_can_be_weighed(reason: Reason) -> None:
    """A newer version may write one that this one reads as `other`: no proposer may end of it."""
    lost = failure(2, rank=2, signal="SIGKILL")
    parting = member(1, arrived=1, leaving=reason)
    assert reason_of(member(0, arrived=1), parting, member(2, arrived=1)) is reason
    killed = member(2, arrived=1, nonce=2, failed=lost)
    assert reason_of(member(0, arrived=1), parting, killed) is not None

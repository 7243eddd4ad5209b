"""A loss before the first snapshot: the survivors end too, and the loss stays the cause."""

import dataclasses
from typing import Any

import pytest

from elasticd.records.account.incident import announced
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Nonce, Slot
from elasticd.records.job import Budget
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import World
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.next_world.change import WorldChange, find_change
from tests.unit.rendezvous.cases import Told, failure, name, running
from tests.unit.rendezvous.trainers import attach, entered, kept, stepped, trainer, training

KILLED = failure(1, rank=1, signal="SIGKILL")
NOTHING_SAVED = "NothingSaved: there is no checkpoint yet: the training begins anew."


def lost_state(index: int, rank: int, generation: int = 2) -> Failure:
    """The end of a survivor that finds out in this generation that the state is gone."""
    found = failure(index, generation=generation, rank=rank, where="")
    return dataclasses.replace(
        found, nonce=Nonce(1), exception=NOTHING_SAVED, has_lost_state=True, step=7
    )


def second_world(**more: Any) -> Told:
    """node-0 and node-2 in generation 2, since a worker of node-1 was killed."""
    told = training(1, 2)
    told.status(running(2, is_in_process=True, last_user_error=None))
    cause: dict[str, Any] = {
        "reason": Reason.WORKER_KILLED,
        "culprit": KILLED,
        "lost": (name(1),),
        "restarts": 1,
    }
    told.world(kept(2, 0, 2, **{**cause, **more}))
    told.members(trainer(0, arrived=2), trainer(2, arrived=2))
    return told


def ends(index: int, failed: Failure) -> object:
    """A member whose process is gone, and the next one is not up yet."""
    return trainer(index, (0, 2, ""), arrived=2, failure=failed)


def change_after(told: Told, *members: object) -> WorldChange:
    told.members(*members)  # type: ignore[arg-type]
    change = find_change(told.state, 3, is_overdue=False)
    assert change is not None
    return change


def test_survivors_that_end_since_nothing_was_saved_are_no_fault_of_their_own() -> None:
    """The kill is named once more, and was paid for."""
    told = second_world()
    change = change_after(told, ends(0, lost_state(0, 0)), ends(2, lost_state(2, 1)))
    assert (change.reason, change.culprit) == (Reason.WORKER_KILLED, KILLED)
    assert change.begins_anew and change.cause is None and not change.is_of_slot


def test_first_survivor_to_end_is_enough_to_know_the_cause() -> None:
    """The others may fall out of a collective of the restore meanwhile."""
    told = second_world()
    broken = trainer(2, arrived=2, broken=Generation(2))
    change = change_after(told, ends(0, lost_state(0, 0)), broken)
    assert (change.reason, change.culprit, change.begins_anew) == (
        Reason.WORKER_KILLED,
        KILLED,
        True,
    )


@pytest.mark.parametrize(
    ("third", "reason"),
    [(None, Reason.NODE_LOST), (ends(2, lost_state(2, 1)), Reason.WORKER_KILLED)],
    ids=["a node is gone too", "only survivors end"],
)
def test_something_else_that_happens_meanwhile_is_the_cause(third: object, reason: Reason) -> None:
    """However grave an exception is elsewhere, here it is none."""
    members = [each for each in (ends(0, lost_state(0, 0)), third) if each is not None]
    change = change_after(second_world(), *members)
    assert change.reason is reason and change.begins_anew == (third is not None)
    assert change.culprit == (KILLED if third is not None else None)


def test_process_that_is_new_to_the_world_has_lost_nothing() -> None:
    """It would begin anew for ever, for free: the script may have changed the state before."""
    told = second_world()
    assert told.state.world is not None
    fresh = [dataclasses.replace(each, new_slots=(Slot(0),)) for each in told.state.world.nodes]
    again = dataclasses.replace(told.state.world, nodes=tuple(fresh), generation=Generation(3))
    told.world(again)
    failed = lost_state(0, 0, generation=3)
    change = change_after(told, trainer(0, (0, 2, ""), arrived=3, failure=failed), trainer(2))
    assert (change.reason, change.culprit) == (Reason.WORKER_FAILED, failed)
    assert not change.begins_anew


@pytest.mark.parametrize("reason", [Reason.JOINED, Reason.FIRST_WORLD, Reason.NODE_LEFT])
def test_world_that_began_without_a_loss_explains_no_end(reason: Reason) -> None:
    told = second_world(reason=reason, culprit=None, lost=())
    change = change_after(told, ends(0, lost_state(0, 0)), trainer(2, arrived=2))
    assert change.reason is Reason.WORKER_FAILED and not change.begins_anew


def next_world(told: Told) -> fx.ProposeWorld:
    found = told.one(fx.ProposeWorld)
    assert isinstance(found, fx.ProposeWorld)
    return found


def test_world_that_begins_anew_says_so_and_costs_nothing_more() -> None:
    """Both of a kill of a worker and of a node that was lost: `lost` names the node once more."""
    told = second_world(reason=Reason.NODE_DEAD, culprit=None)
    told.members(
        trainer(0, (0, 1, "p"), arrived=2),
        trainer(2, (0, 2, "p"), arrived=2, failure=lost_state(2, 1)),
    )
    if not told.count(fx.ProposeWorld):
        told.tick(1.0)
    found: World = next_world(told).world
    assert (found.reason, found.culprit) == (Reason.NODE_DEAD, None)
    assert found.lost[0] == name(1) and "begins anew" in found.note
    assert announced(found).note == found.note
    assert next_world(told).status.budget == Budget()


def test_end_for_want_of_a_state_is_no_failure_of_its_slot() -> None:
    """The next process of the slot would wait, and be called the second in a row that failed."""
    told = training(1)
    told.status(running(2, is_in_process=True))
    told.world(kept(2, 0, reason=Reason.NODE_DEAD, lost=(name(1),), restarts=1))
    entered(told, 2)
    told.tell(ev.WorkerFailed(slot=Slot(0), nonce=Nonce(1), failure=lost_state(0, 0)))
    assert not told.state.slot_failures and told.state.failure == lost_state(0, 0)


def test_kill_beside_it_on_one_node_is_told_instead() -> None:
    """A record has room for one failure, and this one explains nothing."""
    told = training(1)
    told.tell(ev.SlotsGranted(slots=(Slot(0), Slot(1))))
    told.started()
    attach(told, 1)
    told.status(running(2, is_in_process=True))
    told.world(kept(2, 0, nonces={0: (1, 1)}, reason=Reason.NODE_DEAD, lost=(name(1),)))
    for slot in (0, 1):
        entered(told, 2, slot)
    stepped(told, 2, 6)
    killed = dataclasses.replace(failure(0, generation=2, rank=1, signal="SIGKILL"), slot=Slot(1))
    told.tell(ev.WorkerFailed(slot=Slot(0), nonce=Nonce(1), failure=lost_state(0, 0)))
    told.tell(ev.WorkerFailed(slot=Slot(1), nonce=Nonce(1), failure=killed))
    assert told.state.failure is not None and told.state.failure.signal == "SIGKILL"


def test_world_that_is_declared_over_meanwhile_still_says_that_nothing_was_saved() -> None:
    """The only node that is left waits for its own new process: who was lost is told even so."""
    told = second_world(reason=Reason.NODE_DEAD, culprit=None)
    told.members(ends(0, lost_state(0, 0)), ends(2, lost_state(2, 1)))  # type: ignore[arg-type]
    assert told.state.world is not None
    over = running(2, is_in_process=True, reason=Reason.NODE_DEAD)
    told.status(dataclasses.replace(over, phase=Phase.WAITING))
    assert told.state.is_world_ended
    told.members(
        trainer(0, (0, 2, "p"), arrived=2, failure=lost_state(0, 0)),
        trainer(2, (0, 2, "p"), arrived=2, failure=lost_state(2, 1)),
    )
    if not told.count(fx.ProposeWorld):
        told.tick(1.0)
    found = next_world(told).world
    assert found.reason is Reason.NODE_DEAD and found.lost[0] == name(1)
    assert "begins anew" in found.note

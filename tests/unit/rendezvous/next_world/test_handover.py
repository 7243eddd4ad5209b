"""Whoever may have the state is waited for before another world begins without it."""

import dataclasses

import pytest

from elasticd.records.checkpoint import CheckpointSpec
from elasticd.records.ids import Generation, Nonce, Slot
from elasticd.records.job import Want
from elasticd.records.member import Member
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import World
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.next_world.change import WorldChange
from elasticd.rendezvous.next_world.handover import unheard_until_s
from elasticd.rendezvous.next_world.plan import plan_world
from elasticd.rendezvous.next_world.wait import Wait
from elasticd.rendezvous.state import replace
from tests.unit.rendezvous.cases import failure, running
from tests.unit.rendezvous.trainers import attach, kept, trainer, training

SILENT = trainer(1, (0, 1, ""))
"""Of node-1, written when the process that trains was being started."""
SAVED = CheckpointSpec(url="/x", owner="o")


def test_nobody_begins_anew_while_a_node_of_the_world_has_not_told_of_its_process() -> None:
    """etcd is slow for node-1: its record says that the process starts, and it trains."""
    found = _after_the_kill(SILENT, step=1)
    assert isinstance(found, Wait) and "node node-1 to tell" in found.message
    assert found.until_s is not None and not found.is_below_min


@pytest.mark.parametrize(
    ("other", "step"),
    [
        pytest.param(trainer(1, (0, 1, "")), 0, id="none has made a step"),
        pytest.param(trainer(1, (0, 2, "")), 1, id="another process, which starts"),
        pytest.param(trainer(1, (0, 1, ""), leaving=Reason.DRAINED), 1, id="it leaves"),
        pytest.param(trainer(1, (1, 1, ""), given_up=(Slot(0),)), 1, id="a slot given up"),
    ],
)
def test_what_has_no_state_is_not_waited_for(other: Member, step: int) -> None:
    """Nothing of it would be waited for but its imports."""
    found = _after_the_kill(other, step=step)
    assert isinstance(found, World) and [node.node for node in found.nodes] == ["node-0"]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(trainer(1, (1, 1, "")), id="it lacks the slot"),
        pytest.param(trainer(1, (0, 0, "")), id="it has an earlier process in the slot"),
    ],
)
def test_record_of_before_the_process_is_as_old_as_one_in_which_it_starts(other: Member) -> None:
    """The world named it from what its node wrote later, or another proposer saw."""
    assert isinstance(_after_the_kill(other, step=1), Wait)


def test_planned_change_waits_as_well_though_others_have_the_state() -> None:
    """Without the record it would count a node that trains among those that only start."""
    told = training(1)
    told.members(trainer(0), SILENT, trainer(2, (0, 1, "p"), arrived=0))
    change = WorldChange(reason=Reason.JOINED, is_orderly=True)
    found = plan_world(told.state, change, now_s=told.now_s)
    assert isinstance(found, Wait) and "node node-1 to tell" in found.message
    broken = plan_world(told.state, dataclasses.replace(change, is_orderly=False), now_s=told.now_s)
    assert isinstance(broken, World), "the survivors have the state: they wait for nobody"


def test_scale_brings_those_along_who_leave_with_the_only_state() -> None:
    """One node is wanted, and the one that stays has nothing yet: the two that go have it."""
    told = training(1)
    told.tell(ev.WantsListed(wants={"user": Want(writer="user", nodes=1, why="elasticd scale")}))
    told.members(
        trainer(0, leaving=Reason.DRAINED),
        trainer(1, leaving=Reason.DRAINED),
        trainer(2, (0, 1, "p"), arrived=0),
    )
    change = WorldChange(reason=Reason.SCALED, is_orderly=True)
    found = plan_world(told.state, change, now_s=told.now_s)
    assert isinstance(found, World)
    assert {node.node for node in found.nodes} == {"node-0", "node-1", "node-2"}


@pytest.mark.parametrize(
    ("reason", "is_orderly"), [(Reason.SCALED, True), (Reason.WORKER_KILLED, False)]
)
def test_scale_takes_no_new_process_in_the_place_of_one_that_has_the_state(
    reason: Reason, is_orderly: bool
) -> None:
    """Rank 0's process was killed, and its next one is ready; one node is wanted."""
    told = training(1, 2)
    told.members(trainer(0, (0, 2, "p")), trainer(1), trainer(2))
    for nodes, wanted in ((1, {"node-1"}), (2, {"node-0", "node-1"})):
        want = Want(writer="user", nodes=nodes, why="elasticd scale")
        told.tell(ev.WantsListed(wants={"user": want}))
        change = WorldChange(reason=reason, is_orderly=is_orderly)
        found = plan_world(told.state, change, now_s=told.now_s)
        assert isinstance(found, World) and {node.node for node in found.nodes} == wanted


@pytest.mark.parametrize("is_saved", [False, True], ids=["nothing saved", "checkpoints"])
def test_node_that_goes_by_itself_waits_where_nothing_is_saved(is_saved: bool) -> None:
    """For half of its grace; a job with checkpoints needs all of it for the last one."""
    told = training(shutdown_timeout_s=30.0, checkpoint=SAVED if is_saved else None)
    told.members(trainer(0), trainer(1, (0, 1, "")))
    told.tell(ev.LeaveRequested(reason=Reason.NODE_LEFT))
    until_s = told.now_s + 15.0
    assert told.count(fx.WriteStatus) == int(is_saved) and told.count(fx.ProposeWorld) == 0
    while told.written():
        pass
    told.members(trainer(0, leaving=Reason.NODE_LEFT), trainer(1, (0, 1, "")))
    assert told.state.handover_s == (None if is_saved else until_s - 15.0)
    told.tick(14.5)
    assert told.count(fx.WriteStatus) == 0
    told.tick(1.0)
    effect = None if is_saved else told.one(fx.WriteStatus)
    assert effect is None or effect.status.phase is Phase.WAITING  # type: ignore[attr-defined]


def test_drained_node_whose_agent_ends_does_not_wait_as_a_drain_does() -> None:
    """It would else be ended in the middle of a step, without a save and without a word."""
    told = training(shutdown_timeout_s=30.0, checkpoint=SAVED)
    told.members(trainer(0), trainer(1, (0, 1, "")))
    told.tell(ev.LeaveRequested(reason=Reason.DRAINED))
    while told.written():
        pass
    told.members(trainer(0, leaving=Reason.DRAINED), trainer(1, (0, 1, "")))
    told.tick(40.0)
    assert told.count(fx.WriteStatus) == 0, "a drain has the time"
    told.tell(ev.LeaveRequested(reason=Reason.NODE_LEFT))
    effect = told.one(fx.WriteStatus)
    assert isinstance(effect, fx.WriteStatus) and effect.status.phase is Phase.WAITING
    while told.written():
        pass
    assert told.state.leaving is Reason.NODE_LEFT
    told.tell(ev.LeaveRequested(reason=Reason.DRAINED))
    assert told.state.leaving is Reason.NODE_LEFT


def test_node_that_never_tells_is_waited_for_as_long_as_a_world_may_take() -> None:
    """Counted from when its word is missed: its process may hang in its imports."""
    told = training(1)
    world_s = told.state.formation_deadline_s
    assert world_s is not None
    late_s = world_s + 100.0
    limit_s = late_s + told.state.spec.formation_timeout_s
    assert unheard_until_s(told.state, late_s) == limit_s
    missed = replace(told.state, unheard_s=late_s)
    assert unheard_until_s(missed, limit_s) == limit_s
    assert isinstance(_after_the_kill(SILENT, step=1, missed_s=late_s, now_s=late_s), Wait)
    assert isinstance(_after_the_kill(SILENT, step=1, missed_s=late_s, now_s=limit_s), World)


@pytest.mark.parametrize(
    ("nonce", "first"), [(1, "node-1"), (2, "node-0")], ids=["the process", "another process"]
)
def test_who_formed_a_group_with_a_process_knows_that_it_has_the_state(
    nonce: int, first: str
) -> None:
    """etcd was away: node-1, left out since, could not write so; node-0's own process is lost."""
    told = training(1)
    told.tell(ev.WorkerFormed(slot=Slot(0), nonce=Nonce(1), generation=Generation(1)))
    told.world(kept(2, 0))
    told.status(running(2, is_in_process=True))
    lost = dataclasses.replace(failure(0), step=1)
    told.members(trainer(0, (0, 2, "p"), failure=lost), trainer(1, (0, nonce, "p")))
    change = WorldChange(reason=Reason.WORKER_KILLED, culprit=lost)
    state = replace(told.state, spec=dataclasses.replace(told.state.spec, max_nodes=1))
    found = plan_world(state, change, now_s=told.now_s)
    assert isinstance(found, World) and [node.node for node in found.nodes] == [first]


def test_time_to_be_heard_begins_anew_when_etcd_is_back() -> None:
    """Nobody could be heard meanwhile; and with another world."""
    told = training(1)
    lost = dataclasses.replace(failure(0), step=1)
    told.tell(ev.WorkerExited(slot=Slot(0), nonce=Nonce(1), code=-9, failure=lost))
    told.tell(ev.WorkerStarted(slot=Slot(0), nonce=Nonce(2)))
    attach(told, 0, 2)
    told.members(trainer(0, (0, 2, "p"), failure=lost), SILENT)
    while told.written():
        pass
    for _ in range(6):  # Others may show meanwhile that they raise alike.
        told.tick(0.5)
    since_s = told.state.unheard_s
    assert since_s is not None and told.count(fx.ProposeWorld) == 0
    told.tick(2.0)
    assert told.state.unheard_s == since_s
    told.tell(ev.LeaseUncertain())
    told.tell(ev.LeaseHeld(), after_s=5.0)
    assert told.state.unheard_s == told.now_s > since_s
    told.world(kept(2, 0))
    told.status(running(2, is_in_process=True))
    assert told.state.unheard_s is None


def _after_the_kill(
    other: Member, *, step: int, missed_s: float | None = None, now_s: float | None = None
) -> World | Wait:
    """The first world trained; node-0's process was killed, and its next one is ready."""
    told = training(1)
    told.state = replace(told.state, formed_s=None, unheard_s=missed_s)
    lost = dataclasses.replace(failure(0), step=step)
    told.members(trainer(0, (0, 2, "p"), failure=lost), other)
    change = WorldChange(reason=Reason.WORKER_KILLED, culprit=lost)
    return plan_world(told.state, change, now_s=told.now_s if now_s is None else now_s)

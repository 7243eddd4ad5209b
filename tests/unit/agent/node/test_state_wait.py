"""Which nodes count as not ready since other nodes have the state of a job, and they do not yet."""

import dataclasses

import pytest

from elasticd.records.ids import Generation, Nonce, Slot
from elasticd.records.job import JobStatus, Want
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import Exclusion
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.state import Worker, WorkerStage
from elasticd_agent.node.readiness import LIMIT_S
from elasticd_agent.node.state_wait import STANDSTILL_LIMIT_S, held_back, limits_s, state_limit_s
from tests.unit.rendezvous.cases import Told, incarnation, name, running, world
from tests.unit.rendezvous.trainers import kept, trainer

ME = 2


def newcomer(status: JobStatus | None = None, **spec: object) -> Told:
    """node-2, which has just begun with a job that node-0 and node-1 train."""
    told = Told(ME, **spec)
    told.standby()
    told.status(status or running(1, is_in_process=True))
    told.world(kept(1, 0, 1))
    return told


def listed(told: Told, *others: object) -> Told:
    rows = tuple((member, index + 1, 90) for index, member in enumerate(others))
    watched = tuple(name(i) for i in (0, 1, ME))
    told.tell(ev.MembersListed(revision=90, members=rows, watched=watched))  # type: ignore[arg-type]
    return told


def with_worker(told: Told, **values: object) -> Told:
    """A worker of ours."""
    base: dict[str, object] = {"generation": 0, "rank": 0, "stage": WorkerStage.RUNNING}
    worker = Worker(slot=Slot(0), nonce=Nonce(1), **{**base, **values})  # type: ignore[arg-type]
    told.state = dataclasses.replace(told.state, workers={Slot(0): worker})
    return told


def test_a_node_is_not_ready_before_a_worker_of_it_has_the_state_that_others_have() -> None:
    """Not before it has read what the job does, either: somebody might end the last that has it."""
    told = Told(ME)
    assert state_limit_s(told.state) == LIMIT_S
    told = newcomer()
    assert state_limit_s(told.state) == LIMIT_S, "no member was seen yet"
    listed(told, trainer(0), trainer(1))
    assert state_limit_s(told.state) == LIMIT_S
    with_worker(told, is_attached=True)
    assert state_limit_s(told.state) == LIMIT_S, "its worker waits for the next world"
    told.world(kept(2, 0, 1, ME))
    with_worker(told, is_attached=True, generation=2)
    assert state_limit_s(told.state) == LIMIT_S, "it is being given the state"
    with_worker(told, is_attached=True, generation=2, has_state=True)
    assert state_limit_s(told.state) == 0.0
    assert limits_s({told.state.spec.name: told}) == {told.state.spec.name: 0.0}


def test_a_node_does_not_wait_for_a_state_that_nobody_has() -> None:
    """A job that begins, or one that is restored from a checkpoint."""
    told = listed(newcomer(), trainer(0, (0, 1, "p")), trainer(1, (0, 1, "p")))
    assert state_limit_s(told.state) == 0.0
    begins = Told(ME)
    begins.status(running(0))
    assert state_limit_s(begins.state) == 0.0
    dead = listed(newcomer(), trainer(0))
    assert state_limit_s(dead.state) == LIMIT_S
    dead.state = dataclasses.replace(dead.state, dead=frozenset({incarnation(0)}))
    assert state_limit_s(dead.state) == 0.0


def test_a_node_does_not_wait_in_restart_mode() -> None:
    """There, workers of a new world read what was saved, or begin."""
    told = newcomer(running(1))
    told.world(world(2, 0, 1, ME))
    assert state_limit_s(told.state) == 0.0


def test_a_spare_does_not_wait_for_the_state() -> None:
    """No world takes it in; one does as soon as a node of it goes."""
    told = listed(newcomer(max_nodes=2), trainer(0), trainer(1))
    assert state_limit_s(told.state) == 0.0
    going = dataclasses.replace(trainer(1), leaving=Reason.NODE_LEFT)
    assert state_limit_s(listed(told, trainer(0), going).state) == LIMIT_S
    smaller = listed(newcomer(), trainer(0), trainer(1))
    smaller.tell(ev.WantsListed(wants={"user": Want(writer="user", nodes=2)}))
    assert state_limit_s(smaller.state) == 0.0


def test_a_node_that_was_started_anew_has_room_in_its_own_place() -> None:
    """The world still names the agent before it."""
    told = Told(1, max_nodes=2)
    told.state = dataclasses.replace(
        told.state, me=dataclasses.replace(told.state.me, incarnation=incarnation(1, 2))
    )
    told.standby()
    told.status(running(1, is_in_process=True))
    told.world(kept(1, 0, 1))
    assert state_limit_s(listed(told, trainer(0)).state) == LIMIT_S


def test_a_job_that_waits_for_nodes_keeps_nobody_waiting_once_the_workers_are_up() -> None:
    """A minute is left for the world that may follow at once."""
    waiting = dataclasses.replace(running(1, is_in_process=True), phase=Phase.WAITING)
    told = listed(newcomer(waiting, min_nodes=3), trainer(0))
    assert told.state.is_world_ended
    assert state_limit_s(told.state) == LIMIT_S
    with_worker(told, is_attached=True)
    assert state_limit_s(told.state) == STANDSTILL_LIMIT_S == 60.0


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.SUCCEEDED, Phase.STOPPED])
def test_a_job_that_is_over_keeps_nobody_waiting(phase: Phase) -> None:
    """However it ended."""
    told = listed(newcomer(), trainer(0), trainer(1))
    told.status(dataclasses.replace(running(1, is_in_process=True), phase=phase))
    assert state_limit_s(told.state) == 0.0


def test_a_node_that_goes_does_not_wait() -> None:
    """Nor one whose worker has finished the training."""
    told = listed(newcomer(), trainer(0), trainer(1))
    finished = with_worker(listed(newcomer(), trainer(0), trainer(1)), is_finished=True)
    assert state_limit_s(finished.state) == 0.0
    told.tell(ev.LeaveRequested(reason=Reason.DRAINED))
    assert state_limit_s(told.state) == 0.0


def test_a_job_that_leaves_the_node_out_holds_it_back_until_it_has_the_state() -> None:
    """Its workers have crashed here too often; the next world may take it in again."""
    told = listed(newcomer(), trainer(0), trainer(1))
    job = told.state.spec.name
    assert held_back({job: told}) == frozenset()
    out = Exclusion(
        node=name(ME),
        incarnation=told.state.me.incarnation,
        reason=Reason.WORKER_KILLED,
        generation=Generation(2),
    )
    told.world(kept(2, 0, 1, excluded=(out,)))
    assert held_back({job: told}) == {job} and state_limit_s(told.state) == 0.0
    with_worker(told, has_state=True)
    assert held_back({job: told}) == frozenset()
    told = with_worker(told, has_state=False)
    told.world(kept(3, 0, 1))
    assert held_back({job: told}) == frozenset() and state_limit_s(told.state) == LIMIT_S

"""Which wishes are refused because they would throw away what a job has trained."""

from dataclasses import replace

import pytest

from elasticd.control import job_submission
from elasticd.control.state_loss import check_drain, check_stop
from elasticd.errors import Refused
from elasticd.records.checkpoint import CheckpointSpec
from elasticd.records.codec import encode
from elasticd.records.ids import Incarnation, JobName, NodeId, Nonce, Slot
from elasticd.records.job import EntryKind, JobSpec, JobStatus
from elasticd.records.keys import Keys
from elasticd.records.member import Drain, Member, SlotOffer
from elasticd.records.reason import Phase, Reason
from elasticd.store.api import Put, Txn
from elasticd.store.memory import MemoryStore

KEYS = Keys()
JOB = JobName("j")
A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
SPEC = JobSpec(name=JOB, uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py")
TRAINS = JobStatus(phase=Phase.RUNNING, is_in_process=True)


def member(node: NodeId, *, has_state: bool, is_prepared: bool = True) -> Member:
    offer = SlotOffer(slot=Slot(0), nonce=Nonce(1), is_prepared=is_prepared, has_state=has_state)
    return Member(
        node=node,
        incarnation=Incarnation(f"{node}.1"),
        host=node,
        address="x",
        port=1,
        slots=(offer,),
    )


def store_with(
    *members: Member,
    status: JobStatus = TRAINS,
    spec: JobSpec = SPEC,
    drained: NodeId | None = None,
) -> MemoryStore:
    store = MemoryStore()
    job_submission.submit(store, KEYS, spec)
    puts = [Put(key=KEYS.status(JOB), value=encode(status))]
    puts += [Put(key=KEYS.member(JOB, m.node), value=encode(m)) for m in members]
    if drained is not None:
        puts.append(Put(key=KEYS.drain(drained), value=encode(Drain())))
    store.commit(Txn(then=tuple(puts)))
    return store


HOLDER = member(A, has_state=True)
SCRIPT_HOLDER = member(A, has_state=True, is_prepared=False)
RESTARTS = replace(TRAINS, is_in_process=False)


def test_only_copy_is_not_drained_away() -> None:
    """The sentence says what to do."""
    with pytest.raises(Refused, match=r"'a' has the only copy .* 'j' .*--force"):
        check_drain(store_with(HOLDER), KEYS, A)


@pytest.mark.parametrize(
    "store",
    [
        store_with(HOLDER, member(B, has_state=True)),
        store_with(HOLDER, member(B, has_state=False)),
        store_with(HOLDER, member(B, has_state=False, is_prepared=False)),
        store_with(SCRIPT_HOLDER, status=RESTARTS),
        store_with(HOLDER, spec=replace(SPEC, checkpoint=CheckpointSpec(url="/x", owner="o"))),
        store_with(member(A, has_state=False)),
        store_with(),
    ],
    ids=[
        "another has it",
        "a spare takes it over",
        "one is being prepared",
        "restart mode",
        "it is saved",
        "nothing was trained",
        "not of this job",
    ],
)
def test_what_loses_nothing_may_be_drained(store: MemoryStore) -> None:
    """Nobody has to force what is harmless."""
    check_drain(store, KEYS, A)


@pytest.mark.parametrize(
    "store",
    [
        store_with(HOLDER, member(B, has_state=True), drained=B),
        store_with(HOLDER, replace(member(B, has_state=True), leaving=Reason.NODE_LEFT)),
        store_with(HOLDER, member(B, has_state=False), status=replace(TRAINS, phase=Phase.WAITING)),
    ],
    ids=["the other is drained", "the other leaves", "no world, no copy"],
)
def test_others_that_do_not_help_are_not_counted(store: MemoryStore) -> None:
    """They are there, and the state would be lost all the same."""
    with pytest.raises(Refused):
        check_drain(store, KEYS, A)


@pytest.mark.parametrize("is_prepared", [True, False])
def test_node_that_is_to_take_the_state_over_is_not_drained_away(is_prepared: bool) -> None:
    """The holder's drain was accepted because of it, in this call or by somebody else."""
    target = member(B, has_state=False, is_prepared=is_prepared)
    with pytest.raises(Refused, match=r"'b' is to take over what job 'j' .* from a, .*--force"):
        check_drain(store_with(HOLDER, target, drained=A), KEYS, B)
    with pytest.raises(Refused, match="take over"):
        check_drain(store_with(HOLDER, target), KEYS, B, [A])
    with pytest.raises(Refused, match="take over"):
        check_drain(store_with(replace(HOLDER, leaving=Reason.NODE_LEFT), target), KEYS, B)


def test_node_that_nobody_needs_for_the_state_may_be_drained() -> None:
    """The holder stays, another node can take the state over, or there is none to take over."""
    target = member(B, has_state=False)
    check_drain(store_with(HOLDER, target), KEYS, B)
    check_drain(store_with(HOLDER, target, member(C, has_state=False), drained=A), KEYS, B)
    check_drain(store_with(HOLDER, target, member(C, has_state=True), drained=A), KEYS, B)
    waits = replace(TRAINS, phase=Phase.WAITING)
    both = (target, member(C, has_state=False))
    check_drain(store_with(HOLDER, *both, status=waits, drained=A), KEYS, B)
    check_drain(store_with(member(A, has_state=False), target, drained=A), KEYS, B)
    check_drain(store_with(HOLDER, replace(target, leaving=Reason.NODE_LEFT), drained=A), KEYS, B)
    check_drain(store_with(SCRIPT_HOLDER, target, status=RESTARTS, drained=A), KEYS, B)


def test_job_that_saves_nothing_is_not_stopped_by_mistake() -> None:
    """As soon as there is something to lose."""
    with pytest.raises(Refused, match="--force"):
        check_stop(store_with(HOLDER), KEYS, JOB)
    check_stop(store_with(member(A, has_state=False)), KEYS, JOB)
    check_stop(store_with(SCRIPT_HOLDER, status=RESTARTS), KEYS, JOB)
    saved = replace(SPEC, checkpoint=CheckpointSpec(url="/x", owner="o"))
    check_stop(store_with(HOLDER, spec=saved), KEYS, JOB)


def test_job_in_its_first_step_is_known_by_its_workers() -> None:
    """The status says that they train under `elasticd.run` only when it is written next."""
    young = store_with(HOLDER, status=RESTARTS)
    with pytest.raises(Refused, match="--force"):
        check_stop(young, KEYS, JOB)
    with pytest.raises(Refused, match="--force"):
        check_drain(young, KEYS, A)

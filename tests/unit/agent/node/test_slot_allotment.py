"""Which jobs get which slots of a node."""

from itertools import permutations

import pytest

from elasticd.records.ids import Generation, JobName, Slot
from elasticd.records.job import EntryKind, JobSpec
from elasticd_agent.node.slot_allotment import SlotClaim, allot, claim_of, rivals
from tests.unit.rendezvous.cases import proposer

A, B, C = JobName("A"), JobName("B"), JobName("C")
SPEC = JobSpec(name=A, uid="one", entry_kind=EntryKind.SCRIPT, entry="t.py")


def claim(job: JobName, order: int, **values: object) -> SlotClaim:
    """A claim for one slot of a job that lacks nodes, unless said otherwise."""
    base: dict[str, object] = {"wanted": 1, "lacks_nodes": True}
    return SlotClaim(job=job, order=order, **{**base, **values})  # type: ignore[arg-type]


def slots(*numbers: int) -> tuple[Slot, ...]:
    return tuple(Slot(number) for number in numbers)


def test_earlier_job_is_served_first() -> None:
    """Of two that lack nodes."""
    assert allot([claim(B, 2), claim(A, 1)], 1) == {A: slots(0), B: ()}


def test_job_of_a_higher_priority_is_served_before_an_earlier_one() -> None:
    """But not before one that would use the node at once, and nobody who works is sent away."""
    urgent = claim(B, 2, priority=1)
    assert allot([claim(A, 1), urgent], 1) == {A: (), B: slots(0)}
    spare = claim(B, 2, priority=1, lacks_nodes=False)
    assert allot([claim(A, 1), spare], 1) == {A: slots(0), B: ()}
    works = claim(A, 1, held=slots(0), is_working=True)
    assert allot([works, urgent], 1) == {A: slots(0), B: ()}


def test_job_that_had_begun_gets_what_it_needs_to_go_on_before_a_new_one() -> None:
    """Of whatever priority: it keeps its other nodes, for which the new one might wait in turn."""
    stuck = claim(A, 2, is_stuck=True)
    assert allot([stuck, claim(B, 1, priority=9)], 1) == {A: slots(0), B: ()}


@pytest.mark.parametrize("held", [slots(0), ()], ids=["is a spare here", "has left"])
def test_complete_job_gets_no_slot_that_another_lacks(held: tuple[Slot, ...]) -> None:
    """Whether this node serves it as a spare or not makes no difference: it would oscillate."""
    claims = [claim(A, 1, held=held, lacks_nodes=False), claim(B, 2)]
    assert allot(claims, 1) == {A: (), B: slots(0)}


def test_working_job_keeps_its_slots() -> None:
    """Whoever else lacks nodes, and in whatever order."""
    claims = [claim(A, 1), claim(B, 2, held=slots(0), is_working=True)]
    assert allot(claims, 1) == {A: (), B: slots(0)}


def test_complete_job_keeps_a_spare_where_nobody_needs_the_slot() -> None:
    """Both fit."""
    claims = [claim(A, 1, lacks_nodes=False), claim(B, 2)]
    assert allot(claims, 2) == {A: slots(1), B: slots(0)}


def test_job_never_gets_fewer_slots_than_it_asks_for() -> None:
    """All that it wants per node, or none; what is left goes to the next."""
    claims = [claim(A, 1, wanted=3), claim(B, 2, wanted=2), claim(C, 3, wanted=0)]
    assert allot(claims, 4) == {A: slots(0, 1, 2), B: (), C: slots(3)}


def test_job_that_holds_slots_keeps_the_same_ones() -> None:
    """A device stays with its worker."""
    claims = [claim(A, 1), claim(B, 2, held=slots(0))]
    assert allot(claims, 2) == {A: slots(1), B: slots(0)}
    assert allot([claim(A, 1, held=slots(1))], 2) == {A: slots(1)}


def test_nothing_changes_while_it_is_not_known_who_lacks_nodes() -> None:
    """A guess would have to be taken back a moment later."""
    claims = [claim(A, 1, lacks_nodes=None), claim(B, 2, held=slots(0))]
    assert allot(claims, 1) == {A: (), B: slots(0)}
    assert allot([claim(A, 1, lacks_nodes=None)], 1) == {A: slots(0)}, "it has no rival"


def test_rivals_are_those_who_wait_where_something_is_free() -> None:
    """Nobody else need be watched."""
    working = claim(C, 3, held=slots(0), is_working=True)
    assert rivals([claim(A, 1), claim(B, 2), working], 2) == {A, B}
    assert rivals([claim(A, 1), claim(B, 2), working], 1) == frozenset()
    assert rivals([claim(A, 1), working], 2) == frozenset()


def test_allotment_does_not_depend_on_the_order_of_the_claims() -> None:
    """Two agents, or one a moment later, give the same answer to the same facts."""
    claims = [claim(A, 1, lacks_nodes=False), claim(B, 2), claim(C, 3, wanted=2)]
    answers = [sorted(allot(order, 3).items()) for order in permutations(claims)]
    assert all(answer == answers[0] for answer in answers)


def test_answer_for_a_world_that_was_not_seen_yet_counts_for_nothing() -> None:
    """The job may lack nobody because it has just taken this node, which has not heard of it."""
    state = proposer(1).state
    for generation, is_known in ((state.next_generation - 1, True), (state.next_generation, False)):
        claim = claim_of(SPEC, 1, state, lacks_nodes=False, generation=Generation(generation))
        assert claim.lacks_nodes is (False if is_known else None)
    outside = claim_of(SPEC, 1, None, lacks_nodes=False, generation=Generation(9))
    assert outside.lacks_nodes is False, "no part in it: nothing to hear of"

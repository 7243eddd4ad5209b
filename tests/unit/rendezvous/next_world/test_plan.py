"""What the next world looks like."""

import dataclasses

import pytest

from elasticd.records import compression
from elasticd.records.ids import Generation, Nonce
from elasticd.records.member import Member
from elasticd.records.reason import Reason
from elasticd.records.world import Exclusion, World
from elasticd.rendezvous.next_world import plan
from elasticd.rendezvous.next_world.change import find_change
from elasticd.rendezvous.next_world.exclusion import readmission_delay_s
from elasticd.rendezvous.next_world.plan import plan_world
from elasticd.rendezvous.next_world.wait import ISOLATION_MARGIN_S, Wait, past_of
from elasticd.rendezvous.state import Past, replace
from tests.unit.rendezvous.cases import (
    Told,
    failure,
    incarnation,
    member,
    name,
    proposer,
    result,
    store,
    world,
)


def planned(told: Told, target: int = 4, *, is_overdue: bool = False) -> World | Wait:
    change = find_change(told.state, target, is_overdue)
    assert change is not None
    return plan_world(told.state, change, now_s=told.now_s)


def next_world(told: Told, target: int = 4, *, is_overdue: bool = False) -> World:
    found = planned(told, target, is_overdue=is_overdue)
    assert isinstance(found, World), found
    return found


def test_lost_node_is_left_out_and_shut_out() -> None:
    """With its incarnation and the reason."""
    told = proposer(1, 2)
    told.members(*(member(i, arrived=1) for i in (0, 2)))
    found = next_world(told)
    assert [n.node for n in found.nodes] == [name(0), name(2)]
    assert found.generation == 2 and found.lost == (name(1),)
    assert found.is_excluded(name(1), incarnation(1))
    assert found.excluded[0].reason is Reason.NODE_LOST and found.excluded[0].losses == 1


def test_incarnation_that_was_shut_out_is_no_candidate() -> None:
    """Rule 6: even if its record still stands; it has to come back as another."""
    told = proposer(1)
    excluded = Exclusion(
        node=name(2),
        incarnation=incarnation(2),
        reason=Reason.NODE_LOST,
        generation=Generation(1),
    )
    told.state = replace(
        told.state, world=dataclasses.replace(world(1, 0, 1), excluded=(excluded,))
    )
    told.members(member(0, arrived=1), member(1, nonce=2), member(2))
    assert name(2) not in [n.node for n in next_world(told).nodes]


def test_every_worker_of_a_new_generation_has_a_new_number() -> None:
    """Rule 1, also where a record is too old to know of the last process."""
    told = proposer(1)
    told.members(member(0, arrived=1), member(1, arrived=1), member(2))
    assert {w.nonce for n in next_world(told).nodes for w in n.workers} == {2}


def test_number_is_never_below_what_the_slot_offers() -> None:
    """A process that failed while nothing was agreed has used one up."""
    told = proposer(1)
    told.members(member(0, arrived=1), member(1, arrived=1, nonce=7))
    assert next_world(told).nodes[1].workers[0].nonce == 7


def test_number_is_above_the_one_before_where_several_died_in_one_generation() -> None:
    """Rule 1: the third process of a slot has a higher number than its generation."""
    told = proposer(1)
    old = world(1, 0, 1)
    worker = dataclasses.replace(old.nodes[0].workers[0], nonce=Nonce(4))
    nodes = (dataclasses.replace(old.nodes[0], workers=(worker,)), old.nodes[1])
    told.state = replace(told.state, world=dataclasses.replace(old, nodes=nodes))
    told.members(member(0, arrived=1, nonce=4), member(1, arrived=1), member(2))
    assert [n.workers[0].nonce for n in next_world(told).nodes] == [5, 2, 2]


def test_store_of_an_earlier_world_is_not_used_again() -> None:
    """The node's record lists it until the node comes to write the next one."""
    told = proposer(1)
    old = dataclasses.replace(world(1, 0, 1), store=store(0, 2), spent_stores=(store(0, 1),))
    told.state = replace(told.state, world=old)
    told.members(member(0, arrived=1, stores=(1, 2, 3)), member(1, nonce=2))
    found = next_world(told)
    assert found.store == store(0, 3)
    assert set(found.spent_stores) == {store(0, 1), store(0, 2)}


def test_spent_store_is_forgotten_when_no_record_lists_it() -> None:
    """So that the list stays short."""
    told = proposer(1)
    told.state = replace(
        told.state, world=dataclasses.replace(world(1, 0, 1), spent_stores=(store(0, 1),))
    )
    told.members(member(0, arrived=1, stores=(5,)), member(1, nonce=2))
    assert next_world(told).spent_stores == ()


def test_world_waits_for_a_fresh_store_and_looks_again_soon() -> None:
    """It is on its way, and no fact announces it."""
    told = proposer(1)
    told.members(member(0, arrived=1, stores=()), member(1, nonce=2))
    found = planned(told)
    assert isinstance(found, Wait) and found.until_s is not None and not found.is_below_min


def test_too_few_members_are_waited_for_by_name() -> None:
    """Rule 8: it says for whom."""
    told = proposer(1, 2, min_nodes=3)
    told.members(member(0, arrived=1), member(1, slots=0))
    found = planned(told)
    assert isinstance(found, Wait) and found.is_below_min
    assert "2 more nodes: 1 of at least 3" in found.message and "preparing: node-1" in found.message


def test_member_that_can_start_no_worker_is_not_called_preparing() -> None:
    """`status` says of it what it lacks; nobody should wait for it."""
    told = proposer(1, 2, min_nodes=3)
    unable = member(1, slots=0, failed=failure(1, generation=0))
    told.members(member(0, arrived=1), unable, member(2, slots=0))
    found = planned(told)
    assert isinstance(found, Wait) and "node-1" not in found.message
    assert "preparing: node-2" in found.message


def test_members_beyond_the_target_stand_by() -> None:
    """Survivors by rank first, then newcomers by age."""
    told = proposer(1, max_nodes=3)
    told.members(*(member(i, arrived=int(i < 2)) for i in range(4)))
    assert [n.node for n in next_world(told, 3).nodes] == [name(0), name(1), name(2)]


def test_node_that_was_lost_again_is_held_back() -> None:
    """Exponential readmission: the second loss in a row costs a second."""
    told = proposer(1)
    excluded = Exclusion(
        node=name(2),
        incarnation=incarnation(2),
        reason=Reason.NODE_DEAD,
        generation=Generation(1),
        losses=2,
    )
    told.state = replace(
        told.state, world=dataclasses.replace(world(1, 0, 1), excluded=(excluded,))
    )
    told.members(member(0, arrived=1), member(1, arrived=1), member(2, life=2))
    found = planned(told)
    assert isinstance(found, Wait) and found.until_s == told.now_s + 1.0
    told.now_s += 1.0
    assert name(2) in [n.node for n in next_world(told).nodes]


@pytest.mark.parametrize(
    ("losses", "delay_s"), [(0, 0.0), (1, 0.0), (2, 1.0), (3, 2.0), (6, 16.0), (50, 60.0)]
)
def test_readmission_delay_doubles_up_to_a_minute(losses: int, delay_s: float) -> None:
    """The first loss is nobody's fault."""
    assert readmission_delay_s(losses) == delay_s


def test_steady_world_clears_the_record_of_its_nodes() -> None:
    """A minute without trouble."""
    told = proposer(1)
    excluded = Exclusion(
        node=name(1),
        incarnation=incarnation(1, 0),
        reason=Reason.NODE_DEAD,
        generation=Generation(1),
        losses=4,
    )
    told.state = replace(
        told.state, world=dataclasses.replace(world(1, 0, 1), excluded=(excluded,))
    )
    told.now_s += 61.0
    told.members(member(0, arrived=1))
    (found,) = next_world(told).excluded
    assert found.node == name(1) and found.losses == 1


def test_strangers_wait_until_the_isolation_limit_of_a_silent_node_has_passed() -> None:
    """Rule 4: it may train on without etcd."""
    told = Told(3)
    told.state = replace(told.state, world=world(1, 0), oldest=(name(3),), observed=None)
    told.members(member(3))
    found = planned(told)
    assert isinstance(found, Wait) and found.is_below_min
    assert found.until_s == told.now_s + told.state.spec.isolation_limit_s + ISOLATION_MARGIN_S
    assert "node-0" in found.message
    told.now_s = found.until_s
    assert next_world(told).unended == 2


def test_strangers_wait_for_a_leaving_node_to_stop() -> None:
    """Rule 4: it wishes to leave, but its workers still run."""
    told = Told(3, max_nodes=1)
    told.state = replace(told.state, world=world(1, 0), oldest=(name(3),), observed=None)
    told.members(member(0, arrived=1, leaving=Reason.DRAINED), member(3))
    found = planned(told, 1)
    assert isinstance(found, Wait) and found.until_s is None
    assert "node-0 to stop its workers" in found.message


def test_newcomer_to_an_unformed_world_does_not_end_the_one_before() -> None:
    """Rule 4: only who was in the oldest world that may still run ends it by taking part."""
    told = Told(1)
    second = world(2, 0, 1, since={0: 1, 1: 2}, unended=1)
    told.state = replace(told.state, world=second, oldest=(name(1),), observed=None)
    told.members(member(1, nonce=3), member(2))
    assert isinstance(planned(told), Wait)
    formed = replace(told.state, formed_s=told.now_s)
    told.state = formed
    assert next_world(told).unended == 2


LOST_S = 125.0


def after_a_restore(*members: Member, since: dict[int, int] | None = None) -> Told:
    """etcd knows node-0's generation 1, which has ended; we know that 2 followed it on node-1."""
    told = Told(3)
    known = world(2, 1, since=since or {1: 2}, unended=2)
    past = Past(generation=Generation(2), world=known, ended_s=told.now_s + LOST_S)
    told.state = replace(told.state, past=past, world=world(1, 0), oldest=(name(3),), observed=None)
    told.members(member(3), *members)
    left = result(0, 1, code=None, has_left=True)
    told.state = replace(told.state, results=told.state.results.with_item(name(0), left))
    return told


@pytest.mark.parametrize("others", [(), (member(1),), (member(1, life=2, count=1),)])
def test_world_that_a_restored_etcd_has_lost_is_waited_for(others: tuple[Member, ...]) -> None:
    """Rule 4: its node may hear nothing of the restore, and train until its license is over."""
    told = after_a_restore(*others)
    found = planned(told)
    assert isinstance(found, Wait) and found.is_below_min
    assert "generation 2 on node-1" in found.message and "restored from a backup" in found.message
    assert found.until_s is not None and found.until_s <= told.now_s + 1.0, "it may come back"
    told.now_s += LOST_S
    assert next_world(told).generation == 3


def test_lost_world_has_ended_once_one_of_its_nodes_is_back() -> None:
    """Its agent takes up another incarnation when the workers have ended."""
    assert next_world(after_a_restore(member(1, count=2))).generation == 3


def test_newcomer_to_a_lost_world_does_not_end_the_one_before() -> None:
    """That world may never have begun: its other nodes may train on in the one before."""
    told = after_a_restore(member(1, count=2))
    known = world(2, 1, 2, since={1: 2, 2: 1}, unended=1)
    told.state = replace(told.state, past=dataclasses.replace(told.state.past, world=known))
    found = planned(told)
    assert isinstance(found, Wait) and "node-2" in found.message


def test_stores_of_a_lost_world_are_spent() -> None:
    """The records of a backup list them as fresh."""
    told = after_a_restore(member(1, count=2))
    lost = dataclasses.replace(told.state.lost_world or world(2, 1), store=store(3, 1))
    told.state = replace(told.state, past=dataclasses.replace(told.state.past, world=lost))
    assert store(3, 1) in next_world(told).spent_stores


def test_next_incarnation_knows_the_newest_world_and_when_it_has_ended() -> None:
    """A lease that was renewed just before the restore, and the isolation limit after it."""
    told = proposer(1)
    known = past_of(told.state, lease_ttl_s=60.0, now_s=told.now_s)
    limit_s = 60.0 + told.state.spec.isolation_limit_s + ISOLATION_MARGIN_S
    assert known == Past(
        generation=Generation(1), world=told.state.world, ended_s=told.now_s + limit_s
    )
    # Another incarnation that learns nothing newer leaves the time as it was.
    told = after_a_restore()
    assert past_of(told.state, lease_ttl_s=60.0, now_s=told.now_s + 50.0) == told.state.past


def test_join_waits_for_a_world_that_is_still_forming() -> None:
    """P11: it never holds or disturbs the running generation."""
    told = proposer(1)
    told.state = replace(told.state, formed_s=None)
    told.members(member(0, arrived=1), member(1), member(2))
    assert told.state.formed_s is None
    assert isinstance(planned(told), Wait)


def test_node_that_did_not_arrive_is_left_out() -> None:
    """Rule 8: the others go on."""
    told = proposer(1, 2)
    told.members(member(0, arrived=1), member(1, arrived=1), member(2))
    found = next_world(told, is_overdue=True)
    assert found.lost == (name(2),) and found.reason is Reason.DID_NOT_ARRIVE


def test_world_that_etcd_would_not_take_is_waited_with_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Proposed, it would be refused for ever; what trains meanwhile is not disturbed."""
    monkeypatch.setattr(compression, "RECORD_LIMIT_BYTES", 100)
    monkeypatch.setattr(plan, "LARGE_NODES", 3)
    told = proposer(1)
    told.members(member(0, arrived=1), member(1, arrived=1), member(2))
    found = planned(told)
    assert isinstance(found, Wait) and not found.is_below_min
    assert "fewer nodes: the record of a world of 3 nodes with 3 workers" in found.message
    told.members(member(0, arrived=1), member(1, nonce=2), member(2))
    found = planned(told)
    assert isinstance(found, Wait) and found.is_below_min


def test_each_of_many_that_are_lost_at_once_stays_excluded() -> None:
    """Rule 6: none comes back as the same incarnation, however long its record stands."""
    lost = range(1, 301)
    told = proposer(*lost)
    told.members(member(0, arrived=1))
    first = next_world(told)
    assert [n.node for n in first.nodes] == [name(0)]
    assert all(first.is_excluded(name(i), incarnation(i)) for i in lost)
    told.state = replace(told.state, world=first)
    told.members(member(0, nonce=3, arrived=2), *(member(i, arrived=1) for i in lost))
    second = next_world(told)
    assert [n.node for n in second.nodes] == [name(0)]
    assert all(second.is_excluded(name(i), incarnation(i)) for i in lost)
    told.state = replace(told.state, world=second)
    told.members(member(0, nonce=4, arrived=3, stores=(4, 5)))
    assert len(next_world(told).excluded) == 256

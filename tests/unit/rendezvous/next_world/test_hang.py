"""Whom the nodes of a world take for hung, by what they say of those that stand still."""

import dataclasses

from elasticd.cli.terminal.words import change_of as change_of_words
from elasticd.records.ids import Generation, Slot
from elasticd.records.member import Member, StallLimit
from elasticd.records.reason import Reason
from elasticd.records.world import World
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.next_world.change import find_change
from elasticd.rendezvous.own_record import desired_member
from tests.unit.rendezvous.cases import Told, member, name, proposer, result, running
from tests.unit.rendezvous.test_in_process import change_of, planned, unformed
from tests.unit.rendezvous.trainers import attach, entered, kept, stall, trainer, training


def test_last_of_all_who_stall_is_the_culprit() -> None:
    """By step, then by collectives; nobody is while somebody makes progress."""
    told = training(1)
    told.members(trainer(0, stall=stall(9)), trainer(1))
    assert change_of(told) is None
    told.members(trainer(0, stall=stall(9)), trainer(1, stall=stall(8)))
    change = find_change(told.state, 4, False)
    assert change is not None and change.reason is Reason.WORKER_HUNG
    assert change.culprit is not None and change.culprit.node == name(1)
    assert change.culprit.is_hung and not change.is_orderly


def test_nobody_is_blamed_where_all_stall_at_the_same_place() -> None:
    """The network, most likely."""
    told = training(1)
    told.members(trainer(0, stall=stall(9)), trainer(1, stall=stall(9)))
    assert change_of(told) is Reason.COLLECTIVE_BROKEN


def test_last_one_in_a_step_is_the_culprit_after_the_short_limits() -> None:
    """Its own is twice what it ever took within a step; the others have waited for it as usual."""
    told = training(1)
    waits, behind = stall(9, limit=StallLimit.STEP), stall(8, limit=StallLimit.RECORD)
    told.members(trainer(0, stall=waits), trainer(1, stall=behind))
    assert change_of(told) is None, "between two steps: it may evaluate"
    behind = dataclasses.replace(behind, is_in_step=True)
    told.members(trainer(0, stall=waits), trainer(1, stall=behind))
    change = find_change(told.state, 4, False)
    assert change is not None and change.reason is Reason.WORKER_HUNG
    assert change.culprit is not None and change.culprit.node == name(1)
    told.members(trainer(0), trainer(1, stall=behind))
    assert change_of(told) is None, "somebody gets on"


def test_who_is_a_step_behind_is_within_one() -> None:
    """The others could not have committed it without; where batches are the script's own."""
    told = training(1)
    behind = stall(8, limit=StallLimit.RECORD)
    told.members(
        trainer(0, stall=stall(9, step=6, limit=StallLimit.STEP)), trainer(1, stall=behind)
    )
    assert change_of(told) is Reason.WORKER_HUNG


def test_who_took_as_long_before_is_not_blamed_sooner() -> None:
    """It may compile; after the limit that holds for all it is."""
    told = training(1)
    for limit, expected in ((StallLimit.STEP, None), (StallLimit.PROGRESS, Reason.WORKER_HUNG)):
        behind = stall(8, limit=limit, is_in_step=True)
        waits = stall(9, limit=limit, is_in_step=True)
        told.members(trainer(0, stall=waits), trainer(1, stall=behind))
        assert change_of(told) is expected


def test_nobody_is_blamed_at_the_same_place_after_a_short_time() -> None:
    """An evaluation on all ranks, or a big save."""
    told = training(1)
    same = stall(9, limit=StallLimit.RECORD, is_in_step=True)
    told.members(trainer(0, stall=same), trainer(1, stall=same))
    assert change_of(told) is None


def test_rank_that_waits_in_a_collective_is_not_blamed() -> None:
    """All others have begun that collective too, so it is the network; after the long limit all
    form their group anew."""
    told = training(1)
    for limit, expected in (
        (StallLimit.RECORD, None),
        (StallLimit.PROGRESS, Reason.COLLECTIVE_BROKEN),
    ):
        waits = stall(9, limit=limit, is_in_step=True)
        behind = stall(8, limit=limit, is_in_step=True)
        told.members(trainer(0, stall=waits), trainer(1, stall=behind))
        assert change_of(told) is Reason.WORKER_HUNG
        behind = dataclasses.replace(behind, is_in_collective=True)
        told.members(trainer(0, stall=waits), trainer(1, stall=behind))
        change = find_change(told.state, 4, False)
        assert (change.reason if change is not None else None) is expected
        assert change is None or change.culprit is None


def test_rank_that_others_wait_for_is_found_beside_one_that_waits_at_its_place() -> None:
    """It has the result of the collective in which the other waits."""
    told = training(1, 2)
    waits = stall(8, limit=StallLimit.RECORD, is_in_step=True, is_in_collective=True)
    hangs = stall(8, limit=StallLimit.RECORD, is_in_step=True)
    ahead = stall(9, limit=StallLimit.STEP, is_in_collective=True)
    told.members(
        trainer(0, stall=waits), trainer(1, short_stall=hangs), trainer(2, short_stall=ahead)
    )
    change = find_change(told.state, 4, False)
    assert change is not None and change.culprit is not None
    assert change.culprit.node == name(1)


def test_node_whose_ranks_wait_at_two_places_tells_of_the_one_behind() -> None:
    """Which of them is behind decides nothing here, but another node's rank may be further back."""
    told = Told(0, workers_per_node=0)
    told.tell(ev.SlotsGranted(slots=(Slot(0), Slot(1))))
    told.standby()
    told.status(running(1, is_in_process=True))
    told.world(kept(1, 0, 1, nonces={0: (1, 1)}))
    told.started()
    for slot in (0, 1):
        attach(told, slot)
        entered(told, 1, slot)
    short = StallLimit.RECORD
    ahead = dataclasses.replace(stall(9, limit=short), slot=Slot(1))
    behind = stall(8, limit=short, is_in_collective=True)
    told.tell(ev.WorkerStalled(stall=ahead))
    assert desired_member(told.state).standstill is None
    told.tell(ev.WorkerStalled(stall=behind))
    assert desired_member(told.state).standstill == behind
    told.tell(ev.WorkerStalled(stall=dataclasses.replace(ahead, sequence=8)))
    assert desired_member(told.state).standstill == dataclasses.replace(ahead, sequence=8)


def test_culprit_of_another_node_is_told_of_as_one_of_ours() -> None:
    """What is wrong, how it ends, and where its stacks are."""
    told = training(1)
    told.members(trainer(0, stall=stall(9)), trainer(1, stall=stall(8)))
    change = find_change(told.state, 4, False)
    assert change is not None and change.culprit is not None
    text = change_of_words(change.reason, change.culprit, ())
    assert text == (
        "a worker hung: rank 1 on node-1, killed by SIGKILL, No progress for 5 s, while others "
        "waited for it. Stacks: /runs/stacks.txt"
    )


def test_return_on_one_rank_is_found_after_the_short_limit_too() -> None:
    """The others wait in a collective that it never begins; alike they may be at the end."""
    told = training(1)
    done = stall(8, has_returned=True)
    for sequence, expected in ((9, Reason.WORKER_FAILED), (8, None)):
        waits = stall(sequence, limit=StallLimit.STEP)
        told.members(trainer(0, stall=waits), trainer(1, stall=done))
        assert change_of(told) is expected


def test_hang_is_not_hidden_by_a_join() -> None:
    """A newcomer that waits explains nothing."""
    told = training(1)
    told.members(trainer(0, stall=stall(9)), trainer(1, stall=stall(8)), trainer(2))
    assert change_of(told) is Reason.WORKER_HUNG


def test_hang_before_the_agreed_step_is_seen() -> None:
    """The newcomer to the world that should begin there has nothing to say."""
    world = kept(2, 0, 1, 2, at_step=9, reason=Reason.JOINED, restarts=1)
    nodes = (*world.nodes[:2], dataclasses.replace(world.nodes[2], since=Generation(2)))
    told = unformed(
        training(1),
        dataclasses.replace(world, nodes=nodes),
        trainer(0, stall=stall(9)),
        trainer(1, stall=stall(8)),
        trainer(2, arrived=2),
    )
    assert change_of(told) is Reason.WORKER_HUNG


def test_who_waited_for_the_one_that_hung_is_not_hung_in_the_next_world() -> None:
    """Its record still tells of the generation before, which nobody stays in."""
    told = training(1)
    told.members(trainer(0, stall=stall(9)), trainer(1, stall=stall(8)))
    without = planned(told)
    assert isinstance(without, World) and without.at_step is None
    assert [node.node for node in without.nodes] == [name(0)]
    unformed(told, without, trainer(0, stall=stall(9)))
    assert change_of(told) is None


def silent(index: int, generation: int = 1) -> Member:
    """A node of restart mode, none of whose ranks writes anything any more."""
    told = stall(0, generation=generation, step=0)
    return dataclasses.replace(member(index, arrived=1), stall=told)


def test_world_in_which_no_rank_writes_is_begun_anew() -> None:
    """Restart mode: nobody is to blame, as all may wait for one that is no more silent."""
    told = proposer(1, 2)
    told.members(silent(0), silent(1), member(2, arrived=1))
    assert find_change(told.state, 3, False) is None, "one of them writes"
    told.members(silent(0), silent(1), silent(2, generation=0))
    assert find_change(told.state, 3, False) is None, "that was in the world before"
    told.members(silent(0), silent(1), silent(2))
    change = find_change(told.state, 3, False)
    assert change is not None and change.reason is Reason.NO_OUTPUT
    assert change.culprit is None and not change.is_orderly and not change.lost


def test_nobody_is_silent_while_ranks_end() -> None:
    """Rank 0 printed for all and is done; the others have only to exit."""
    told = proposer(1)
    told.members(silent(0), member(1, arrived=1))
    told.tell(ev.ResultsListed(results=(result(1, 1),)))
    assert find_change(told.state, 2, False) is None
    told.members(silent(0), silent(1))
    assert find_change(told.state, 2, False) is None


def test_node_says_that_none_of_its_ranks_writes() -> None:
    """In its member record; it takes that back when one does. Of other worlds nothing is said."""
    told = proposer(1)
    first = stall(0, step=0)
    told.tell(ev.WorkerStalled(stall=dataclasses.replace(first, generation=Generation(9))))
    assert desired_member(told.state).stall is None
    told.tell(ev.WorkerStalled(stall=first))
    assert desired_member(told.state).stall == first
    told.tell(ev.WorkerResumed(slot=first.slot, nonce=first.nonce))
    assert desired_member(told.state).stall is None

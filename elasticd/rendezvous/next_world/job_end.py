"""The end of a job that is done, or is to be stopped, and the status that says so.

In in-process mode a world may stand then that those who trained never saw. All ranks of a
generation finish together, behind one barrier. A world that was agreed on in that moment (for a
join, say) names processes that will not come, and newcomers that wait for them; to begin anew with
these would train everything once more.
"""

import dataclasses

from elasticd.records.job import JobStatus
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import World, WorldNode
from elasticd.rendezvous.next_world.node_condition import has_lost_worker, is_finished, is_going
from elasticd.rendezvous.state import JobState

__all__ = ["is_ending", "is_of_no_interest", "is_trained", "status_at_end", "status_if_trained"]


def status_at_end(state: JobState) -> JobStatus | None:
    """Return the final status, if the job is done or is to be stopped."""
    assert state.status is not None
    world = state.world
    if world is not None and state.ok_ranks >= world.size:
        return dataclasses.replace(
            state.status,
            phase=Phase.SUCCEEDED,
            generation=world.generation,
            reason=Reason.ALL_SUCCEEDED,
            message=(
                f"all {world.size} ranks of generation {world.generation} exited with 0"
                if world.size > 1
                else f"the only rank of generation {world.generation} exited with 0"
            ),
        )
    if any(want.is_stop for want in state.wants.values()):
        return dataclasses.replace(
            state.status,
            phase=Phase.STOPPED,
            reason=Reason.STOP_REQUESTED,
            message=next((w.why for w in state.wants.values() if w.is_stop and w.why), "stopped"),
        )
    return None


def status_if_trained(state: JobState) -> JobStatus | None:
    """Return the final status, if the job was done when the standing world was agreed on."""
    world = state.world
    if world is None or state.status is None or not is_trained(state, world):
        return None
    return dataclasses.replace(
        state.status,
        phase=Phase.SUCCEEDED,
        generation=world.generation,
        reason=Reason.ALL_SUCCEEDED,
        message=f"all ranks that trained have exited with 0, before generation "
        f"{world.generation} began",
    )


def is_ending(state: JobState, world: World) -> bool:
    """Return whether a rank of the world has finished: the others will, or a new world begins
    without it.
    """
    if state.ok_ranks > 0:
        return True
    return state.is_in_process and any(_has_finished_rank(state, node) for node in world.nodes)


def is_trained(state: JobState, world: World) -> bool:
    """Return whether every rank of the last world that trained has exited with 0.

    Others can be left over if a world was agreed on at the very end: those that trained had
    finished before they could enter it, and the new ones wait for them in vain.
    """
    if not state.is_in_process or state.ok_ranks == 0 or state.is_world_ended:
        return False
    if _has_begun(state, world):
        return False
    return all(
        is_finished(state, world, node) or _is_untrained(state, world, node) for node in world.nodes
    )


def _has_finished_rank(state: JobState, node: WorldNode) -> bool:
    seen = state.members.get(node.node)
    if seen is None or seen.member.incarnation != node.incarnation:
        return False
    ended = {(offer.slot, offer.nonce) for offer in seen.member.slots if offer.is_finished}
    return bool(ended) and any((w.slot, w.nonce) in ended for w in node.workers)


def _is_untrained(state: JobState, world: World, node: WorldNode) -> bool:
    """Return whether what is left of the node's part in a world that has not formed was not in the
    one before.
    """
    if _has_begun(state, world):
        return False
    if node.since == world.generation:
        return True
    seen = state.members.get(node.node)
    if seen is None or seen.member.incarnation != node.incarnation:
        return False
    result = state.results.get(node.node)
    is_told = result is not None and result.generation == world.generation
    done = {e.rank for e in result.exits if e.code == 0} if result and is_told else set()
    new = {(o.slot, o.nonce) for o in seen.member.slots if not (o.has_state or o.is_finished)}
    # A process that a smaller world had left out has a state, which the others have gone beyond.
    new |= {(w.slot, w.nonce) for w in node.workers if w.slot in node.new_slots}
    return all(
        node.first_rank + index in done or (worker.slot, worker.nonce) in new
        for index, worker in enumerate(node.workers)
    )


def _has_begun(state: JobState, world: World) -> bool:
    """Return whether it trained, or its ranks were about to: then they did not finish in the world
    before.
    """
    if state.formed_s is not None or world.restarts == 0:
        return True
    # What remains where the members that could tell are gone.
    if any(result.trained_in == world.generation for result in state.results.values()):
        return True
    seen = (state.members.get(n.node) for n in world.nodes if _has_finished_rank(state, n))
    return any(s is not None and s.member.arrived == world.generation for s in seen)


def is_of_no_interest(state: JobState, world: World, node: WorldNode, reason: Reason) -> bool:
    """Return whether a node no longer matters, because the training of its world is at its end
    anyway.
    """
    if not state.is_in_process:
        return False
    if is_going(state, node, reason):
        return True  # It goes when it is done, as all of them soon are.
    if _has_finished_rank(state, node) and not _has_lost_rank(state, node):
        return reason is Reason.DID_NOT_ARRIVE
    return _is_untrained(state, world, node)


def _has_lost_rank(state: JobState, node: WorldNode) -> bool:
    seen = state.members.get(node.node)
    return seen is None or has_lost_worker(node, seen.member)

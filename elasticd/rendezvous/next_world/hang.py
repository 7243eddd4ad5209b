"""Which rank hangs, from what the nodes of a world report of those that make no progress. Pure.

A node reports in its member record the rank of its own that is furthest behind, and only if none of
its ranks makes progress. Once every node of the world has reported, all others wait for the rank
that began the fewest collectives. After the short limits that rank is ended only if it is in the
middle of a step; after `progress_timeout_s` it always is. A rank that waits in a collective is to
blame for nothing: as all others have begun that one, it is the network that fails.

In restart mode nothing is known of steps. There a node reports when none of its ranks has written
anything for `output_timeout_s`, and once all nodes have reported the world is begun anew.
"""

from elasticd.records.failure import Failure, returned_early
from elasticd.records.ids import Rank
from elasticd.records.member import Stall, StallLimit
from elasticd.records.reason import Reason
from elasticd.records.world import World, WorldNode
from elasticd.rendezvous.next_world.node_condition import is_finished
from elasticd.rendezvous.state import JobState

__all__ = ["find_hang"]


def find_hang(state: JobState, world: World) -> tuple[Reason, Failure | None] | None:
    """Return why nobody makes progress and whose fault it is; None while somebody may."""
    if not state.is_in_process:
        return (Reason.NO_OUTPUT, None) if _is_silent(state, world) else None
    stalls = _stalls(state, world)
    if not stalls:
        return None
    node, last = min(stalls, key=lambda item: (item[1].place, item[1].is_in_collective))
    if any(stall.has_returned for _, stall in stalls):
        # At the end of a job all return; what one does after the last step may take its time.
        waiting = [s for _, s in stalls if not s.has_returned and s.place > last.place]
        if not (last.has_returned and waiting):
            return None
    elif any(stall.limit is not StallLimit.PROGRESS for _, stall in stalls):
        if not _is_waited_for(last, [stall for _, stall in stalls]):
            return None  # Each may still be at something that takes long, or wait for that.
    elif last.is_in_collective or (
        len(stalls) > 1 and last.place == max(stall.place for _, stall in stalls)
    ):
        return Reason.COLLECTIVE_BROKEN, None  # All at the same place: no one is to blame.
    culprit = _culprit(world, node, last)
    if last.has_returned:
        return Reason.WORKER_FAILED, returned_early(culprit)
    return Reason.WORKER_HUNG, culprit


def _is_silent(state: JobState, world: World) -> bool:
    """Return whether no rank of the world writes anything any more (restart mode,
    `--output-timeout`).

    It cannot be known which one is at fault: all may wait for one that is no more silent than they
    are.
    """
    for node in world.nodes:
        seen = state.members.get(node.node)
        stall = seen.member.stall if seen is not None else None
        if stall is None or stall.generation != world.generation:
            return False
        if is_finished(state, world, node):
            return False  # The others, which mostly print nothing, are about to end too.
    return True


def _stalls(state: JobState, world: World) -> list[tuple[WorldNode, Stall]]:
    """Return what each node reports of its last rank; nothing unless all of them do.

    Only reports of this generation count: a node that waited for a hung rank has not left that
    world yet when the next one is agreed, and is well. If the world begins at a later step, its
    ranks are still in the generation before, and may hang there: then that one counts.
    """
    is_entered_later = world.at_step is not None and state.formed_s is None
    oldest = world.generation - 1 if is_entered_later else world.generation
    stalls: list[tuple[WorldNode, Stall]] = []
    for node in world.nodes:
        seen = state.members.get(node.node)
        stall = seen.member.standstill if seen is not None else None
        if stall is not None and stall.generation >= oldest:
            stalls.append((node, stall))
        elif state.formed_s is not None or node.since != world.generation or stall is not None:
            return []
        # Else it is new to a world that begins later, and can only wait for the others.
    return stalls


def _is_waited_for(last: Stall, stalls: list[Stall]) -> bool:
    """Return whether others wait in a step for this rank for too long: what an agent asks on one
    node.
    """
    is_short = not last.limit.is_beyond(StallLimit.STEP)
    if is_short or last.is_in_collective or last.place == max(stall.place for stall in stalls):
        return False
    # Nobody commits a step that it did not take part in: behind in steps is within one.
    return last.is_in_step or any(stall.step > last.step for stall in stalls)


def _culprit(world: World, node: WorldNode, last: Stall) -> Failure:
    slots = [worker.slot for worker in node.workers]
    index = slots.index(last.slot) if last.slot in slots else 0
    return Failure(
        node=node.node,
        incarnation=node.incarnation,
        host=node.host,
        generation=world.generation,
        rank=Rank(node.first_rank + index),
        local_rank=index,
        slot=last.slot,
        nonce=last.nonce,
        step=last.step,
        is_hung=True,
        signal="SIGKILL",
        exception=last.why or f"No progress at collective {last.sequence}, and others waited.",
        log_path=last.stacks_path,
    )

"""Which failure caused the others, if processes only see that a peer is gone.

In restart mode nobody reports in which order things happened. The pool reports a killed process,
and its peers' exceptions come independently, in any order. What a killed process caused may look
like any exception at all, so a signal explains exceptions. And a process that exits with 0, in
either mode, breaks the collectives of all others without having failed.
"""

from elasticd.records.failure import Failure, left_early
from elasticd.records.ids import Slot
from elasticd.records.member import Exit
from elasticd.records.reason import Reason
from elasticd.records.world import World, WorldNode
from elasticd.rendezvous.state import JobState

__all__ = ["Found", "first_cause", "has_ended_by_signal", "is_state_lost"]

Found = list[tuple[Reason, Failure | None]]
"""What happened to the nodes of a world."""

_OWN_END = "SIGABRT"
"""Signals that a process sends itself, for example when NCCL's watchdog tells it that a peer is
gone."""


def has_ended_by_signal(failure: Failure) -> bool:
    """Return whether a signal ended the process: another rank's end never causes a signal."""
    return bool(failure.signal) and failure.signal != _OWN_END and not failure.is_secondary


def first_cause(state: JobState, world: World, found: Found) -> Found:
    """Remove failures that others caused (restart mode), and name a rank that left silently."""
    is_told = state.is_in_process  # There each process says how it fares.
    if not is_told and any(
        failure is not None and has_ended_by_signal(failure) for _, failure in found
    ):
        return [
            (reason, failure)
            for reason, failure in found
            if reason is not Reason.WORKER_FAILED
            or (failure is not None and has_ended_by_signal(failure))
        ]
    if any(_is_struck(reason, failure) for reason, failure in found):
        found = [(r, f) for r, f in found if f is None or not f.has_lost_state]
    broken = [reason for reason, _ in found if not reason.is_planned]
    if broken and all(reason is Reason.COLLECTIVE_BROKEN for reason in broken):
        early = _left_early(state, world)
        if early is not None:
            return [*found, (Reason.WORKER_FAILED, early)]
    return found


def is_state_lost(world: World, found: Found) -> bool:
    """Return whether workers ended only because of the loss that this world began with.

    They were in the world before, and nothing had been saved. A process that is new to this world
    has lost nothing: if it ends with the same error, that is its script's.
    """
    lost = [failure for _, failure in found if failure is not None and failure.has_lost_state]
    return (
        world.reason.is_fault
        and bool(lost)
        and all(_was_before(world, failure) for failure in lost)
        and not any(_is_struck(reason, failure) for reason, failure in found)
    )


def _is_struck(reason: Reason, failure: Failure | None) -> bool:
    """Return whether this cause explains why others end, or fall out of a collective."""
    is_consequence = failure is not None and failure.has_lost_state
    return reason.is_fault and reason is not Reason.COLLECTIVE_BROKEN and not is_consequence


def _was_before(world: World, failure: Failure) -> bool:
    node = world.node(failure.node)
    if node is None or node.since >= world.generation:
        return False
    return failure.slot not in node.new_slots


def _left_early(state: JobState, world: World) -> Failure | None:
    """Return the lowest rank that exited with 0 although others were not done."""
    for node in world.nodes:
        for exit_ in _exits(state, world, node):
            if exit_.code == 0:
                return _failure(world, node, exit_)
    return None


def _exits(state: JobState, world: World, node: WorldNode) -> tuple[Exit, ...]:
    if state.adopted == world.generation and node.incarnation == state.me.incarnation:
        # What stands in etcd may lag behind. Who has trained to the end has not left early.
        return state.exits if not state.trained_in else ()
    result = state.results.get(node.node)
    if result is None or result.incarnation != node.incarnation:
        return ()
    is_early = result.generation == world.generation and not result.trained_in
    return result.exits if is_early else ()


def _failure(world: World, node: WorldNode, exit_: Exit) -> Failure:
    index = exit_.rank - node.first_rank
    worker = node.workers[index]
    return left_early(
        Failure(
            node=node.node,
            incarnation=node.incarnation,
            host=node.host,
            generation=world.generation,
            rank=exit_.rank,
            local_rank=index,
            slot=Slot(worker.slot),
            nonce=worker.nonce,
            exit_code=0,
        )
    )

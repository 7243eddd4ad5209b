"""Whether this node waits for a job's state that other nodes have (in-process mode). Pure.

A controller that replaces one node after the other (a rollout of a DaemonSet) assumes that the job
can go on with a node that is ready. With a node whose workers do not have the state yet the job
cannot: if the last node that has the state goes next, and nothing was saved, the job begins anew.
"""

from collections.abc import Mapping
from typing import Protocol

from elasticd.records.ids import JobName
from elasticd.records.job import target_nodes
from elasticd.records.reason import Phase
from elasticd.records.world import World, WorldNode
from elasticd.rendezvous.own_record import is_shut_out
from elasticd.rendezvous.state import JobState, Stage
from elasticd_agent.node.readiness import LIMIT_S

__all__ = ["STANDSTILL_LIMIT_S", "held_back", "limits_s", "state_limit_s"]

STANDSTILL_LIMIT_S = 60.0
"""How long a node whose workers are up waits where the job stands still for want of nodes: others
may not come for days."""


class _Served(Protocol):
    @property
    def state(self) -> JobState: ...


def limits_s(served: Mapping[JobName, _Served]) -> dict[JobName, float]:
    """Return the `state_limit_s` of each job served here."""
    return {job: state_limit_s(each.state) for job, each in served.items()}


def held_back(served: Mapping[JobName, _Served]) -> frozenset[JobName]:
    """Return the jobs whose world leaves this node out, and whose state it does not have."""
    return frozenset(
        job for job, each in served.items() if is_shut_out(each.state) and not _has_it(each.state)
    )


def state_limit_s(state: JobState) -> float:
    """Return for how many seconds at most this node is not ready because it lacks the job's state.

    It is 0 if a process here has the state, if no node has, or if no world is about to take this
    node in.
    """
    if state.stage is not Stage.MEMBER or state.leaving is not None or state.is_over:
        return 0.0
    if _has_it(state):
        return 0.0
    if state.status is None:
        return LIMIT_S  # What the job does was not read yet.
    if not state.is_in_process or state.done or is_shut_out(state):
        return 0.0
    if not (_do_others_have_it(state) and _is_wanted(state)):
        return 0.0
    is_up = any(worker.is_attached for worker in state.workers.values())
    stands_still = state.status.phase is Phase.WAITING
    return STANDSTILL_LIMIT_S if is_up and stands_still else LIMIT_S


def _has_it(state: JobState) -> bool:
    return any(worker.has_state or worker.is_finished for worker in state.workers.values())


def _do_others_have_it(state: JobState) -> bool:
    """Return whether another node's process has the state, as far as the records seen here say.

    Until a record was seen, the nodes of a standing world are taken to have the state.
    """
    seen = [s.member for s in state.members.values() if s.member.node != state.me.node]
    if seen:
        alive = (member for member in seen if member.incarnation not in state.dead)
        return any(offer.has_state for member in alive for offer in member.slots)
    if state.world is None:
        return state.status is not None and state.status.generation > 0
    others = (node for node in state.world.nodes if node.node != state.me.node)
    return any(_is_there(state, node) for node in others)


def _is_wanted(state: JobState) -> bool:
    """Return whether a world has this node, or has room for it: a spare is given no state."""
    world = state.world
    if world is None or state.is_world_ended or state.is_in_world:
        return True
    return _nodes_that_stay(state, world) < target_nodes(state.spec, state.wants)


def _nodes_that_stay(state: JobState, world: World) -> int:
    return sum(
        _is_there(state, node) and not _is_leaving(state, node)
        for node in world.nodes
        if node.node != state.me.node
    )


def _is_there(state: JobState, node: WorldNode) -> bool:
    if node.incarnation in state.dead:
        return False
    return node.node in state.members or node.node not in state.gone_s


def _is_leaving(state: JobState, node: WorldNode) -> bool:
    seen = state.members.get(node.node)
    if seen is None:
        return False
    return seen.member.leaving is not None or seen.member.incarnation != node.incarnation

"""Takes the results of nodes that stand in etcd into the state: whose ranks are done."""

from elasticd.records.ids import NodeId
from elasticd.records.member import Result
from elasticd.records.reason import Reason
from elasticd.records.world import World
from elasticd.rendezvous.event import ResultsListed
from elasticd.rendezvous.next_world.propose import schedule_proposal
from elasticd.rendezvous.persistent_map import PersistentMap
from elasticd.rendezvous.state import JobState, replace

__all__ = ["count_ok_ranks", "result_deleted", "result_seen", "results_listed"]


def results_listed(state: JobState, event: ResultsListed, now_s: float) -> JobState:
    results = PersistentMap((result.node, result) for result in event.results)
    ok_ranks = sum(count_ok_ranks(state.world, result) for result in event.results)
    state = replace(state, results=results, has_results=True, ok_ranks=ok_ranks)
    return schedule_proposal(state, Reason.NODE_LOST, now_s=now_s)


def result_seen(state: JobState, result: Result, now_s: float) -> JobState:
    before = state.results.get(result.node)
    gained = count_ok_ranks(state.world, result) - count_ok_ranks(state.world, before)
    state = replace(
        state,
        results=state.results.with_item(result.node, result),
        ok_ranks=state.ok_ranks + gained,
    )
    if state.world is None:
        return state
    if state.ok_ranks >= state.world.size or (state.is_in_process and gained):
        return schedule_proposal(state, Reason.ALL_SUCCEEDED, now_s=now_s)
    return state


def result_deleted(state: JobState, node: NodeId) -> JobState:
    before = state.results.get(node)
    return replace(
        state,
        results=state.results.without(node),
        ok_ranks=state.ok_ranks - count_ok_ranks(state.world, before),
    )


def count_ok_ranks(world: World | None, result: Result | None) -> int:
    if world is None or result is None or result.generation != world.generation:
        return 0
    if not world.has(result.node, result.incarnation):
        return 0
    return sum(exit_.code == 0 for exit_ in result.exits)

"""How much of a running job's past stays in etcd, so that it does not grow for ever.

etcd has a quota (2 GiB by default), and once that is used up it takes no writes of any job. Each
member of a world writes an incident, and each node that leaves a result; so the proposer of the
next world deletes in the same transaction what is too old for `elasticd why` and what no decision
needs any more. No other process has to run for that, and no clock is read.
"""

from elasticd.records.ids import Generation, NodeId
from elasticd.records.world import World
from elasticd.rendezvous.state import JobState

__all__ = ["INCIDENTS_KEPT", "oldest_kept", "unneeded_results"]

GENERATIONS_KEPT = 200
"""How many generations are kept: some months of a healthy job, or the last hour of one in
trouble."""
GENERATIONS_KEPT_LEAST = 20
INCIDENTS_KEPT = 50_000
"""How many incidents are kept, of some 300 bytes: 15 MB. From 250 nodes on fewer generations are
kept because of it."""
RESULTS_PER_WORLD = 64
"""How many results one world deletes: etcd takes 128 operations in one transaction, and the next
world deletes the next ones."""


def oldest_kept(world: World) -> Generation:
    """Return the first generation whose incidents stay when this world is written."""
    kept = min(GENERATIONS_KEPT, INCIDENTS_KEPT // len(world.nodes))
    return Generation(max(0, world.generation - max(GENERATIONS_KEPT_LEAST, kept)))


def unneeded_results(state: JobState, world: World) -> tuple[NodeId, ...]:
    """Return nodes whose results are of neither the standing world nor the next one.

    Spot machines come under new names all the time. A member keeps its result in any case.
    """
    standing = state.world
    if standing is None:
        return ()
    found = [
        result.node
        for result in state.results.values()
        if max(result.generation, result.trained_in) < standing.generation
        and not (standing.node(result.node) or world.node(result.node))
        and result.node not in state.members
    ]
    return tuple(sorted(found)[:RESULTS_PER_WORLD])

"""Counts the nodes that a job could have at once. Pure.

Agents assign their slots by rules (`elasticd_agent.node.slot_allotment`): a job whose workers run
on a node keeps its slots there, and a job that lacks nodes is served before a job that would keep a
spare. So a spare of another job counts as free, and a node for which another job waits does not.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticd.autoscale.loop.job_watch import JobFacts
from elasticd.control.report.occupancy import uses_of
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import lacks_nodes
from elasticd.records.member import Node

__all__ = ["AvailableNodes", "available", "nodes_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableNodes:
    """The nodes that take work, with their free slots; they are computed once for all jobs."""

    slots: Mapping[NodeId, int] = field(default_factory=dict)
    left: Mapping[NodeId, int] = field(default_factory=dict)
    """The slots of each node that no job keeps: the slots of spares count as free."""
    in_order: tuple[int, ...] = ()
    """The same numbers in ascending order."""
    idle: int = 0
    """The number of nodes whose slots are all free."""
    held: Mapping[JobName, Mapping[NodeId, int]] = field(default_factory=dict)
    """The slots of each job that another job cannot get."""
    labels: Mapping[NodeId, Mapping[str, str]] = field(default_factory=dict)


def nodes_of(
    nodes: Iterable[Node], drained: frozenset[NodeId], jobs: Iterable[JobFacts]
) -> AvailableNodes:
    """Collect the slots that all jobs hold, by node."""
    held: dict[JobName, dict[NodeId, int]] = {}
    for facts in jobs:
        is_short = lacks_nodes(facts.spec, facts.wants, facts.status)
        for use in uses_of(facts.spec, facts.status, facts.world, facts.members):
            if use.is_training or is_short:
                held.setdefault(use.job, {})[use.node] = use.slots
    taking = [n for n in nodes if not n.is_draining and n.node not in drained]
    slots = {n.node: n.slots for n in taking}
    left = dict(slots)
    for of_job in held.values():
        for node, count in of_job.items():
            if node in left:
                left[node] -= count
    return AvailableNodes(
        slots=slots,
        left=left,
        in_order=tuple(sorted(left.values())),
        idle=sum(count == slots[node] for node, count in left.items()),
        held=held,
        labels={n.node: n.labels for n in taking},
    )


def available(facts: JobFacts, cluster: AvailableNodes) -> int:
    """Return the number of nodes that train in the job or could join at once."""
    spec = facts.spec
    training = {node.node for node in facts.world.nodes} if facts.world is not None else set()
    ready = {m.node for m in facts.members if m.slots and m.leaving is None}
    if spec.is_local:  # Its agents serve no other job, nor do others serve it.
        return len(training | ready)
    own = training | {node for node in ready if node in cluster.slots}
    mine = cluster.held.get(spec.name, {})

    def has_room(node: NodeId, given_back: int) -> bool:
        wanted = spec.workers_per_node or cluster.slots[node]
        return cluster.left[node] + given_back >= max(1, wanted)

    if spec.node_labels:
        free = sum(
            has_room(node, 0) for node, labels in cluster.labels.items() if spec.may_run_on(labels)
        )
    elif spec.workers_per_node:
        free = len(cluster.in_order) - bisect_left(cluster.in_order, spec.workers_per_node)
    else:
        free = cluster.idle
    # The slots that the job itself holds are free for it too, and its own nodes are not counted
    # twice.
    free -= sum(has_room(node, 0) for node in own | mine.keys() if node in cluster.slots)
    coming = [node for node in mine if node not in own and node in cluster.slots]
    return len(own) + free + sum(has_room(node, mine[node]) for node in coming)

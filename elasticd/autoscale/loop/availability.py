"""How many nodes a job could have at once. Pure.

Agents give their slots by rules (`elasticd_agent.allotment`): a job whose workers run on a node
keeps what it holds there, a job that lacks nodes is served before one that would keep a spare. So a
spare of another job counts as free, and a node that another job waits for does not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticd.autoscale.loop.job_records import JobFacts
from elasticd.control.occupancy import uses_of
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import lacks_nodes
from elasticd.records.member import Node

__all__ = ["Nodes", "available", "held_slots"]

Held = Mapping[NodeId, Mapping[JobName, int]]
"""Slots on each node that a job will not leave to another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """The nodes of the cluster."""

    nodes: tuple[Node, ...] = ()
    drained: frozenset[NodeId] = frozenset()
    held: Held = field(default_factory=dict)


def held_slots(jobs: Iterable[JobFacts]) -> Held:
    """Say which jobs hold how many slots of which node, spares left out."""
    held: dict[NodeId, dict[JobName, int]] = {}
    for facts in jobs:
        is_short = lacks_nodes(facts.spec, facts.wants, facts.status)
        for use in uses_of(facts.spec, facts.status, facts.world, facts.members):
            if use.is_training or is_short:
                held.setdefault(use.node, {})[use.job] = use.slots
    return held


def available(facts: JobFacts, cluster: Nodes) -> int:
    """Count the nodes that train in the job or could join at once."""
    spec = facts.spec
    training = {node.node for node in facts.world.nodes} if facts.world is not None else set()
    ready = {m.node for m in facts.members if m.slots and m.leaving is None}
    if spec.is_local:  # Its agents serve no other job, and other agents do not serve it.
        return len(training | ready)
    free = set()
    for node in cluster.nodes:
        if node.is_draining or node.node in cluster.drained:
            ready.discard(node.node)
            continue
        others = sum(
            slots for job, slots in cluster.held.get(node.node, {}).items() if job != spec.name
        )
        left = node.slots - others
        wanted = spec.workers_per_node or node.slots
        if left >= max(1, wanted):
            free.add(node.node)
    return len(training | ready | free)

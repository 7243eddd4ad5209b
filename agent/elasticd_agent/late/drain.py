"""Drains a node because all others wait for it, on the thread of effects."""

from elasticd.control import node_drain
from elasticd.control.state_loss import check_drain
from elasticd.errors import ElasticdError, Refused, Unavailable
from elasticd.records.codec import decode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import JobSpec
from elasticd.records.keys import Keys
from elasticd.records.world import World
from elasticd.store.api import ReadableStore, Store

__all__ = ["try_drain"]


def try_drain(store: Store, keys: Keys, job: JobName, node: NodeId, *, ratio: float) -> str:
    """Drain the node, unless some job would have too few nodes; return why it was not drained,
    empty if it was.

    Raises: Unavailable: etcd does not answer.
    """
    try:
        _check(store, keys, node)
        check_drain(store, keys, node)
        node_drain.drain(store, keys, node, why=f"job {job}: its steps take {ratio:.0%} longer")
    except Unavailable:
        raise
    except ElasticdError as exc:
        return str(exc)
    return ""


def _check(store: ReadableStore, keys: Keys, node: NodeId) -> None:
    """Check that no job on the node falls below its least size, counting nodes that leave already.

    Raises: Refused: one would, or another of its nodes is leaving.
    """
    drained = {NodeId(i.key.removeprefix(keys.drains)) for i in store.list(keys.drains).items}
    for item in store.list(keys.active).items:
        name = JobName(item.key.removeprefix(keys.active))
        found, spec = store.get(keys.world(name)), store.get(keys.spec(name))
        if found is None or spec is None or store.get(keys.member(name, node)) is None:
            continue
        nodes = {each.node for each in decode(World, found.value).nodes}
        if node not in nodes:
            continue
        if leaving := nodes & drained - {node}:
            raise Refused(f"node {min(leaving)} is being drained")
        least = decode(JobSpec, spec.value).min_nodes
        if len(nodes) - 1 < least:
            raise Refused(f"job {name} would have fewer nodes than its least number, {least}")

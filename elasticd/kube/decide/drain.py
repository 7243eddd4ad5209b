"""Drains nodes that Kubernetes takes out of service, and withdraws drains without a cause.

`kubectl drain` does not evict the pods of a DaemonSet, and these pods tolerate every taint. Without
this module an agent would notice only when its machine ends.
"""

from collections.abc import Iterator

from elasticd.kube.decide.action import Action, DrainNode, UndrainNode
from elasticd.kube.decide.cluster import KubeNode, ObservedCluster
from elasticd.kube.decide.memory import NodeMemory
from elasticd.kube.resource.name import owner_prefix
from elasticd.records.ids import NodeId

__all__ = ["DRAIN_AGAIN_S", "SILENT_NODE_S", "TAINTS", "UNSEEN_NODE_S", "decide_drains"]

TAINTS = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "node.kubernetes.io/out-of-service",
        "node.kubernetes.io/unschedulable",
        "node.cloudprovider.kubernetes.io/shutdown",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/rebalance-recommendation",
        "cloud.google.com/impending-node-termination",
    }
)
"""The taints of a node that will be removed. `DeletionCandidateOfClusterAutoscaler` does not say so
yet."""
DRAIN_AGAIN_S = 60.0
"""If somebody withdraws a drain while its cause stays, the operator drains again only after this
time."""
_SOFT = "PreferNoSchedule"
UNSEEN_NODE_S = 30.0
"""A node without a Node object that this operator ever saw counts as gone if its pod was there for
this time."""

SILENT_NODE_S = 10.0
"""A node is drained if it was not ready for this time while most nodes were ready. After a failure
of the API server, nodes become silent and come back one by one, within the report period of a
kubelet."""


def decide_drains(seen: ObservedCluster, *, now_s: float) -> Iterator[Action]:
    """Drain nodes that have a cause, and withdraw the operator's own drains that have none."""
    if seen.records is None or not seen.identity:
        return
    by = owner_prefix(seen.identity)
    nodes = {node.node: node for node in seen.nodes.values()}
    causes = _causes(seen, nodes, now_s)
    for name, why in sorted(causes.items()):
        standing = seen.records.drains.get(name)
        # A person's drain stays, even when the cause is gone.
        is_due = standing.by == by and standing.why != why if standing is not None else True
        if is_due and not (standing is None and _is_taken_back(seen, name, why, now_s)):
            yield DrainNode(node=name, why=why, by=by)
    for name, standing in sorted(seen.records.drains.items()):
        if standing.by == by and name not in causes:
            yield UndrainNode(node=name, by=by)


# --- private ----------------------------------------------------------------------------------


def _causes(
    seen: ObservedCluster, nodes: dict[NodeId, KubeNode], now_s: float
) -> dict[NodeId, str]:
    """Return the cause for each node that leaves service; only nodes with an agent are included."""
    assert seen.records is not None
    records = seen.records
    by, serving = owner_prefix(seen.identity), seen.serving
    ours = {name for name in nodes if name in serving or name in records.agents}
    causes: dict[NodeId, str] = {}
    for name in ours:
        why = _why(nodes[name])
        if why:
            causes[name] = why
    causes.update(_not_ready(seen, ours - causes.keys(), by, now_s))
    for name in serving - nodes.keys():
        if _is_gone(seen.memory.nodes.get(name, NodeMemory()), now_s):
            causes[name] = "its node is gone from Kubernetes"
    for name, standing in records.drains.items():
        # The pod is gone too, but the agent may still train.
        if standing.by == by and name not in nodes and name in records.agents:
            causes.setdefault(name, standing.why)
    return causes


def _is_taken_back(seen: ObservedCluster, name: NodeId, why: str, now_s: float) -> bool:
    """Return whether somebody has just withdrawn the operator's drain for this cause."""
    found = seen.memory.nodes.get(name, NodeMemory())
    if found.drained_s is None or found.why != why:
        return False
    return now_s < found.drained_s + DRAIN_AGAIN_S


def _is_gone(found: NodeMemory, now_s: float) -> bool:
    """Return whether a node with an agent's pod but without a Node object was deleted.

    Nodes and pods come from two watches, so the pod of a new node may be observed before the node.
    """
    if found.was_seen:
        return True
    return found.missed_s is not None and now_s >= found.missed_s + UNSEEN_NODE_S


def _why(node: KubeNode) -> str:
    if node.is_deleted:
        return "its node is being deleted from Kubernetes"
    taint = next((t for t in node.taints if t.key in TAINTS and t.effect != _SOFT), None)
    if taint is not None and taint.key != "node.kubernetes.io/unschedulable":
        return f"its node has the taint {taint.key}"
    return "its node is cordoned" if node.is_cordoned or taint is not None else ""


def _not_ready(
    seen: ObservedCluster, candidates: set[NodeId], by: str, now_s: float
) -> dict[NodeId, str]:
    """Return nodes that have not been ready for a while, as long as they are fewer than half.

    If most nodes are not ready, they cannot reach the API server, but their agents train: then the
    operator drains no more nodes, and withdraws no drain.
    """
    assert seen.records is not None
    drains = seen.records.drains
    silent = []
    for name in candidates & seen.silent:
        since_s = seen.memory.nodes.get(name, NodeMemory()).silent_s
        is_long = since_s is not None and now_s >= since_s + SILENT_NODE_S
        standing = drains.get(name)
        if is_long or (standing is not None and standing.by == by):
            silent.append(name)
    return dict.fromkeys(silent, "its node is not ready")

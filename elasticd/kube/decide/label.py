"""Labels of Kubernetes' nodes for their agents, which may not ask the API server.

Of a node's many labels only those are written that some ElasticJob's `nodeSelector` asks for:
others would only make every agent's record larger. As with a pod's `nodeSelector`, a label that
changes takes no node away from a job that it serves.
"""

from collections.abc import Iterator

from elasticd.kube.decide.action import Action, LabelNode
from elasticd.kube.decide.cluster import ObservedCluster
from elasticd.kube.resource.name import owner_prefix
from elasticd.records.member import NodeLabels

__all__ = ["decide_labels"]


def decide_labels(seen: ObservedCluster) -> Iterator[Action]:
    """Make the stored labels of each node with an agent those of its Node object."""
    if seen.records is None or not seen.identity:
        return
    by = owner_prefix(seen.identity)
    asked = _asked(seen, by)
    serving = {pod.node for pod in seen.pods.values() if pod.is_ours and pod.node_name}
    serving |= seen.records.agents.keys()
    labels = {
        node.node: {key: node.labels[key] for key in sorted(asked & node.labels.keys())}
        for node in seen.nodes.values()
        if node.node in serving
    }
    nothing = NodeLabels(by=by)
    for name in sorted(labels.keys() | seen.records.labels.keys()):
        if name not in labels and name in seen.records.agents:
            continue  # Its node is gone from Kubernetes, and its agent trains: it stays what it is.
        standing, wanted = seen.records.labels.get(name, nothing), labels.get(name, {})
        if standing.by == by and standing.labels != wanted:
            yield LabelNode(node=name, labels=wanted, by=by)


# --- private ----------------------------------------------------------------------------------


def _asked(seen: ObservedCluster, by: str) -> set[str]:
    """Return the labels that an object asks for, or a job of one that is not seen here.

    Operators of single namespaces write the same records, and each sees its own objects alone.
    """
    assert seen.records is not None
    specs = (job.spec for job in seen.jobs.values() if job.spec is not None)
    found = {key for spec in specs for key in spec.node_selector}
    for job in seen.records.jobs.values():
        if job.is_active and not job.is_stop_wanted and job.spec.owner.startswith(by):
            found |= job.spec.node_labels.keys()
    return found

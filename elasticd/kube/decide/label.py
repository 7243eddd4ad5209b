"""Writes labels of Kubernetes' nodes for their agents, which have no right to ask the API server.

Only the labels that the `nodeSelector` of some ElasticJob asks for are written, since the others
would only make every agent's record larger. As with a pod's `nodeSelector`, a changed label does
not remove a node from a job that the node serves.
"""

from collections.abc import Iterator

from elasticd.kube.decide.action import Action, LabelNode
from elasticd.kube.decide.cluster import ObservedCluster
from elasticd.kube.resource.name import owner_prefix
from elasticd.records.member import NodeLabels

__all__ = ["decide_labels"]


def decide_labels(seen: ObservedCluster) -> Iterator[Action]:
    """Set the stored labels of each node with an agent to the labels of its Node object."""
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
            continue  # Its Node object is gone, and its agent trains: the labels stay.
        standing, wanted = seen.records.labels.get(name, nothing), labels.get(name, {})
        if standing.by == by and standing.labels != wanted:
            yield LabelNode(node=name, labels=wanted, by=by)


# --- private ----------------------------------------------------------------------------------


def _asked(seen: ObservedCluster, by: str) -> set[str]:
    """Return the labels that an object asks for, or a job whose object is not observed here.

    Operators of single namespaces write the same records, and each observes only its own objects.
    """
    assert seen.records is not None
    specs = (job.spec for job in seen.jobs.values() if job.spec is not None)
    found = {key for spec in specs for key in spec.node_selector}
    for job in seen.records.jobs.values():
        if job.is_active and not job.is_stop_wanted and job.spec.owner.startswith(by):
            found |= job.spec.node_labels.keys()
    return found

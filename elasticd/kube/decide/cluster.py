"""All that the operator observes at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elasticd.kube.decide.memory import OperatorMemory, with_nodes
from elasticd.kube.resource.elastic_job import ElasticJob
from elasticd.kube.resource.job_records import JobRecords
from elasticd.kube.resource.name import (
    AGENT,
    COMPONENT_LABEL,
    PART_OF,
    PART_OF_LABEL,
    other_cluster,
)
from elasticd.records.ids import JobName, NodeId
from elasticd.records.member import Drain, Node, NodeLabels
from elasticd.records.node_name import node_id_of

__all__ = [
    "AgentPod",
    "KubeNode",
    "ObservedCluster",
    "Records",
    "Taint",
    "agent_pod",
    "kube_node",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    key: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeNode:
    """A node of Kubernetes."""

    name: str
    is_cordoned: bool = False
    taints: tuple[Taint, ...] = ()
    is_ready: bool = True
    """True if the node's kubelet reports so; False also if the kubelet was silent for a while."""
    is_deleted: bool = False
    """True if the deletion of the node was requested."""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def node(self) -> NodeId:
        """Return the name of the node's agent."""
        return node_id_of(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPod:
    """A pod of the agents' DaemonSet."""

    namespace: str
    name: str
    node_name: str
    """The name of the node; empty if the pod is not scheduled."""
    labels: Mapping[str, str] = field(default_factory=dict)
    is_deleted: bool = False

    @property
    def is_ours(self) -> bool:
        """Return whether the pod is an agent's; the pods beside agents name another component."""
        component = self.labels.get(COMPONENT_LABEL, AGENT)
        return self.labels.get(PART_OF_LABEL) == PART_OF and component == AGENT

    @property
    def node(self) -> NodeId:
        return node_id_of(self.node_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records in etcd that the operator decides by."""

    jobs: Mapping[JobName, JobRecords] = field(default_factory=dict)
    reserved: frozenset[JobName] = frozenset()
    """The names under which a client is submitting a job now: these have no spec yet."""
    drains: Mapping[NodeId, Drain] = field(default_factory=dict)
    agents: Mapping[NodeId, Node] = field(default_factory=dict)
    labels: Mapping[NodeId, NodeLabels] = field(default_factory=dict)
    """The labels that operators wrote for agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """All that the operator observes at one moment."""

    identity: str
    """The identity of the Kubernetes cluster (the uid of its namespace kube-system), since two
    clusters may share an etcd."""
    jobs: Mapping[str, ElasticJob] = field(default_factory=dict)
    """All ElasticJobs by uid; an object that is missing here was deleted."""
    nodes: Mapping[str, KubeNode] = field(default_factory=dict)
    """The nodes by name."""
    pods: Mapping[str, AgentPod] = field(default_factory=dict)
    """The pods by `namespace/name`."""
    records: Records | None = None
    """The records; None if they have not been read yet."""
    is_etcd_away: bool = False
    """True, without records, if etcd does not answer; the status of objects shows this to
    people."""
    memory: OperatorMemory = field(default_factory=OperatorMemory)

    @property
    def intruded(self) -> str:
        """Return a sentence if another Kubernetes cluster has jobs in this etcd; else an empty
        text.

        The nodes of two such clusters would serve each other's jobs.
        """
        jobs = self.records.jobs if self.records is not None and self.identity else {}
        for name, found in sorted(jobs.items()):
            other = other_cluster(found.spec.owner, self.identity) if found.is_active else ""
            if other:
                return (
                    f"Job {name} in etcd is of another Kubernetes cluster (the uid of its "
                    f"kube-system is {other}), and the agents of both would serve it: give each "
                    "a --cluster of its own; if that one is gone, end its jobs by `elasticd stop`."
                )
        return ""

    @property
    def serving(self) -> frozenset[NodeId]:
        """Return the nodes with an agent's pod."""
        return frozenset(pod.node for pod in self.pods.values() if pod.is_ours and pod.node_name)

    @property
    def silent(self) -> frozenset[NodeId]:
        """Return the nodes that are not ready, because Kubernetes has no report from them."""
        return frozenset(node.node for node in self.nodes.values() if not node.is_ready)

    @property
    def are_most_silent(self) -> bool:
        """Return whether half of all nodes are not ready, or more."""
        return 2 * len(self.silent) >= len(self.nodes)

    def remembering(self, *, now_s: float, is_stale: bool = False) -> "ObservedCluster":
        """Return the same cluster with an updated memory of the present nodes.

        `is_stale` is True if the watch of nodes fails, so that a node that was silent may be ready
        by now.
        """
        present = {node.node for node in self.nodes.values()}
        silent = () if is_stale or self.are_most_silent else self.silent
        memory = with_nodes(self.memory, present, self.serving, silent=silent, now_s=now_s)
        return replace(self, memory=memory)


def kube_node(plain: Mapping[str, Any]) -> KubeNode:
    """Build a `KubeNode` from a Node of the API."""
    meta, spec = plain.get("metadata") or {}, plain.get("spec") or {}
    conditions = (plain.get("status") or {}).get("conditions") or ()
    ready = [one.get("status") for one in conditions if one.get("type") == "Ready"]
    taints = tuple(
        Taint(key=str(one.get("key", "")), effect=str(one.get("effect", "")))
        for one in spec.get("taints") or ()
    )
    return KubeNode(
        name=str(meta.get("name", "")),
        is_cordoned=bool(spec.get("unschedulable")),
        taints=taints,
        is_ready=not ready or ready[0] == "True",
        is_deleted=bool(meta.get("deletionTimestamp")),
        labels={str(key): str(item) for key, item in (meta.get("labels") or {}).items()},
    )


def agent_pod(plain: Mapping[str, Any]) -> AgentPod:
    """Build an `AgentPod` from a Pod of the API."""
    meta, spec = plain.get("metadata") or {}, plain.get("spec") or {}
    labels = {str(key): str(item) for key, item in (meta.get("labels") or {}).items()}
    return AgentPod(
        namespace=str(meta.get("namespace") or "default"),
        name=str(meta.get("name", "")),
        node_name=str(spec.get("nodeName") or ""),
        labels=labels,
        is_deleted=bool(meta.get("deletionTimestamp")),
    )

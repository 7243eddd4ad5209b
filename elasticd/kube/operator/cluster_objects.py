"""The objects in Kubernetes on which the operator's decisions depend."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from elasticd.errors import Unavailable
from elasticd.kube.api.port import ELASTIC_JOBS, NAMESPACES, NODES, PODS, Api, Name, Object
from elasticd.kube.decide.cluster import AgentPod, KubeNode, agent_pod, kube_node
from elasticd.kube.operator.object_cache import ObjectCache
from elasticd.kube.resource.elastic_job import ElasticJob, elastic_job
from elasticd.kube.resource.name import PART_OF, PART_OF_LABEL

__all__ = ["AGENT_LABELS", "ClusterObjects", "cluster_identity"]

AGENT_LABELS = f"{PART_OF_LABEL}={PART_OF}"
"""The labels of the pods that the operator watches; all other pods do not concern it."""
T = TypeVar("T")


class ClusterObjects:
    """Watches of ElasticJobs, nodes and the agents' pods, until they are closed."""

    def __init__(self, api: Api, wake: Callable[[], None], *, namespace: str = "") -> None:
        """`namespace` is that of the ElasticJobs; empty for all namespaces.

        Nodes and the agents' pods are always those of the whole cluster.
        """
        self._jobs = ObjectCache(api, ELASTIC_JOBS, wake, namespace=namespace)
        self._nodes = ObjectCache(api, NODES, wake)
        self._pods = ObjectCache(api, PODS, wake, labels=AGENT_LABELS)
        self._read_jobs = _Reader(elastic_job)
        self._read_nodes = _Reader(kube_node)
        self._read_pods = _Reader(agent_pod)

    @property
    def is_ready(self) -> bool:
        """Return False if a kind was not listed yet, so that a missing object may exist."""
        return all(cache.items is not None for cache in self._caches)

    @property
    def trouble(self) -> str:
        """Return why a watch cannot follow now; empty if all watches follow."""
        return next((cache.trouble for cache in self._caches if cache.trouble), "")

    @property
    def are_nodes_old(self) -> bool:
        """Return whether the nodes may have changed since they were observed."""
        return bool(self._nodes.trouble)

    def jobs(self) -> Mapping[str, tuple[ElasticJob, Object]]:
        """Return the ElasticJobs by uid, each with the object that it was read from."""
        items = self._jobs.items or {}
        read = self._read_jobs(items)
        return {job.uid: (job, items[name]) for name, job in read.items()}

    def nodes(self) -> Mapping[str, KubeNode]:
        """Return the nodes by name."""
        return {name.name: node for name, node in self._read_nodes(self._nodes.items or {}).items()}

    def pods(self) -> Mapping[str, AgentPod]:
        """Return the pods with elasticd's label, by namespace and name."""
        read = self._read_pods(self._pods.items or {})
        return {f"{name.namespace}/{name.name}": pod for name, pod in read.items()}

    def close(self) -> None:
        for cache in self._caches:
            cache.close()

    @property
    def _caches(self) -> tuple[ObjectCache, ...]:
        return self._jobs, self._nodes, self._pods


def cluster_identity(api: Api) -> str:
    """Return the identity of the Kubernetes cluster, since two clusters may share an etcd.

    Raises: ElasticdError: the API server does not answer, or refuses.
    """
    found = api.list(NAMESPACES, name="kube-system").items
    identity = str(found[0]["metadata"]["uid"]) if found else ""
    if not identity:
        raise Unavailable("The API server has no namespace kube-system.")
    return identity


class _Reader(Generic[T]):
    """A cache for the results of `read`: an object that has not changed is read once."""

    def __init__(self, read: Callable[[Object], T]) -> None:
        self._read = read
        self._known: dict[Name, tuple[Object, T]] = {}

    def __call__(self, items: Mapping[Name, Object]) -> dict[Name, T]:
        before, self._known = self._known, {}
        for name, item in items.items():
            known = before.get(name)
            if known is None or known[0] is not item:
                known = item, self._read(item)
            self._known[name] = known
        return {name: read for name, (_, read) in self._known.items()}

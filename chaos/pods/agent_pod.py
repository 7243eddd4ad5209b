"""The agents' pods, as the API server tells of them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.history import Entered

__all__ = ["AGENT", "OWN", "AgentPod", "agent_pods", "evictable", "ranks_on"]

OWN = "app.kubernetes.io/part-of=elasticd"
AGENT = "app.kubernetes.io/component=agent"
_CONTAINER = "agent"
_COMPONENT = "app.kubernetes.io/component"
_KEPT = frozenset({"agent", "etcd"})
"""A DaemonSet's are none of `kubectl drain`'s, and an etcd whose volume goes with its pod would
take the job's records with it, which is another fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPod:
    """One pod, and the container that it has now."""

    name: str
    uid: str
    node: str
    container: str
    """Id of the agent's container; empty: there is none yet."""
    is_ready: bool
    is_deleted: bool
    """Somebody wants it gone; it may still run."""


def agent_pods(items: Iterable[Mapping[str, Any]]) -> Mapping[str, AgentPod]:
    """Read a list of pods: by node the one that serves, or that is to.

    Where a pod goes and its successor is there already, the successor counts.
    """
    found: dict[str, AgentPod] = {}
    for item in items:
        pod = _read(item)
        if pod is None:
            continue
        before = found.get(pod.node)
        if before is None or (before.is_deleted, not before.is_ready) > (
            pod.is_deleted,
            not pod.is_ready,
        ):
            found[pod.node] = pod
    return found


def evictable(items: Iterable[Mapping[str, Any]], node: str) -> Sequence[str]:
    """Name elasticd's pods on a node that `kubectl drain` evicts."""
    return sorted(
        str(item["metadata"]["name"])
        for item in items
        if item["spec"].get("nodeName") == node
        and item["metadata"].get("labels", {}).get(_COMPONENT) not in _KEPT
        and "deletionTimestamp" not in item["metadata"]
    )


def ranks_on(node: str, ranks: Iterable[Entered], generation: int) -> Sequence[int]:
    """List the ranks that a node has in a generation; empty: it takes no part in it."""
    return sorted(
        each.rank for each in ranks if each.node == node and each.generation == generation
    )


def _read(item: Mapping[str, Any]) -> AgentPod | None:
    """Read a pod; None: it stands on no node yet."""
    metadata, status = item["metadata"], item.get("status", {})
    node = item["spec"].get("nodeName", "")
    if not node:
        return None
    containers = [
        each for each in status.get("containerStatuses", ()) if each["name"] == _CONTAINER
    ]
    # Of one that ended the id stands there too, until the next one runs.
    running = [each for each in containers if "running" in each.get("state", {})]
    container = str(running[0].get("containerID", "")) if running else ""
    return AgentPod(
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        node=str(node),
        container=container.rpartition("/")[2],
        is_ready=bool(running) and bool(running[0].get("ready")),
        is_deleted="deletionTimestamp" in metadata,
    )

"""The agents' pods, and etcd's, as the API server tells of them. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.history.records import Entered

__all__ = [
    "AGENT",
    "ETCD",
    "OWN",
    "AgentPod",
    "EtcdPod",
    "agent_pods",
    "etcd_pods",
    "evictable",
    "ranks_on",
    "twin_of",
]

OWN = "app.kubernetes.io/part-of=elasticd"
AGENT = "app.kubernetes.io/component=agent"
ETCD = "app.kubernetes.io/component=etcd"
_CONTAINER = "agent"
_NODE_NAME = "ELASTICD_NODE_NAME"
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
    address: str
    host_address: str
    """That of its node."""
    image: str
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdPod:
    """A member of elasticd's own etcd."""

    name: str
    node: str
    container: str
    is_ready: bool


def etcd_pods(items: Iterable[Mapping[str, Any]]) -> Sequence[EtcdPod]:
    """Read a list of etcd's pods that stand on a node."""
    found = []
    for item in items:
        containers = [
            each
            for each in item.get("status", {}).get("containerStatuses", ())
            if "running" in each.get("state", {})
        ]
        if item["spec"].get("nodeName"):
            found.append(
                EtcdPod(
                    name=str(item["metadata"]["name"]),
                    node=str(item["spec"]["nodeName"]),
                    container=_id(containers[0]) if containers else "",
                    is_ready=bool(containers) and bool(containers[0].get("ready")),
                )
            )
    return found


def twin_of(agents: Mapping[str, Any], name: str, *, node: str, where: str) -> Mapping[str, Any]:
    """Return a pod of the agents' DaemonSet that says it is a node which another pod is."""
    spec = json.loads(json.dumps(agents["spec"]["template"]["spec"]))
    container = next(each for each in spec["containers"] if each["name"] == _CONTAINER)
    kept = [each for each in container.get("env", ()) if each["name"] != _NODE_NAME]
    container["env"] = [*kept, {"name": _NODE_NAME, "value": node}]
    # Not the label of the agents: their DaemonSet would take it for one of its own.
    labels = {"app.kubernetes.io/component": "twin"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {**spec, "nodeName": where, "restartPolicy": "Never"},
    }


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
    # The id of a container that has ended stands there too, until the next one runs.
    running = [each for each in containers if "running" in each.get("state", {})]
    container = _id(running[0]) if running else ""
    return AgentPod(
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        node=str(node),
        container=container,
        address=str(status.get("podIP", "")),
        host_address=str(status.get("hostIP", "")),
        image=next(
            (
                str(each.get("image", ""))
                for each in item["spec"].get("containers", ())
                if each["name"] == _CONTAINER
            ),
            "",
        ),
        is_ready=bool(running) and bool(running[0].get("ready")),
        is_deleted="deletionTimestamp" in metadata,
    )


def _id(container: Mapping[str, Any]) -> str:
    """Return a container's bare id."""
    return str(container.get("containerID", "")).rpartition("/")[2]

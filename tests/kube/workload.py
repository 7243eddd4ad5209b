"""Pods and DaemonSets of the project's image, as small as they can be."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.kube.testbed.cluster import Cluster
from tests.kube.testbed.daemon import wait_until
from tests.kube.testbed.image.store import IMAGES

__all__ = ["Running", "daemon_set", "pod", "pod_template", "running", "wait_running"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What the API server says about a pod that runs."""

    node: str
    address: str
    uid: str


def pod_template(name: str, command: Sequence[str]) -> dict[str, object]:
    """Return the template of pods with one container, which end within a second."""
    return {
        "metadata": {"labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": name,
                    "image": IMAGES[0],
                    "imagePullPolicy": "Never",
                    "command": list(command),
                }
            ],
        },
    }


def pod(name: str, command: Sequence[str], *, node: str = "") -> str:
    """Return a pod that runs once, as JSON; on a node of the test's choice."""
    template = pod_template(name, command)
    spec = template["spec"]
    assert isinstance(spec, dict)
    spec["restartPolicy"] = "Never"
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "labels": {"app": name}}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def daemon_set(name: str, command: Sequence[str]) -> str:
    """Return a DaemonSet on all nodes, as JSON."""
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": pod_template(name, command),
            },
        }
    )


def running(cluster: Cluster, namespace: str) -> Mapping[str, Running]:
    """Return the pods of a namespace that run and that nobody has deleted, by name."""
    found = json.loads(cluster.api.kubectl("-n", namespace, "get", "pods", "-o", "json"))["items"]
    return {
        each["metadata"]["name"]: Running(
            node=each["spec"]["nodeName"],
            address=each["status"]["podIP"],
            uid=each["metadata"]["uid"],
        )
        for each in found
        if each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"]
    }


def wait_running(cluster: Cluster, namespace: str, count: int) -> Mapping[str, Running]:
    """Wait until so many pods run, and return them."""
    wait_until(lambda: len(running(cluster, namespace)) == count, f"{count} pods run", 60.0)
    return running(cluster, namespace)

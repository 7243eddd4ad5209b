"""What is read of nodes and pods."""

from typing import Any

import pytest

from elasticd.kube.decide.cluster import agent_pod, kube_node


@pytest.mark.parametrize(
    ("ready", "expected"), [("True", True), ("False", False), ("Unknown", False)]
)
def test_a_node_is_ready_where_its_kubelet_says_so(ready: Any, expected: Any) -> None:
    conditions = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    node = kube_node({"metadata": {"name": "n1"}, "status": {"conditions": conditions}})
    assert node.is_ready is expected


def test_cordon_taints_and_deletion_are_read() -> None:
    node = kube_node(
        {
            "metadata": {"name": "n" * 80, "deletionTimestamp": "2026-11-23T10:00:00Z"},
            "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoExecute"}]},
        }
    )
    assert (node.is_cordoned, node.is_deleted, node.taints[0].effect) == (True, True, "NoExecute")
    assert len(node.node) == 63


def test_a_pod_without_our_label_is_none_of_ours() -> None:
    meta = {"namespace": "e", "name": "p"}
    spec = {"nodeName": "n1"}
    assert not agent_pod({"metadata": meta, "spec": spec}).is_ours
    ours = {**meta, "labels": {"app.kubernetes.io/part-of": "elasticd"}}
    pod = agent_pod({"metadata": ours, "spec": spec})
    assert pod.is_ours and pod.node == "n1" and not pod.is_deleted

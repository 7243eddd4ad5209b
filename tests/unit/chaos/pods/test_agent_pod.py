"""Who is a victim: an agent's pod by its node, and the ranks that it has."""

from typing import Any

from chaos.history.records import Entered
from chaos.pods.agent_pod import agent_pods, etcd_pods, evictable, ranks_on, twin_of


def pod(name: str, node: str = "node1", **more: Any) -> dict[str, Any]:
    """Return a pod as the API server tells of one; it runs and is ready."""
    container = {
        "name": "agent",
        "ready": True,
        "state": {"running": {}},
        "containerID": f"containerd://{name}-c",
    }
    container.update(more.pop("container", {}))
    metadata = {
        "name": name,
        "uid": f"{name}-u",
        "labels": {"app.kubernetes.io/component": more.pop("component", "agent")},
    }
    if more.pop("is_deleted", False):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "metadata": metadata,
        "spec": {"nodeName": node} if node else {},
        "status": {"containerStatuses": [container]},
    }


def test_a_pod_is_known_by_its_node_and_its_container_by_the_bare_id() -> None:
    found = agent_pods([pod("a"), pod("b", "node2")])
    assert sorted(found) == ["node1", "node2"]
    assert (found["node1"].name, found["node1"].container) == ("a", "a-c")
    assert found["node1"].is_ready and not found["node1"].is_deleted


def test_the_successor_of_a_pod_that_goes_counts_in_whatever_order_they_come() -> None:
    going, next_one = pod("old", is_deleted=True), pod("new", container={"ready": False})
    for items in ([going, next_one], [next_one, going]):
        assert agent_pods(items)["node1"].name == "new"
    assert agent_pods([going])["node1"].is_deleted


def test_a_pod_without_a_node_is_nobodys_and_one_without_a_container_not_ready() -> None:
    ended = {"state": {"terminated": {}}, "ready": False}
    found = agent_pods([pod("waits", node=""), pod("ended", container=ended)])
    assert [each.name for each in found.values()] == ["ended"]
    assert found["node1"].container == "" and not found["node1"].is_ready


def test_an_eviction_leaves_agents_and_etcd_where_they_are() -> None:
    items = [
        pod("agent"),
        pod("etcd", component="etcd"),
        pod("operator", component="operator"),
        pod("going", component="dashboard", is_deleted=True),
        pod("elsewhere", "node2", component="operator"),
    ]
    assert evictable(items, "node1") == ["operator"]


def entered(node: str, rank: int, generation: int) -> Entered:
    return Entered(
        at_s=0.0,
        generation=generation,
        rank=rank,
        size=3,
        step=0,
        epoch=0,
        digest="",
        pid=7,
        node=node,
        pod=f"{node}-pod",
    )


def test_a_node_is_a_victim_only_with_a_rank_in_the_newest_generation() -> None:
    ranks = [entered("node1", 2, 4), entered("node1", 0, 4), entered("node2", 1, 3)]
    assert ranks_on("node1", ranks, 4) == [0, 2]
    assert ranks_on("node2", ranks, 4) == []


def test_an_etcd_pod_between_two_containers_has_none() -> None:
    waits = {"state": {"waiting": {}}, "ready": False}
    items = [pod("e0", "node2"), pod("e1", container=waits), pod("e2", node="")]
    assert [(e.name, e.node, e.container, e.is_ready) for e in etcd_pods(items)] == [
        ("e0", "node2", "e0-c", True),
        ("e1", "node1", "", False),
    ]


def test_a_twin_says_that_it_is_another_node_and_is_none_of_the_daemon_sets_pods() -> None:
    named = {"name": "ELASTICD_NODE_NAME", "valueFrom": {"fieldRef": {}}}
    other = {"name": "X", "value": "1"}
    spec = {"containers": [{"name": "agent", "env": [named, other]}], "restartPolicy": "Always"}
    found = twin_of({"spec": {"template": {"spec": spec}}}, "t", node="node1", where="node2")
    assert found["spec"]["containers"][0]["env"] == [
        other,
        {"name": "ELASTICD_NODE_NAME", "value": "node1"},
    ]
    assert found["spec"]["nodeName"] == "node2" and found["spec"]["restartPolicy"] == "Never"
    assert found["metadata"]["labels"]["app.kubernetes.io/component"] != "agent"
    assert spec["containers"][0]["env"] == [named, other]  # type: ignore[index]

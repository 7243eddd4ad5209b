"""Nodes that Kubernetes takes out become drains, which go with their cause."""

from dataclasses import replace
from typing import Any

import pytest

from elasticd.kube.decide.action import Action, DrainNode, UndrainNode
from elasticd.kube.decide.cluster import Taint
from elasticd.kube.decide.drain import DRAIN_AGAIN_S, SILENT_NODE_S, TAINTS, UNSEEN_NODE_S
from elasticd.kube.decide.memory import OperatorMemory
from elasticd.records.ids import NodeId
from elasticd.records.member import Drain
from tests.unit.kube.decide.twin import IDENTITY, OURS, Twin

BY = f"kubernetes/{IDENTITY}/"
UNDRAIN = UndrainNode(node=NodeId("n1"), by=BY)


def cluster(count: int = 3) -> Twin:
    twin = Twin()
    for number in range(count):
        twin.node(f"n{number}")
    assert twin.converge() == []
    return twin


def put(twin: Twin, name: str, **changes: Any) -> None:
    twin.nodes[name] = replace(twin.nodes[name], **changes)


def converge_late(twin: Twin) -> list[Action]:
    """Converge, and once more when what is not ready was so for long enough."""
    found = twin.converge()
    twin.now_s += SILENT_NODE_S
    return [*found, *twin.converge()]


CAUSES: list[tuple[dict[str, Any], str]] = [
    ({"is_cordoned": True}, "its node is cordoned"),
    ({"is_deleted": True}, "its node is being deleted from Kubernetes"),
    ({"is_ready": False}, "its node is not ready"),
    *(
        ({"taints": (Taint(key=key, effect="NoExecute"),)}, key)
        for key in sorted(TAINTS - {"node.kubernetes.io/unschedulable"})
    ),
]


@pytest.mark.parametrize(("cause", "why"), CAUSES)
def test_a_drain_comes_and_goes_with_its_cause(cause: Any, why: str) -> None:
    twin = cluster()
    whole = twin.nodes["n1"]
    put(twin, "n1", **cause)
    (drain,) = converge_late(twin)
    assert isinstance(drain, DrainNode) and drain.node == "n1" and why in drain.why
    assert twin.drains["n1"].by == BY
    twin.nodes["n1"] = whole
    assert twin.converge() == [UNDRAIN]


@pytest.mark.parametrize(
    "taint",
    [
        Taint(key="DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule"),
        Taint(key="karpenter.sh/disrupted", effect="PreferNoSchedule"),
        Taint(key="team.example.com/gpu", effect="NoSchedule"),
    ],
)
def test_other_taints_are_no_cause(taint: Taint) -> None:
    twin = cluster()
    put(twin, "n1", taints=(taint,))
    assert twin.converge() == []


def test_a_drain_of_a_person_stands_and_stays() -> None:
    twin = cluster()
    mine = twin.drains["n1"] = Drain(why="disk")
    put(twin, "n1", is_cordoned=True)
    assert twin.converge() == []
    put(twin, "n1", is_cordoned=False)
    assert twin.converge() == [] and twin.drains["n1"] is mine


def test_a_person_who_drains_what_is_drained_already_has_a_drain_that_stays() -> None:
    """The operator's own became theirs, and is not taken back with the cause."""
    twin = cluster()
    put(twin, "n1", is_cordoned=True)
    twin.converge()
    mine = twin.drains["n1"] = Drain(why="disk")
    put(twin, "n1", is_cordoned=False)
    assert twin.converge() == [] and twin.drains["n1"] is mine


def test_a_drain_that_a_person_takes_back_is_not_fought_about() -> None:
    """It comes back while its cause stands, once a minute at most; another cause counts anew."""
    twin = cluster()
    whole = twin.nodes["n1"]
    put(twin, "n1", is_cordoned=True)
    began_s = twin.now_s
    count = 0
    while twin.now_s < began_s + 10 * DRAIN_AGAIN_S:
        count += len(twin.turn())
        twin.drains.pop("n1", None)
    assert 9 <= count <= 11
    put(twin, "n1", is_deleted=True)
    (drain,) = twin.converge()
    assert isinstance(drain, DrainNode)
    twin.nodes["n1"] = whole
    assert twin.converge() == [UNDRAIN]
    put(twin, "n1", is_deleted=True)
    assert len(twin.converge()) == 1, "the operator itself took the one before back"


def test_a_drain_of_another_cluster_on_the_same_etcd_stays() -> None:
    twin = cluster()
    twin.drains["m7"] = Drain(why="its node is cordoned", by="kubernetes/cluster-2/")
    assert twin.converge() == []


def test_the_why_follows_the_cause() -> None:
    twin = cluster()
    put(twin, "n1", is_cordoned=True)
    twin.converge()
    put(twin, "n1", is_deleted=True)
    (drain,) = twin.converge()
    assert isinstance(drain, DrainNode) and "being deleted" in drain.why


@pytest.mark.parametrize(
    ("count", "silent", "drained"), [(5, 2, 2), (4, 2, 0), (3, 3, 0), (1, 1, 0)]
)
def test_most_nodes_that_are_silent_are_not_taken_out(
    count: int, silent: int, drained: int
) -> None:
    """The API server is what they do not reach: their agents train."""
    twin = cluster(count)
    for number in range(silent):
        put(twin, f"n{number}", is_ready=False)
    converge_late(twin)
    assert len(twin.drains) == drained


def test_nodes_that_fall_silent_and_come_back_one_by_one_are_not_taken_out() -> None:
    """So they do when the API server was away: each alone is a minority, at the start and the end.

    A majority between begins the time anew, for the last one that comes back.
    """
    twin = cluster()
    for number in range(3):
        put(twin, f"n{number}", is_ready=False)
        twin.turn()
    twin.now_s += SILENT_NODE_S
    for number in range(3):
        assert twin.converge() == []
        put(twin, f"n{number}", is_ready=True)
    assert twin.converge() == [] and twin.drains == {}


def test_a_node_that_is_not_ready_for_a_moment_is_not_taken_out() -> None:
    twin = cluster()
    for is_ready in (False, True, False, True, False):
        put(twin, "n1", is_ready=is_ready)
        assert twin.turn(0.6 * SILENT_NODE_S) == ()
    assert twin.drains == {}


def test_another_operator_keeps_the_drain_of_a_node_that_is_not_ready() -> None:
    """It remembers nothing, and need not wait again."""
    twin = cluster()
    put(twin, "n1", is_ready=False)
    converge_late(twin)
    twin.memory = OperatorMemory()
    assert twin.converge() == [] and set(twin.drains) == {"n1"}


def test_what_was_taken_out_before_most_fell_silent_stays_out() -> None:
    twin = cluster()
    put(twin, "n0", is_ready=False)
    converge_late(twin)
    put(twin, "n1", is_ready=False)
    assert converge_late(twin) == [] and set(twin.drains) == {"n0"}
    put(twin, "n0", is_ready=True)
    converge_late(twin)
    assert set(twin.drains) == {"n1"}, "one of three again"


def test_a_node_that_is_gone_is_drained_while_its_agent_or_pod_is_there() -> None:
    twin = cluster()
    del twin.nodes["n1"]
    (drain,) = twin.converge()
    assert isinstance(drain, DrainNode) and drain.why == "its node is gone from Kubernetes"
    del twin.pods["e/n1"]
    assert twin.converge() == [], "its agent may still train"
    del twin.agents["n1"]
    assert twin.converge() == [UNDRAIN]


def test_a_new_node_whose_pod_is_seen_first_is_not_drained() -> None:
    """Nodes and pods come by two watches, of which one may be behind."""
    twin = cluster()
    twin.node("n7")
    whole = twin.nodes.pop("n7")
    assert twin.converge() == []
    twin.now_s += UNSEEN_NODE_S / 2
    assert twin.converge() == []
    twin.nodes["n7"] = whole
    twin.now_s += 2 * UNSEEN_NODE_S
    assert twin.converge() == []
    del twin.nodes["n7"]
    (drain,) = twin.converge()
    assert isinstance(drain, DrainNode) and drain.node == "n7"


def test_a_node_that_an_operator_never_saw_is_drained_after_a_while() -> None:
    """It was deleted while another one led, or none; its agent still trains."""
    twin = cluster()
    del twin.nodes["n1"]
    twin.memory = OperatorMemory()
    assert twin.converge() == []
    twin.now_s += UNSEEN_NODE_S
    (drain,) = twin.converge()
    assert isinstance(drain, DrainNode) and drain.why == "its node is gone from Kubernetes"


def test_an_agent_outside_of_kubernetes_is_none_of_ours() -> None:
    twin = cluster()
    twin.agents["bare-metal"] = replace(twin.agents["n0"], node=NodeId("bare-metal"))
    assert twin.converge() == []


def test_nodes_without_an_agent_are_left_alone() -> None:
    twin = cluster()
    twin.node("control-plane", with_agent=False, is_cordoned=True)
    assert twin.converge() == []


def test_pods_without_our_label_are_none_of_ours() -> None:
    twin = cluster()
    twin.pods["e/n1"] = replace(twin.pods["e/n1"], labels={})
    del twin.nodes["n1"]
    assert twin.converge() == []


def test_without_etcd_nothing_is_drained() -> None:
    twin = cluster()
    twin.is_etcd_away = True
    put(twin, "n1", is_cordoned=True)
    assert twin.converge() == []


def test_pods_of_elasticd_that_are_no_agents_make_no_node_ours() -> None:
    """The operator's, etcd's and the dashboard's have the same label."""
    twin = cluster()
    twin.node("control-plane", with_agent=False, is_cordoned=True, labels={"zone": "a"})
    labels = {**OURS, "app.kubernetes.io/component": "etcd"}
    twin.pods["e/etcd-0"] = replace(
        twin.pods["e/n1"], name="etcd-0", node_name="control-plane", labels=labels
    )
    assert twin.converge() == []

"""What agents are told of their nodes' labels in Kubernetes."""

from dataclasses import replace

from elasticd.kube.decide.action import LabelNode
from elasticd.records.ids import NodeId
from elasticd.records.member import NodeLabels
from tests.unit.kube.decide.twin import IDENTITY, SCRIPT, Twin

BY = f"kubernetes/{IDENTITY}/"
LABELS = {"zone": "a", "gpu": "h100", "kubernetes.io/os": "linux"}


def cluster() -> tuple[Twin, str]:
    """Two nodes, of which one has an agent, and an object that asks for two labels."""
    twin = Twin()
    twin.node("n0", labels=LABELS)
    twin.node("n1", labels=LABELS, with_agent=False)
    uid = twin.create(spec={**SCRIPT, "nodeSelector": {"zone": "b", "rack": "7"}})
    twin.converge()
    return twin, uid


def test_a_node_is_told_the_labels_that_somebody_asks_for() -> None:
    """Whatever their values are: the job compares them. All others concern nobody."""
    twin, _ = cluster()
    assert twin.labels == {"n0": NodeLabels(labels={"zone": "a"}, by=BY)}
    twin.create("y", spec={**SCRIPT, "nodeSelector": {"gpu": "h100"}})
    twin.converge()
    assert twin.labels["n0"].labels == {"zone": "a", "gpu": "h100"}
    twin.nodes["n0"] = replace(twin.nodes["n0"], labels={"zone": "b", "rack": "7"})
    twin.converge()
    assert twin.labels["n0"].labels == {"zone": "b", "rack": "7"}


def test_labels_that_nobody_asks_for_any_more_are_taken_back() -> None:
    """With the last object, and with the node."""
    twin, uid = cluster()
    twin.delete(uid, force=True)
    assert LabelNode(node=NodeId("n0"), labels={}, by=BY) in twin.converge()
    assert not twin.labels


def test_an_agent_whose_node_is_gone_keeps_its_labels_while_it_lives() -> None:
    """Its drain is what takes it out."""
    twin, _ = cluster()
    del twin.nodes["n0"]
    twin.converge()
    assert twin.labels
    del twin.pods["e/n0"], twin.agents[NodeId("n0")]
    twin.converge()
    assert not twin.labels


def test_labels_that_somebody_else_wrote_are_left_alone() -> None:
    """The operator of another cluster on the same etcd, by its own objects."""
    twin, uid = cluster()
    foreign = NodeLabels(labels={"zone": "z"}, by="kubernetes/another/")
    twin.labels[NodeId("n0")] = foreign
    assert twin.converge() == []
    twin.delete(uid, force=True)
    twin.converge()
    assert twin.labels[NodeId("n0")] == foreign


def test_a_cluster_without_selectors_writes_nothing() -> None:
    twin = Twin()
    twin.node("n0", labels=LABELS)
    twin.create()
    assert not any(isinstance(action, LabelNode) for action in twin.converge())

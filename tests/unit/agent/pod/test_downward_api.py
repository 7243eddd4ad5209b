"""The name of the node on which a pod runs."""

import pytest

from elasticd.cli.daemons.agent import agent_settings
from elasticd.errors import CallError
from elasticd_agent.pod.downward_api import node_name
from tests.fixtures.captured_log import captured_log

FLAGS = {"etcd": "http://127.0.0.1:2379", "labels": ()}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
LONG = "ip-10-0-1-2." + "x" * 80 + ".internal"


@pytest.fixture(autouse=True)
def here(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))


@pytest.mark.parametrize(
    ("environ", "node"),
    [
        ({"ELASTICD_NODE_NAME": "gpu-1"}, "gpu-1"),
        ({**POD, "NODE_NAME": "gpu-2"}, "gpu-2"),
        ({**POD, "NODE_NAME": "gpu-2", "ELASTICD_NODE_NAME": "gpu-1"}, "gpu-1"),
        ({"ELASTICD_NODE_NAME": "gpu-1", "ELASTICD_NODE_ID": "mine"}, "mine"),
    ],
)
def test_node_is_that_of_the_pod(environ: dict[str, str], node: str) -> None:
    """Unless it was named in so many words: a pod's host name changes with each pod."""
    assert agent_settings(FLAGS, environ).node == node


def test_usual_name_counts_in_a_pod_alone() -> None:
    """Elsewhere it means anything: a CI's worker has one, and all agents there would share it."""
    assert node_name({"NODE_NAME": "built-in"}) is None
    assert agent_settings(FLAGS, {"NODE_NAME": "built-in"}).node != "built-in"


def test_long_name_is_shortened_and_that_is_said() -> None:
    """Kubernetes allows 253 characters."""
    assert len(agent_settings(FLAGS, {"ELASTICD_NODE_NAME": LONG}).node) <= 63
    named, short = node_name({"ELASTICD_NODE_NAME": LONG}), node_name({"ELASTICD_NODE_NAME": "a"})
    assert named is not None and short is not None
    with captured_log() as logs:
        short.explain()
        assert logs == []
        named.explain()
    (said,) = logs
    assert said["event"] == "node.name_shortened"
    assert (said["name"], said["node"]) == (LONG, named.node)


def test_name_that_none_is_is_refused_by_its_variable() -> None:
    """Whoever reads the sentence never gave a --node-id."""
    with pytest.raises(CallError, match="ELASTICD_NODE_NAME 'a b' is not usable"):
        agent_settings(FLAGS, {"ELASTICD_NODE_NAME": "a b"})

"""What a container has by itself stays beside a variable that chaos gives it, and after it."""

from collections.abc import Mapping
from typing import Any

from chaos.pods.cluster import KubeCluster

OWN = {"name": "OWN", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


class Server(KubeCluster):
    """A cluster whose only object is a DaemonSet, merged as an API server merges it."""

    def __init__(self) -> None:
        self.containers: list[dict[str, Any]] = [
            {"name": "agent", "image": "x", "env": [OWN]},
            {"name": "other"},
        ]

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        what: str,
    ) -> dict[str, Any]:
        if method == "PATCH":
            self.containers = body["spec"]["template"]["spec"]["containers"]
        return {"spec": {"template": {"spec": {"containers": self.containers}}}}


def test_a_variable_is_given_changed_and_taken_back() -> None:
    server = Server()
    before = server.containers
    for value in ("a", "b"):
        server.set_agents_variables({"PYTHONPATH": {"value": value}})
        (agent, other) = server.containers
        assert agent["env"] == [OWN, {"name": "PYTHONPATH", "value": value}]
        assert other == {"name": "other"}
    server.set_agents_variables({"PYTHONPATH": None})
    assert server.containers == before


def test_a_variable_that_was_there_is_given_back_as_it_was() -> None:
    server = Server()
    server.containers[0]["env"] = [OWN, {"name": "LAST", "value": "z"}]
    before = server.containers
    had = server.agents_variables("OWN", "NEW")
    server.set_agents_variables({"OWN": {"value": "ours"}, "NEW": {"value": "ours"}})
    assert [each["name"] for each in server.containers[0]["env"]] == ["OWN", "LAST", "NEW"]
    assert server.containers[0]["env"][0] == {"name": "OWN", "value": "ours"}
    server.set_agents_variables(had)
    assert server.containers == before

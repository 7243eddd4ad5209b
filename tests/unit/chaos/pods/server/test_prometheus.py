"""The autoscaler has at the end what it had before a Prometheus of ours."""

from pathlib import Path
from typing import Any

import pytest

from chaos.error import ChaosError
from chaos.pods.cluster import KubeCluster, Object, Variables
from chaos.pods.server.prometheus import Prometheus

OWN: Object = {"name": "ELASTICD_PROMETHEUS", "valueFrom": {"secretKeyRef": {"key": "url"}}}


class Cluster(KubeCluster):
    """A cluster in which a pod runs at once; its autoscaler reads a Prometheus already."""

    def __init__(self) -> None:
        self.variables: Variables = {"ELASTICD_PROMETHEUS": OWN, "OTHER": {"value": "x"}}
        self.changes = 0

    def create_pod(self, body: Object) -> None:
        pass

    def delete_pod(self, name: str, *, is_forced: bool = False) -> None:
        raise ChaosError("The API server refused it.")

    def pod_status(self, name: str) -> Object:
        container = {"containerID": "containerd://1"}
        return {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [container]}

    def agents_set(self) -> dict[str, Any]:
        agent = {"image": "x", "volumeMounts": []}
        return {"spec": {"template": {"spec": {"containers": [agent], "volumes": []}}}}

    def autoscaler_variables(self, *names: str) -> Variables:
        return {name: self.variables.get(name) for name in names}

    def set_autoscaler_variables(self, variables: Variables) -> None:
        self.changes += 1
        self.variables.update(variables)


def test_the_autoscaler_has_its_own_prometheus_back(tmp_path: Path) -> None:
    cluster = Cluster()
    server = Prometheus(cluster, "chaos-1", tmp_path, Path("/inside"))
    server.start(load=3)
    assert cluster.variables["ELASTICD_PROMETHEUS"] == {"value": "http://10.0.0.1:9090"}
    assert cluster.variables["ELASTICD_PERIOD"] == {"value": "1s"}
    server.close()
    assert cluster.variables["ELASTICD_PROMETHEUS"] == OWN
    assert cluster.variables["ELASTICD_PERIOD"] is None


def test_an_autoscaler_that_was_given_nothing_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    server = Prometheus(cluster, "chaos-1", tmp_path, Path("/inside"))

    def refuse(body: Object) -> None:
        raise ChaosError("There is no room for a pod.")

    monkeypatch.setattr(cluster, "create_pod", refuse)
    with pytest.raises(ChaosError, match="no room"):
        server.start(load=3)
    server.close()
    assert cluster.changes == 0

"""The agents are rolled to the version before and back, as often as a scenario says."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.plan.fault import Kind
from chaos.pods.active_fault import ActiveFaults
from chaos.pods.cluster import KubeCluster, Variables
from chaos.pods.server.server_fault import ServerFaults
from chaos.pods.site import PodSite


class Cluster(KubeCluster):
    """A cluster that keeps its agents' PYTHONPATH only."""

    def __init__(self) -> None:
        self.own: dict[str, Any] = {"value": "/own"}
        self.path: Any = self.own

    def agents_variables(self, *names: str) -> Variables:
        return dict.fromkeys(names, self.path)

    def set_agents_variables(self, variables: Variables) -> None:
        self.path = variables.get("PYTHONPATH", self.path)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def faults(cluster: Cluster, tmp_path: Path) -> ServerFaults:
    site = SimpleNamespace(
        cluster=cluster,
        nodes=[],
        records=tmp_path,
        records_inside=Path("/inside"),
        scenario=SimpleNamespace(site=SimpleNamespace(version_before="HEAD")),
    )
    return ServerFaults(cast("PodSite", site), ActiveFaults())


@pytest.mark.history
def test_each_second_roll_leads_back(faults: ServerFaults, cluster: Cluster) -> None:
    for expected in ("/inside/before:/inside/before/agent", "/own") * 2:
        blow = faults.aim(Kind.AGENT_OTHER_VERSION, 0)
        assert blow is not None
        blow.strike()
        assert cluster.path == {"value": expected}


@pytest.mark.history
def test_a_roll_that_is_only_aimed_changes_nothing(faults: ServerFaults, cluster: Cluster) -> None:
    for words in ("to HEAD", "back"):
        faults.aim(Kind.AGENT_OTHER_VERSION, 0)
        blow = faults.aim(Kind.AGENT_OTHER_VERSION, 0)
        assert blow is not None and words in blow.victim
        blow.strike()
    assert cluster.path is cluster.own

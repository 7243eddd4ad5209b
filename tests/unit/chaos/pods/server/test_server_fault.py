"""The agents are rolled to the version before and back; a wish for another size lasts until it is
obeyed.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.history.records import Entered, to_line
from chaos.history.tail import Tail
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
        self.size = 3

    def agents_variables(self, *names: str) -> Variables:
        return dict.fromkeys(names, self.path)

    def set_agents_variables(self, variables: Variables) -> None:
        self.path = variables.get("PYTHONPATH", self.path)

    def scale_job(self, name: str, nodes: int) -> None:
        self.size = nodes


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def faults(cluster: Cluster, tmp_path: Path) -> ServerFaults:
    site = SimpleNamespace(
        cluster=cluster,
        nodes=[SimpleNamespace(is_ending=False) for _ in range(3)],
        name="job",
        prometheus=SimpleNamespace(order=lambda words: setattr(cluster, "size", int(words[-1]))),
        records=tmp_path,
        records_inside=Path("/inside"),
        scenario=SimpleNamespace(site=SimpleNamespace(version_before="HEAD")),
    )
    return ServerFaults(cast("PodSite", site), ActiveFaults())


@pytest.fixture
def tail(tmp_path: Path) -> Tail:
    return Tail(tmp_path / "ranks.jsonl", full_size=3)


@pytest.mark.history
def test_each_second_roll_leads_back(faults: ServerFaults, cluster: Cluster, tail: Tail) -> None:
    for expected in ("/inside/before:/inside/before/agent", "/own") * 2:
        blow = faults.aim(Kind.AGENT_OTHER_VERSION, 0, tail)
        assert blow is not None
        blow.strike()
        assert cluster.path == {"value": expected}


@pytest.mark.history
def test_a_roll_that_is_only_aimed_changes_nothing(
    faults: ServerFaults, cluster: Cluster, tail: Tail
) -> None:
    for words in ("to HEAD", "back"):
        faults.aim(Kind.AGENT_OTHER_VERSION, 0, tail)
        blow = faults.aim(Kind.AGENT_OTHER_VERSION, 0, tail)
        assert blow is not None and words in blow.victim
        blow.strike()
    assert cluster.path is cluster.own


@pytest.mark.parametrize("kind", [Kind.JOB_SCALE, Kind.PROMETHEUS_FEWER])
def test_wish_for_fewer_nodes_lasts_until_the_next_world(
    faults: ServerFaults, cluster: Cluster, tail: Tail, tmp_path: Path, kind: Kind
) -> None:
    """One that is taken back before an operator or an autoscaler has acted would be no fault."""
    enter(tmp_path, tail, generation=1)
    blow = faults.aim(kind, 0, tail)
    assert blow is not None and blow.undo is not None
    blow.strike()
    assert cluster.size == 2 and not blow.is_undone()
    enter(tmp_path, tail, generation=2)
    assert blow.is_undone()
    blow.undo()
    assert cluster.size == 3


def enter(folder: Path, tail: Tail, *, generation: int) -> None:
    """Have a rank write that it has entered a world."""
    entered = Entered(
        at_s=0.0,
        pid=1,
        node="node1",
        generation=generation,
        rank=0,
        size=3,
        step=0,
        epoch=0,
        digest="",
    )
    with (folder / "ranks.jsonl").open("a") as file:
        file.write(to_line(entered))
    tail.read()

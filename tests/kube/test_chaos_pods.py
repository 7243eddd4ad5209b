"""Faults of pods, nodes and kubelets while a job trains, each judged by what its ranks wrote."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.plan.scenario import load
from chaos.run import run
from chaos.verdict.report import to_text
from tests.kube.elastic_cluster import ElasticCluster
from tests.kube.testbed.cluster import Cluster

pytestmark = pytest.mark.timeout(600)
LONG = frozenset({"kube-soak"})
"""They are to have faults for four minutes, and as long without any."""

FOLDER = Path(__file__).parents[2] / "chaos" / "scenarios"
BY_COMMAND = frozenset({"kube-soak-hour"})
"""`python -m chaos run` plays them; a test would have them for an hour."""
SCENARIOS = sorted({path.stem for path in FOLDER.glob("kube-*.toml")} - BY_COMMAND)
SEED = 1


@pytest.fixture(scope="module")
def elastic(kube_cluster: Cluster, is_cluster_kept: bool) -> Iterator[ElasticCluster]:
    """What is there already is used, and left running as it was."""
    elastic = ElasticCluster(kube_cluster, runs=kube_cluster.folder / "runs")
    was_up = elastic.is_up()
    elastic.up()
    yield elastic
    if was_up:
        ElasticCluster(kube_cluster).up()
    elif is_cluster_kept:  # These tests are the last: else the whole cluster goes now.
        elastic.down()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.timeout(1500)) if name in LONG else name
        for name in SCENARIOS
    ],
)
def test_every_rule_holds_in_pods(
    name: str, elastic: ElasticCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is left in the cluster: no job, no Service, no cordon."""
    monkeypatch.setenv("KUBECONFIG", str(elastic.cluster.api.kubeconfig))
    elastic.renew_agents()
    said: list[str] = []
    report = run(load(FOLDER / f"{name}.toml"), seed=SEED, say=said.append, keep=tmp_path / "kept")
    assert report["holds"], "\n".join([*said, to_text(report)])
    assert elastic.kubectl("get", "ej", "--all-namespaces", "-o", "name") == ""
    assert "chaos" not in elastic.ours("get", "services", "-o", "name")
    nodes = json.loads(elastic.kubectl("get", "nodes", "-o", "json"))["items"]
    assert not any(node["spec"].get("unschedulable") for node in nodes)

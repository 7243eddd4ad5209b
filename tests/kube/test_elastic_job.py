"""elasticd on a cluster as a user has it: jobs train, while pods, nodes and sizes change."""

import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kube.elastic_cluster import Commit, ElasticCluster, limit
from tests.kube.testbed.cluster import NODES, Cluster
from tests.kube.testbed.daemon import wait_until

pytestmark = pytest.mark.timeout(400)

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "elasticjob.yaml"
LONG = 100_000
"""Steps of a job that a test deletes."""


@pytest.fixture(scope="module")
def elastic(kube_cluster: Cluster) -> Iterator[ElasticCluster]:
    """What is there already is used, and left running."""
    elastic = ElasticCluster(kube_cluster)
    was_up = elastic.is_up()
    elastic.up()
    yield elastic
    if not was_up:
        elastic.down()


@pytest.fixture(autouse=True)
def leave_nothing(elastic: ElasticCluster) -> Iterator[None]:
    """A job that stays would keep the next one from its nodes, and so would a cordon."""
    yield
    elastic.kubectl("uncordon", *NODES)
    elastic.kubectl("delete", "ej", "--all", limit(60))


def lost_steps(changes: Sequence[Mapping[str, Any]]) -> int:
    return sum(int(change["lost_steps"]) for change in changes)


def first_and_another(commits: Sequence[Commit]) -> tuple[str, str]:
    """Return a node that has trained since step 1, and one that may have joined later.

    A job of one node and more begins with those whose workers are ready.
    """
    first = commits[0].node
    return first, next(node for node in NODES if node != first)


def check_all_steps(commits: Sequence[Commit]) -> None:
    """See that one node went on step by step, and did none again.

    The commit with which a world ends does not return to the script, which writes no line for it.
    """
    assert commits[0].step == 1
    for sooner, later in itertools.pairwise(commits):
        most = 1 if later.generation == sooner.generation else 2
        assert 1 <= later.step - sooner.step <= most, f"{later} came after {sooner}"


def test_the_example_trains_to_its_end(elastic: ElasticCluster) -> None:
    """As the guide has it: apply, wait for Complete, look at events, output and what it cost."""
    elastic.kubectl("apply", "-f", str(EXAMPLE))
    elastic.wait_complete("line")
    header, row = elastic.kubectl("get", "elasticjobs", "line").splitlines()
    assert header.split()[:3] == ["NAME", "PHASE", "NODES"] and row.split()[1] == "Succeeded"
    told = elastic.kubectl("describe", "ej/line")
    assert "It is job default.line in etcd." in told and "first_world" in told
    assert elastic.status("line")["step"] == 300


def test_the_output_of_rank_0_is_shown(elastic: ElasticCluster) -> None:
    """By the command line in any agent's pod, wherever rank 0 was."""
    elastic.apply("output", steps=5)
    elastic.wait_complete("output")
    lines = elastic.elasticd("logs", "default.output", "--rank", "0").splitlines()
    assert [line.split()[-3] for line in lines if " C " in f" {line}"] == [*"12345"]


def test_the_output_of_rank_0_is_in_the_log_of_its_pod(elastic: ElasticCluster) -> None:
    """`kubectl logs` has it beside the agent's own log, and what another rank prints nowhere."""
    elastic.apply("shown", steps=5)
    elastic.wait_complete("shown")
    mark = "[default.shown rank"

    def is_shown() -> bool:
        logs = [elastic.ours("logs", elastic.agent(node)) for node in NODES]
        lines = [line for log in logs for line in log.splitlines() if line.startswith(mark)]
        assert all(line.startswith(f"{mark}0] ") for line in lines), lines
        return [line.split()[3] for line in lines if line.split()[2] == "C"] == [*"12345"]

    wait_until(is_shown, "a pod's log has all steps of rank 0", 30.0)


def test_an_agents_pod_that_is_deleted_by_force_costs_no_step(elastic: ElasticCluster) -> None:
    """The survivors go on, and the pod that replaces it trains with them again."""
    elastic.apply("deleted", steps=LONG)
    kept, left = first_and_another(elastic.wait_trains("deleted", nodes=3))
    lost = elastic.agent(left)
    at_s = time.monotonic()
    elastic.ours("delete", "pod", lost, "--grace-period=0", "--force")
    elastic.wait_trains("deleted", nodes=2, after_s=at_s)
    assert elastic.agent(left) != lost
    after = elastic.wait_trains("deleted", nodes=3, after_s=at_s)
    assert lost_steps(elastic.changes("deleted")) == 0
    check_all_steps([each for each in after if each.node == kept])


def test_a_node_that_is_drained_leaves_without_a_lost_step(elastic: ElasticCluster) -> None:
    """`kubectl drain` passes over the agents' pods: the operator drains the node for elasticd."""
    elastic.apply("drained", steps=LONG)
    kept, left = first_and_another(elastic.wait_trains("drained", nodes=3))
    at_s = time.monotonic()
    elastic.kubectl(*("drain", left, "--ignore-daemonsets", "--delete-emptydir-data", limit(60)))
    elastic.wait_trains("drained", nodes=2, after_s=at_s)
    assert "draining" in elastic.elasticd("nodes")
    elastic.kubectl("uncordon", left)
    after = elastic.wait_trains("drained", nodes=3, after_s=time.monotonic())
    changes = elastic.changes("drained")
    assert lost_steps(changes) == 0 and "drained" in {each["reason"] for each in changes}
    check_all_steps([each for each in after if each.node == kept])


def test_scale_changes_the_size_of_a_job_that_trains(elastic: ElasticCluster) -> None:
    """Down and up again, at steps that all agree on."""
    elastic.apply("scaled", steps=LONG)
    elastic.wait_trains("scaled", nodes=3)

    def says(nodes: int) -> bool:
        return bool(elastic.status("scaled").get("nodes") == nodes)

    for replicas in (2, 3):
        at_s = time.monotonic()
        elastic.kubectl("scale", "elasticjob/scaled", f"--replicas={replicas}")
        elastic.wait_trains("scaled", nodes=replicas, after_s=at_s)
        wait_until(partial(says, replicas), f"the status says {replicas} nodes", 30.0)
    assert lost_steps(elastic.changes("scaled")) == 0
    scale = elastic.kubectl("get", "ej/scaled", "-o", "json")
    assert json.loads(scale)["status"]["size"] == "3/3"


def test_a_deleted_job_is_gone_from_the_nodes(elastic: ElasticCluster) -> None:
    """`kubectl delete` returns when no node serves the job any more."""
    elastic.apply("ended", steps=LONG)
    elastic.wait_trains("ended", nodes=3)
    elastic.kubectl("delete", "ej/ended", limit(60))
    at_s = time.monotonic()
    report = json.loads(elastic.elasticd("status", "default.ended", "--json"))
    assert report["status"]["phase"] == "stopped"
    assert {each.at_s > at_s for each in elastic.commits("ended")} == {False}
    assert set(NODES) == {each.node for each in elastic.commits("ended")}

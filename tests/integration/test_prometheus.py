"""A real Prometheus looks at a job that fails and recovers, with what deploy/monitoring ships.

It finds the agents through `/sd` of each of them and scrapes them every second. What its rules
find, a real Alertmanager hands on; their limits of time are seconds here.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from elasticd.autoscale.metrics import AutoscalerCounts
from elasticd.control.report.report import read_job
from elasticd.records.autoscale.decision import Rule
from elasticd.records.autoscale.held import HoldReason
from elasticd.store.etcd.channel import rpc_pb2
from tests.fixtures.alertmanager import Alertmanager, alertmanager_on
from tests.fixtures.applied import play
from tests.fixtures.cluster import Cluster, Job, cluster_on, until
from tests.fixtures.etcd import EtcdAdmin
from tests.fixtures.exporter import exporter
from tests.fixtures.prometheus import Prometheus, dashboard_queries, prometheus_on
from tests.fixtures.saved_runs import bring_back, take_away

NAME = "seen"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("prometheus")) as cluster:
        for node in ("a", "b"):
            cluster.daemon(node)
        yield cluster


@pytest.fixture(scope="module")
def alertmanager(cluster: Cluster) -> Iterator[Alertmanager]:
    with alertmanager_on(cluster.folder / "alertmanager") as alertmanager:
        yield alertmanager


@pytest.fixture(scope="module")
def counts() -> AutoscalerCounts:
    """Of an autoscaler, whose panels have their answers as well."""
    counts = AutoscalerCounts()
    counts.leads(True)
    return counts


@pytest.fixture(scope="module")
def prometheus(
    cluster: Cluster, alertmanager: Alertmanager, counts: AutoscalerCounts
) -> Iterator[Prometheus]:
    nodes = [daemon.wait_registered() for daemon in cluster.daemons.values()]
    urls = [f"http://127.0.0.1:{node.http_port}/sd" for node in nodes]
    folder = cluster.folder / "prometheus"
    with (
        exporter("autoscaler", counts.exposition) as autoscaler,
        prometheus_on(
            folder, *urls, autoscaler.sd_url, alertmanager=alertmanager.address
        ) as prometheus,
    ):
        yield prometheus


@pytest.fixture(scope="module")
def job(cluster: Cluster, prometheus: Prometheus) -> Job:
    """One that has lost a worker while Prometheus looked on."""
    checkpoint = ("--checkpoint", str(cluster.folder / "saved"), "--checkpoint-every", "1s")
    job = cluster.submit(NAME, "--nnodes", "2", *checkpoint, script="steady.py")
    generation = job.wait_steady(2)
    seen = f'elasticd_changes_total{{job_name="{NAME}", reason="worker_killed"}} == 0'
    until(lambda: len(prometheus.value(seen)) == 2, lambda: prometheus.value("up"))
    os.kill(job.wait_pid(generation, 1), signal.SIGKILL)
    job.wait_step(size=2, after=generation)
    return job


def test_every_query_of_every_panel_has_an_answer(
    prometheus: Prometheus, job: Job, counts: AutoscalerCounts
) -> None:
    """With its variables filled in, from one run with one failure."""
    left = dashboard_queries(job.name)

    def are_answered() -> bool:
        counts.decided(Rule.TARGET, 1, 2)
        counts.held(HoldReason.PINNED)
        counts.evaluated(0.01)
        left[:] = [query for query in left if not prometheus.value(query.expr)]
        return not left

    until(are_answered, lambda: left)


def test_each_agent_is_a_target_by_its_nodes_name(prometheus: Prometheus, job: Job) -> None:
    """And nothing of what it says was renamed or refused."""

    def targets() -> tuple[dict[str, float], list[str]]:
        """On a busy machine one scrape or another comes too late."""
        up = {labels["instance"]: value for labels, value in prometheus.value("up")}
        active = prometheus.ask("/api/v1/targets")["activeTargets"]
        return up, [target["lastError"] for target in active]

    # Two lists of agents are one.
    until(lambda: targets() == ({"a": 1.0, "b": 1.0, "autoscaler": 1.0}, [""] * 3), targets)
    assert prometheus.value('{exported_job!=""}') == []


def test_sum_over_nodes_counts_each_event_once(
    cluster: Cluster, prometheus: Prometheus, job: Job
) -> None:
    """Both nodes show the counters, that of rank 0 counts: as many as etcd has records of."""
    whole = f'sum by (reason) (elasticd_changes_total{{job_name="{job.name}"}}) > 0'

    def told() -> Counter[str]:
        report = read_job(cluster.store, cluster.keys, job.name)
        assert report is not None
        return Counter(change.reason.value for change in report.changes)

    def found() -> dict[str, float]:
        return {labels["reason"]: value for labels, value in prometheus.value(whole)}

    assert told()["worker_killed"] >= 1
    until(lambda: found() == told(), lambda: f"{found()}, not {told()}")

    def of_the_job() -> tuple[list[str], int]:
        phases = prometheus.value(f'elasticd_job_phase{{job_name="{job.name}"}} == 1')
        return [labels["phase"] for labels, _ in phases], len(prometheus.value("elasticd_workers"))

    until(lambda: of_the_job() == (["running"], 1), of_the_job)


def test_alerts_arrive_of_real_faults(
    cluster: Cluster, alertmanager: Alertmanager, prometheus: Prometheus, job: Job
) -> None:
    """Storage that is away, a node that all others wait for, a loss that is NaN, workers that die,
    an etcd that is full, a node that is lost and a job that waits for it: each is told, with the
    page that says what to do."""
    saved, away = cluster.folder / "saved", cluster.folder / "away"
    until(saved.is_dir, lambda: "nothing was saved yet")
    take_away(saved, away)
    slow = job.end_file.with_name(f"{job.end_file.name}.slow-1")
    slow.touch()
    alertmanager.wait_for("ElasticdLateNode")
    assert alertmanager.arrived["ElasticdLateNode"]["labels"]["job_name"] == NAME
    slow.unlink()
    play(job, 0, "nan")
    # Only then: the step in whose middle a worker dies is undone, and the NaN with it.
    alertmanager.wait_for("ElasticdNumberNotFinite")
    for _ in range(2):
        lose_worker(job)
    admin = EtcdAdmin(cluster.endpoints[0])
    fill(admin, is_full=True)
    lose_worker(job, is_replaced=False)
    alertmanager.wait_for("ElasticdEtcdWritesRefused", "ElasticdRecoveriesPileUp")
    fill(admin, is_full=False)
    admin.close()
    alertmanager.wait_for("ElasticdCheckpointOld")
    bring_back(saved, away)
    job.wait_steady(2)
    lost = cluster.daemons["b" if job.node_of(0) == "a" else "a"]
    lost.kill_node()
    alertmanager.wait_for_one(alertname="ElasticdAgentGone", instance=lost.node)
    alertmanager.wait_for("ElasticdJobWaits")
    for name, alert in dict(alertmanager.arrived).items():  # More may arrive.
        assert alert["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"
    lost.start()
    job.wait_steady(2)
    job.finish()
    over = f'elasticd_job_phase{{job_name="{job.name}", phase="succeeded"}} == 1'
    until(lambda: prometheus.value(over), lambda: "its end was not seen")


def lose_worker(job: Job, *, is_replaced: bool = True) -> None:
    """Kill the worker of rank 1, and wait for the world that has another one."""
    generation = job.wait_steady(2)
    os.kill(job.wait_pid(generation, 1), signal.SIGKILL)
    if is_replaced:
        job.wait_step(size=2, after=generation)


def fill(admin: EtcdAdmin, *, is_full: bool) -> None:
    """Raise or end the alarm of an etcd whose space is used up: it takes no write meanwhile."""
    action = rpc_pb2.AlarmRequest.ACTIVATE if is_full else rpc_pb2.AlarmRequest.DEACTIVATE
    admin.maintenance.Alarm(rpc_pb2.AlarmRequest(action=action, alarm=rpc_pb2.NOSPACE))

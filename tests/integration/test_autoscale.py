"""An autoscaler sizes real jobs by a real Prometheus and by what they measure themselves.

Three agents with two slots each, two autoscalers of which one leads, and two jobs at once: one with
a throughput to keep, one whose steps take as long on any number of nodes.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from elasticd.control.report import JobReport, read_job
from elasticd.records.autoscale.decision import Decision, Outcome, Rule
from elasticd.records.autoscale.leader import Leader
from elasticd.records.codec import decode
from elasticd.records.reason import Phase
from tests.fixtures.applied import assert_none_done_again, whole_output
from tests.fixtures.cluster import ELASTICD, SCRIPTS, Cluster, Job, cluster_on, until
from tests.fixtures.prometheus import Prometheus, prometheus_on

pytestmark = pytest.mark.timeout(240.0)
"""All of what the tests here share is made in the first one."""

SMALL = """
max_nodes = 1
window = "4s"
cooldown = "1s"

[goodput]
"""
"""Begins on one node, however many there are."""
THROUGHPUT = """
window = "4s"
cooldown = "1s"

[[target.metrics]]
name = "steps per second"
query = 'sum(rate(elasticd_steps_total{job_name="$job"}[$window]))'
supply = 10
max_age = "4s"

[target.scale_down]
stabilization = "1s"
"""
GROW = """
window = "4s"
cooldown = "1s"
max_step = 1

[goodput]
probe = "4s"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the tests of this module share."""

    cluster: Cluster
    prometheus: Prometheus
    autoscalers: list["subprocess.Popen[bytes]"]
    throughput: Job
    goodput: Job

    def report(self, job: Job) -> JobReport:
        report = read_job(self.cluster.store, self.cluster.keys, job.name)
        assert report is not None
        return report

    def decisions(self, job: Job) -> tuple[Decision, ...]:
        found = self.report(job).autoscaling
        return found.decisions if found is not None else ()

    def held(self, job: Job) -> str:
        found = self.report(job).autoscaling
        return found.memory.held if found is not None and found.memory is not None else ""

    def set(self, job: Job, policy: str) -> None:
        path = self.cluster.folder / f"{job.name}.toml"
        path.write_text(policy)
        ended = self.cluster.run("autoscale", "set", job.name, str(path))
        assert ended.code == 0, ended.err

    def wait_nodes(self, job: Job, nodes: int) -> None:
        until(
            lambda: is_on(job, nodes) and self.report(job).target_nodes == nodes,
            lambda: f"not on {nodes}: {job.status}, held {self.held(job)}, {self.decisions(job)}",
        )

    @property
    def leader(self) -> "subprocess.Popen[bytes]":
        """The process of the autoscaler that leads, as its record says."""

        def find() -> "subprocess.Popen[bytes] | None":
            item = self.cluster.store.get(self.cluster.keys.autoscaler_election)
            if item is None:
                return None
            pid = int(decode(Leader, item.value).name.rpartition(":")[2])
            return next((each for each in self.autoscalers if each.pid == pid), None)

        return until(find, lambda: "nobody leads")


def is_on(job: Job, nodes: int) -> bool:
    world = job.world
    return world is not None and len(world.nodes) == nodes and job.status.phase is Phase.RUNNING


def speed(job: Job, shape: str) -> None:
    path = job.end_file.with_name(f"{job.end_file.name}.speed")
    partial = path.with_suffix(".partial")
    partial.write_text(shape)
    partial.rename(path)


def started(cluster: Cluster, prometheus: Prometheus, number: int) -> "subprocess.Popen[bytes]":
    command = [*ELASTICD, "autoscale", "run", "--log-json", "--etcd", ",".join(cluster.endpoints)]
    command += ["--prometheus", prometheus.url, "--period", "0.5s", "--lease-ttl", "2s"]
    command += ["--listen", "127.0.0.1:0"]
    with (cluster.folder / f"autoscaler-{number}.log").open("wb") as log:
        return subprocess.Popen(
            command,
            env=cluster.mark.environ(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with cluster_on(tmp_path_factory.mktemp("autoscale")) as cluster:
        for node in "abc":
            cluster.daemon(node, slots=2)
        nodes = [daemon.wait_registered() for daemon in cluster.daemons.values()]
        urls = [f"http://127.0.0.1:{node.http_port}/sd" for node in nodes]
        with prometheus_on(cluster.folder / "prometheus", *urls) as prometheus:
            autoscalers = [started(cluster, prometheus, number) for number in range(2)]
            small = cluster.folder / "small.toml"
            small.write_text(SMALL)
            jobs = []
            for name, most, shape in (("throughput", 3, "linear 0.25"), ("goodput", 2, "flat 0.1")):
                speed(Job(cluster, name), shape)
                flags = ("--nnodes", f"1:{most}", "--autoscale", str(small))
                jobs.append(cluster.submit(name, *flags, script="scaled.py"))
            scene = Scene(
                cluster=cluster,
                prometheus=prometheus,
                autoscalers=autoscalers,
                throughput=jobs[0],
                goodput=jobs[1],
            )
            try:
                for job, policy in ((scene.throughput, THROUGHPUT), (scene.goodput, GROW)):
                    scene.wait_nodes(job, 1)
                    scene.set(job, policy)
                yield scene
            finally:
                for autoscaler in autoscalers:
                    autoscaler.send_signal(signal.SIGTERM)
                codes = [autoscaler.wait(60.0) for autoscaler in autoscalers]
            assert set(codes) <= {-signal.SIGKILL, 0}, codes


def test_a_job_follows_its_throughput_through_faults(scene: Scene) -> None:
    """It grows to three nodes for what it lacks. While Prometheus is away, and when the leader is
    killed meanwhile, it keeps its size although it needs less; then it shrinks. No step is lost."""
    job = scene.throughput
    scene.wait_nodes(job, 3)
    scene.prometheus.kill()
    speed(job, "linear 0.04")
    until(lambda: scene.held(job) == "unreachable", lambda: scene.held(job))
    killed = scene.leader
    before = len(scene.decisions(job))
    killed.kill()
    killed.wait()
    until(lambda: scene.leader is not killed, lambda: "nobody stands by")
    steps = scene.report(job).step
    until(lambda: scene.report(job).step > steps + 100, lambda: "no steps")
    # The next leader measures this generation anew, and then misses Prometheus as well.
    until(lambda: scene.held(job) == "unreachable", lambda: scene.held(job))
    assert is_on(job, 3) and len(scene.decisions(job)) == before
    scene.prometheus.start()
    scene.wait_nodes(job, 1)
    shrunk = scene.decisions(job)[before]
    assert (shrunk.rule, shrunk.from_nodes) == (Rule.TARGET, 3)
    assert job.finish().phase is Phase.SUCCEEDED
    assert_none_done_again(scene.cluster.runs, job.name, since=1)
    assert_losses_are_undisturbed(scene.cluster.runs, job)


def test_a_size_that_brings_nothing_is_tried_and_taken_back(scene: Scene) -> None:
    """One more node promises more; two windows say that it brought nothing."""
    job = scene.goodput

    def decisions() -> tuple[Decision, ...]:
        """All of them, once it is known that what was taken back was right to be."""
        found = scene.decisions(job)
        is_known = any(
            each.rule is Rule.TAKE_BACK and each.outcome is Outcome.KEPT for each in found
        )
        return found if is_known else ()

    limited, tried, back = until(decisions, lambda: scene.decisions(job))[:3]
    assert (limited.rule, limited.to_nodes) == (Rule.LIMITS, 1)
    assert (tried.rule, tried.from_nodes, tried.to_nodes) == (Rule.GOODPUT, 1, 2)
    assert tried.outcome is Outcome.TAKEN_BACK
    assert tried.got_steps_per_s - tried.was_steps_per_s < 0.5 * tried.was_steps_per_s
    assert (back.rule, back.from_nodes, back.to_nodes) == (Rule.TAKE_BACK, 2, 1)
    explained = scene.cluster.run("autoscale", "explain", job.name)
    assert explained.code == 0 and "taken back" in explained.out, explained.out
    assert job.finish().phase is Phase.SUCCEEDED
    assert_none_done_again(scene.cluster.runs, job.name, since=1)


def assert_losses_are_undisturbed(runs: Path, job: Job) -> None:
    """Compare with the same training in one process that nobody disturbs."""
    found = losses(whole_output(runs, job.name))
    alone = job.end_file.with_name("alone.end")
    alone.with_name(f"{alone.name}.speed").write_text("flat 0")
    ended = subprocess.run(
        [sys.executable, str(SCRIPTS / "scaled.py"), str(alone), str(len(found))],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = losses(ended.stdout)
    assert sorted(found) == sorted(expected)
    assert found == pytest.approx(expected, rel=1e-9)


def losses(output: str) -> dict[int, float]:
    lines = (line.split() for line in output.splitlines() if line.startswith("L "))
    return {int(step): float(loss) for _, step, loss in lines}

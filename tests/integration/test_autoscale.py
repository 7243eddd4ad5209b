"""An autoscaler sizes real jobs by a real Prometheus and by what they measure themselves.

Three agents with two slots each, two autoscalers of which one leads, and two jobs at once: one with
a throughput to keep, one whose steps take as long on any number of nodes.
"""

import time
from collections.abc import Iterator

import pytest

from elasticd.records.autoscale.decision import Decision, DecisionOutcome, Rule
from elasticd.records.reason import Phase
from tests.fixtures.applied import assert_none_done_again
from tests.fixtures.cluster import until
from tests.fixtures.sized_cluster import Scene, SizedJob, is_on, sized_cluster, speed
from tests.fixtures.undisturbed import assert_losses_are_undisturbed

pytestmark = pytest.mark.timeout(240.0)
"""All of what the tests here share is made in the first one."""

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


JOBS = {
    "throughput": SizedJob(most=3, shape="linear 0.25", policy=THROUGHPUT),
    "goodput": SizedJob(most=2, shape="flat 0.1", policy=GROW),
}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with sized_cluster(tmp_path_factory.mktemp("autoscale"), JOBS, autoscalers=2) as scene:
        yield scene


def test_a_job_follows_its_throughput_through_faults(scene: Scene) -> None:
    """It grows to three nodes for what it lacks. While Prometheus is away, and when the leader is
    killed meanwhile, it keeps its size although it needs less; then it shrinks. No step is lost."""
    job = scene.jobs["throughput"]
    scene.wait_nodes(job, 3)
    scene.prometheus.kill()
    speed(job, "linear 0.04")
    until(lambda: scene.held(job) == "unreachable", lambda: scene.held(job))
    killed = scene.leader
    before = len(scene.decisions(job))
    killed.kill()
    killed.wait()
    until(lambda: scene.leader is not killed, lambda: "nobody stands by")
    job.wait_step(size=3, since_s=time.monotonic())
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
    job = scene.jobs["goodput"]

    def decisions() -> tuple[Decision, ...]:
        """All of them, once it is known that what was taken back was right to be."""
        found = scene.decisions(job)
        is_known = any(
            each.rule is Rule.TAKE_BACK and each.outcome is DecisionOutcome.KEPT for each in found
        )
        return found if is_known else ()

    limited, tried, back = until(decisions, lambda: scene.decisions(job))[:3]
    assert (limited.rule, limited.to_nodes) == (Rule.LIMITS, 1)
    assert (tried.rule, tried.from_nodes, tried.to_nodes) == (Rule.GOODPUT, 1, 2)
    assert tried.outcome is DecisionOutcome.TAKEN_BACK
    assert tried.got_steps_per_s - tried.was_steps_per_s < 0.5 * tried.was_steps_per_s
    assert (back.rule, back.from_nodes, back.to_nodes) == (Rule.TAKE_BACK, 2, 1)
    explained = scene.cluster.run("autoscale", "explain", job.name)
    assert explained.code == 0 and "taken back" in explained.out, explained.out
    assert job.finish().phase is Phase.SUCCEEDED
    assert_none_done_again(scene.cluster.runs, job.name, since=1)

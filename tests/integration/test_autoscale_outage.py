"""A minute without Prometheus, an idle job and a budget in money, all on real jobs at once."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.records.autoscale.decision import Rule
from elasticd.records.reason import Phase
from tests.fixtures.applied import assert_none_done_again
from tests.fixtures.cluster import until
from tests.fixtures.exporter import Exporter, exporter
from tests.fixtures.sized_cluster import Scene, SizedJob, is_on, sized_cluster, speed
from tests.fixtures.undisturbed import assert_losses_are_undisturbed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600.0)]

OUTAGE_S = 60.0
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

[idle]
after = "2s"
"""
IDLE = """
window = "4s"
cooldown = "1s"

[idle]
after = "2s"
"""
MONEY = """
window = "4s"
cooldown = "1s"

[budget]
steps = 100000
cost = 15
price = "max(price)"
"""
JOBS = {
    "throughput": SizedJob(most=3, shape="linear 0.25", policy=THROUGHPUT),
    "idle": SizedJob(most=3, shape="flat 0.1", policy="", first_policy=IDLE),
    "money": SizedJob(most=3, shape="flat 0.1", policy="", first_policy=MONEY),
}


@pytest.fixture(scope="module")
def market() -> Iterator[Exporter]:
    with exporter("market") as market:
        market.lines = ["price 1"]
        yield market


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, market: Exporter) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("outage")
    with sized_cluster(folder, JOBS, market.sd_url, autoscalers=2) as scene:
        yield scene


def test_nodes_that_become_dear_are_given_back(scene: Scene, market: Exporter) -> None:
    """A node costs four times as much: the rest is paid for on one; then as before on three."""
    job = scene.jobs["money"]
    scene.wait_nodes(job, 3)
    market.lines = ["price 4"]
    scene.wait_nodes(job, 1)
    shrunk = scene.decisions(job)[-1]
    assert (shrunk.rule, shrunk.inputs["metric price"]) == (Rule.BUDGET, 4.0)


def test_a_minute_without_prometheus_changes_no_size_that_rests_on_it(
    scene: Scene, market: Exporter
) -> None:
    """What asks Prometheus is held for as long; a job that waits for data, and whose policy names
    no metric, gives its nodes back all the same, and one that is paused does not: it could only at
    the first step after its pause. The leader is killed meanwhile, and the next one holds the
    same. Then everybody follows what has changed, and the job has lost no step and has the losses
    of a training without all this."""
    job, money, idle = (scene.jobs[name] for name in ("throughput", "money", "idle"))
    scene.wait_nodes(job, 3)
    scene.wait_nodes(money, 1)
    # Both have been measured for a whole window: a paused job would never be.
    until(lambda: not scene.held(job) and not scene.held(money), lambda: scene.held(job))
    speed(job, "pause")
    until(lambda: all(each.is_paused for each in job.members.values()), lambda: job.members)
    scene.prometheus.kill()
    killed_s = time.monotonic()
    market.lines = ["price 1"]
    until(lambda: scene.held(job) == scene.held(money) == "unreachable", lambda: scene.held(job))
    assert "is paused" in scene.said(job, "idle")
    before = len(scene.decisions(job)), len(scene.decisions(money))
    speed(idle, "data 2")
    scene.wait_nodes(idle, 1)
    assert scene.decisions(idle)[-1].rule is Rule.IDLE
    speed(idle, "flat 0.1")
    scene.wait_nodes(idle, 3)
    killed = scene.leader
    killed.kill()
    killed.wait()
    until(lambda: scene.leader is not killed, lambda: "nobody stands by")
    speed(job, "linear 0.04")
    job.wait_step(size=3, since_s=killed_s + OUTAGE_S)
    money.wait_step(size=1, since_s=killed_s + OUTAGE_S)
    assert is_on(job, 3) and is_on(money, 1)
    assert (len(scene.decisions(job)), len(scene.decisions(money))) == before
    # The next leader says so once it has watched a whole window by itself.
    until(lambda: scene.held(job) == scene.held(money) == "unreachable", lambda: scene.held(job))
    assert (len(scene.decisions(job)), len(scene.decisions(money))) == before
    scene.prometheus.start()
    scene.wait_nodes(job, 1)
    scene.wait_nodes(money, 3)
    assert job.finish().phase is Phase.SUCCEEDED
    assert_none_done_again(scene.cluster.runs, job.name, since=1)
    assert_losses_are_undisturbed(scene.cluster.runs, job)


def test_no_step_was_lost_or_done_again(scene: Scene) -> None:
    """By all of these changes of size, in none of the jobs."""
    for job in scene.jobs.values():
        assert job.finish().phase is Phase.SUCCEEDED
        assert_none_done_again(scene.cluster.runs, job.name, since=1)


def test_what_prometheus_kept_of_them_is_simulated(scene: Scene, tmp_path: Path) -> None:
    """Of jobs that are over, with the minute of which nothing is known."""
    policy = tmp_path / "other.toml"
    policy.write_text(THROUGHPUT)
    url = scene.prometheus.url
    for job in ("throughput", "idle"):
        told = scene.cluster.run(
            "autoscale", "simulate", job, str(policy), "--prometheus", url, "--json"
        )
        assert told.code == 0, told.err
        plain = json.loads(told.out)
        assert plain["would_be"]["steps"] > 0
        assert plain["notes"] and not any("left out" in note for note in plain["notes"])

"""Changes that are planned cost no step; a death costs one process, and nothing of its neighbours.

One job lives through the whole module, from one steady world to the next. Its processes write down
each step that their optimizers do.
"""

import os
import signal
from collections.abc import Iterator

import pytest

from elasticd.records.account.incident import Incident
from elasticd.records.codec import decode
from elasticd.records.reason import Reason
from tests.fixtures.applied import assert_none_done_again
from tests.fixtures.cluster import Cluster, Job, cluster_on

SLOTS = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("planned")) as cluster:
        cluster.daemon("a", slots=SLOTS)
        yield cluster


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> Iterator[Job]:
    job = cluster.submit(
        "planned", "--nnodes", "1:2", "--nproc-per-node", str(SLOTS), script="steady.py"
    )
    yield job
    assert job.finish().phase.value == "succeeded"
    training = next(iter(job.results.values())).training
    assert training is not None
    assert (training.repeated, training.skipped) == (0, 0)


def assert_lost_nothing(cluster: Cluster, job: Job, since: int, *, kept: set[int]) -> None:
    """From this generation on no step was done twice, nor one that was begun given up, and these
    processes are still there."""
    now = job.wait_steady(job.wait_step(size=size_of(job), after=since).size)
    assert now > since
    assert_none_done_again(cluster.runs, job.name, since)
    items = cluster.store.list(cluster.keys.incidents(job.name)).items
    incidents = [decode(Incident, item.value) for item in items]
    assert not [each for each in incidents if each.generation > since and each.lost_steps]
    assert kept <= set(job.log.pids(now).values())


def size_of(job: Job) -> int:
    world = job.world
    assert world is not None
    return world.size


def pids_on(job: Job, generation: int, node: str) -> set[int]:
    steps = [step for step in job.log.steps() if step.generation == generation]
    return {step.pid for step in steps if step.node == node}


def test_second_node_joins(cluster: Cluster, job: Job) -> None:
    generation = job.wait_steady(SLOTS)
    pids = set(job.log.pids(generation).values())
    cluster.daemon("b", slots=SLOTS)
    job.wait_step(size=2 * SLOTS, after=generation)
    assert_lost_nothing(cluster, job, generation, kept=pids)


def test_node_is_drained_and_comes_back(cluster: Cluster, job: Job) -> None:
    generation = job.wait_steady(2 * SLOTS)
    pids = pids_on(job, generation, "a")
    assert cluster.run("drain", "b").code == 0
    job.wait_step(size=SLOTS, after=generation)
    assert_lost_nothing(cluster, job, generation, kept=pids)
    smaller = job.wait_steady(SLOTS)
    assert cluster.run("drain", "b", "--undo").code == 0
    job.wait_step(size=2 * SLOTS, after=smaller)
    assert_lost_nothing(cluster, job, generation, kept=pids)


def test_job_is_scaled_down_and_up(cluster: Cluster, job: Job) -> None:
    generation = job.wait_steady(2 * SLOTS)
    assert cluster.run("scale", job.name, "1").code == 0
    job.wait_step(size=SLOTS, after=generation)
    smaller = job.wait_steady(SLOTS)
    assert_lost_nothing(cluster, job, generation, kept=set())
    pids = set(job.log.pids(smaller).values())
    assert cluster.run("scale", job.name, "2").code == 0
    job.wait_step(size=2 * SLOTS, after=smaller)
    assert_lost_nothing(cluster, job, generation, kept=pids)


def test_agent_that_gets_sigterm_leaves_in_good_order(cluster: Cluster, job: Job) -> None:
    """As a preempted machine's does; it comes back later."""
    generation = job.wait_steady(2 * SLOTS)
    pids = pids_on(job, generation, "a")
    assert cluster.daemons["b"].end() == 0
    cluster.daemons["b"].wait_gone()
    job.wait_step(size=SLOTS, after=generation)
    assert_lost_nothing(cluster, job, generation, kept=pids)
    cluster.daemons["b"].start()
    job.wait_step(size=2 * SLOTS, after=generation + 1)
    assert_lost_nothing(cluster, job, generation, kept=pids)


def test_other_workers_of_a_node_go_on_when_one_dies(cluster: Cluster, job: Job) -> None:
    """In their processes; only the one that died is replaced."""
    generation = job.wait_steady(2 * SLOTS)
    pids = job.log.pids(generation)
    victim = pids.pop(1)
    os.kill(victim, signal.SIGKILL)
    job.wait_step(size=2 * SLOTS - 1, after=generation)
    world = job.world
    assert world is not None
    assert world.reason in (Reason.WORKER_KILLED, Reason.JOINED)
    step = job.wait_step(size=2 * SLOTS, after=generation)
    now = set(job.log.pids(job.wait_steady(step.size)).values())
    assert set(pids.values()) <= now
    assert len(now) == 2 * SLOTS

"""Workers die; the job goes on with the same nodes.

One job of two nodes with two workers each lives through the whole module: each test takes it from
one steady world to the next.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from elasticd.records.reason import Reason
from tests.fixtures.cluster import Cluster, Job, cluster_on, until

SIZE = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("cluster")) as cluster:
        for node in ("a", "b"):
            cluster.daemon(node, slots=2)
        yield cluster


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> Iterator[Job]:
    job = cluster.submit("losses", "--nnodes", "2", "--nproc-per-node", "2")
    yield job
    assert job.finish().phase.value == "succeeded"


def kill(job: Job, generation: int, *ranks: int) -> None:
    pids = job.log.pids(generation)
    for rank in ranks:
        with suppress(ProcessLookupError):  # Ended already, because of those before it.
            os.kill(pids[rank], signal.SIGKILL)


@pytest.mark.parametrize("rank", range(SIZE))
def test_any_worker_may_be_killed(job: Job, rank: int) -> None:
    """Rank 0 as any other; the world names who was first."""
    generation = job.wait_steady(SIZE)
    with job.struck(generation, rank) as (pid,):
        os.kill(pid, signal.SIGKILL)
    job.wait_step(size=SIZE, after=generation)
    world = job.world
    assert world is not None
    assert world.reason is Reason.WORKER_KILLED
    assert world.culprit is not None
    assert (world.culprit.rank, world.culprit.signal) == (rank, "SIGKILL")
    assert world.lost == ()


@pytest.mark.parametrize("ranks", [(0, 1), (1, 2), (0, 1, 2, 3)])
def test_several_workers_may_die_at_once(job: Job, ranks: tuple[int, ...]) -> None:
    """Of one node, of both, and all: a burst becomes one or two worlds, not one for each."""
    generation = job.wait_steady(SIZE)
    kill(job, generation, *ranks)
    step = job.wait_step(size=SIZE, after=generation)
    assert step.generation <= generation + 2


def test_kill_is_known_before_the_pool_has_reaped_the_worker(cluster: Cluster, job: Job) -> None:
    """As where the kernel takes long to free its memory; here its parent stands still."""
    generation = job.wait_steady(SIZE)
    pool = cluster.daemons[job.node_of(SIZE - 1)].pool
    os.kill(pool, signal.SIGSTOP)
    try:
        with job.struck(generation, SIZE - 1) as (pid,):
            os.kill(pid, signal.SIGKILL)
        world = until(
            lambda: job.world if job.world and job.world.generation > generation else None,
            lambda: job.world,
        )
    finally:
        os.kill(pool, signal.SIGCONT)
    assert world.culprit is not None and world.culprit.signal == "SIGKILL"
    job.wait_step(size=SIZE, after=generation)


def test_worker_may_die_while_the_next_world_forms(cluster: Cluster, job: Job) -> None:
    """A new one is killed before it has found its peers, which wait for it."""
    generation = job.wait_steady(SIZE)
    kill(job, generation, 0)
    survivor = cluster.daemons[job.node_of(SIZE - 1)]
    new = until(lambda: survivor.workers(generation + 1), lambda: "no new worker")
    os.kill(new[0], signal.SIGKILL)
    job.wait_step(size=SIZE, after=generation + 1)


def test_pool_may_be_killed(cluster: Cluster, job: Job) -> None:
    """Its workers go with it, and its node is back with a new pool in one of the next worlds."""
    generation = job.wait_steady(SIZE)
    os.kill(cluster.daemons["b"].pool, signal.SIGKILL)
    job.wait_step(size=SIZE, after=generation)

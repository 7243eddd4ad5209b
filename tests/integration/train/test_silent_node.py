"""A node falls silent, as in a partition: nothing is closed, the others wait in a collective.

One job of three nodes with a worker each lives through the module.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.fixtures.cluster import Cluster, Daemon, Job, cluster_on, until

NODES = ("a", "b", "c")
SIZE = len(NODES)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("silent")) as cluster:
        for node in NODES:
            cluster.daemon(node)
        yield cluster


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> Iterator[Job]:
    job = cluster.submit(
        "silent", "--nnodes", f"1:{SIZE}", "--nproc-per-node", "1", script="steady.py"
    )
    yield job
    assert job.finish().phase.value == "succeeded"
    training = next(iter(job.results.values())).training
    assert training is not None
    assert (training.repeated, training.skipped) == (0, 0)


def send(daemon: Daemon, number: signal.Signals) -> None:
    """To the agent, its pool and its workers; the agent first, so that it notices nothing."""
    for pid in (daemon.pid, *(pid for pid in daemon.processes if pid != daemon.pid)):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@pytest.mark.parametrize("rank", [0, SIZE - 1])
def test_silent_node_is_left_behind_and_comes_back(cluster: Cluster, job: Job, rank: int) -> None:
    """The first rank's hosts the store. The others keep their processes; the silent worker, once it
    wakes, does no more of the world that went on without it."""
    generation = job.wait_steady(SIZE)
    pids = job.log.pids(generation)
    silent = cluster.daemons[job.node_of(rank)]
    send(silent, signal.SIGSTOP)
    try:
        job.wait_step(size=SIZE - 1, after=generation)
        smaller = job.wait_steady(SIZE - 1)
        survivors = set(job.log.pids(smaller).values())
        assert survivors == set(pids.values()) - {pids[rank]}
    finally:
        send(silent, signal.SIGCONT)
    job.wait_step(size=SIZE, after=smaller)
    now = set(job.log.pids(job.wait_steady(SIZE)).values())
    assert survivors < now
    # Its process may be taken in again; what must not be is a step in a world that it is not in.
    job.log.check()
    late = [step for step in job.log.steps() if step.pid == pids[rank]]
    assert smaller not in {step.generation for step in late}
    gone = pids[rank] if pids[rank] not in now else 0
    until(lambda: gone not in silent.processes, lambda: f"goes on: {silent.processes}")

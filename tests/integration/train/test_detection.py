"""What hangs is told from what takes long.

One job of three ranks on one node lives through the module; its ranks do tricks on demand. The
limit without progress is longer than what others wait in a collective for somebody who is in the
middle of a step (5 s), so that the two can be told apart.
"""

import json
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.records.account.incident import Incident
from elasticd.records.codec import decode
from elasticd.records.failure import Failure
from tests.fixtures.applied import play, whole_output
from tests.fixtures.cluster import Cluster, Job, cluster_on, until
from tests.fixtures.patience import patience_s
from tests.fixtures.patient_agent import PATIENT_WITH_STACKS

SIZE = 3
SLEEP_S = 6
"""Longer than others wait for somebody in the middle of a step."""
LIMIT_S = SLEEP_S + math.ceil(patience_s(6.0))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("detection")) as cluster:
        cluster.agent_prefix = PATIENT_WITH_STACKS
        cluster.daemon("a", slots=SIZE)
        yield cluster


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> Iterator[Job]:
    job = cluster.submit(
        "hangs",
        *("--nproc-per-node", str(SIZE), "--progress-timeout", str(LIMIT_S)),
        script="steady.py",
    )
    yield job
    assert job.finish().phase.value == "succeeded"
    training = next(iter(job.results.values())).training
    assert training is not None
    assert (training.repeated, training.skipped) == (0, 0)
    # One agent lived through it all, and each second of its slots has its cause.
    why = json.loads(cluster.run("why", job.name, "--json").out)
    first, account = why["changes"][0], why["account"]
    assert first["generation"] == 1 and first["step"] > 0
    assert first["phases_s"]["form"] > 0.0, "it is told up to its first commit"
    spent_s = account["seconds"]
    assert account["has_steps"] and spent_s["unexplained"] == 0.0
    assert min(spent_s[each] for each in ("train", "start", "notice", "recover")) > 0.0
    assert sum(spent_s.values()) == pytest.approx(account["total_s"], abs=0.1)
    assert account["goodput"] == pytest.approx(spent_s["train"] / account["total_s"], abs=0.01)


def assert_replaced(cluster: Cluster, job: Job, generation: int, rank: int) -> str:
    """See that this rank was taken for hung, and lost only its own process; returns the stacks.

    They were written before it was killed: its own are among them.
    """
    pids = job.log.pids(generation)
    job.wait_step(size=SIZE - 1, after=generation)
    job.wait_step(size=SIZE, after=generation)
    now = set(job.log.pids(job.wait_steady(SIZE)).values())
    assert now & set(pids.values()) == set(pids.values()) - {pids[rank]}
    until(lambda: not Path(f"/proc/{pids[rank]}").exists(), lambda: f"{pids[rank]} still runs")
    culprit = until(lambda: culprit_of(cluster, job, generation + 1), lambda: "nobody is blamed")
    assert (culprit.rank, culprit.is_hung) == (rank, True)
    assert culprit.exception in cluster.run("why", job.name).out
    path = Path(culprit.log_path)
    heads = [f"=== rank {each}, pid {pid}" for each, pid in pids.items()]

    def written() -> str | None:
        stacks = path.read_text() if path.exists() else ""
        is_whole = all(head in stacks for head in heads) and stacks.endswith("\n\n")
        return stacks if is_whole else None

    return until(written, lambda: f"stacks of not all: {path}")


def culprit_of(cluster: Cluster, job: Job, generation: int) -> Failure | None:
    items = cluster.store.list(cluster.keys.incidents(job.name)).items
    incidents = (decode(Incident, item.value) for item in items)
    return next((i.culprit for i in incidents if i.generation == generation), None)


def test_stopped_worker_is_replaced(cluster: Cluster, job: Job) -> None:
    """SIGSTOP: the others are blocked in a collective, and say where."""
    generation = job.wait_steady(SIZE)
    os.kill(job.wait_pid(generation, 1), signal.SIGSTOP)
    stacks = assert_replaced(cluster, job, generation, 1)
    assert "is stopped" in stacks
    assert "steady.py" in stacks


def test_worker_that_holds_the_gil_is_replaced(cluster: Cluster, job: Job) -> None:
    """It sleeps in C: none of its Python threads can tell."""
    generation = job.wait_steady(SIZE)
    play(job, 2, "gil")
    assert "GIL" in assert_replaced(cluster, job, generation, 2)


def test_worker_in_an_endless_loop_is_replaced(cluster: Cluster, job: Job) -> None:
    """It beats, but the others wait for it in a collective; the stacks show its loop."""
    generation = job.wait_steady(SIZE)
    play(job, 0, "spin")
    stacks = assert_replaced(cluster, job, generation, 0)
    assert "while others waited for it" in stacks
    assert "in play" in stacks


def test_long_pause_between_steps_is_no_hang(cluster: Cluster, job: Job) -> None:
    """Of one rank, while the others wait for it; shorter than the limit."""
    generation = job.wait_steady(SIZE)
    play(job, 1, f"sleep {SLEEP_S}")
    until(
        lambda: f"slept {generation}" in whole_output(cluster.runs, job.name),
        lambda: f"{job.world}",
    )
    assert job.wait_steady(SIZE) == generation


def test_evaluation_in_a_pause_is_no_hang(cluster: Cluster, job: Job) -> None:
    """Longer than the limit, of one rank."""
    generation = job.wait_steady(SIZE)
    play(job, 0, f"pause {2 * LIMIT_S + 3}")
    until(
        lambda: f"paused {generation}" in whole_output(cluster.runs, job.name),
        lambda: f"{job.world}",
    )
    assert job.wait_steady(SIZE) == generation

"""What is done about gradients that are not finite, and about a replica that has drifted off."""

from collections.abc import Iterator

import pytest

from elasticd.records.account.incident import Incident
from elasticd.records.codec import decode
from elasticd.records.failure import Failure
from elasticd.records.reason import Phase
from tests.fixtures.applied import assert_none_done_again, play, whole_output
from tests.fixtures.cluster import Cluster, Job, cluster_on, until

SIZE = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("policies")) as cluster:
        cluster.daemon("a", slots=3)
        yield cluster


def submit(cluster: Cluster, name: str, *args: str, size: int = SIZE) -> Job:
    return cluster.submit(name, "--nproc-per-node", str(size), *args, script="steady.py")


def test_job_stops_before_the_damage(cluster: Cluster) -> None:
    """With `stop` the first rank that sees it ends the job: nobody restarts."""
    job = submit(cluster, "stops", "--on-nan", "stop")
    generation = job.wait_steady(SIZE)
    play(job, 1, "nan")
    assert job.wait_phase(Phase.FAILED, Phase.SUCCEEDED).phase is Phase.FAILED
    assert job.world is not None
    assert job.world.generation == generation
    why = cluster.run("why", job.name).out
    assert "GradientsNotFinite: Gradients are infinite or not a number" in why
    assert "model.weight" in why


def test_step_is_left_out(cluster: Cluster) -> None:
    """With `skip` the commit counts, the optimizer did nothing, and the summary says so."""
    job = submit(cluster, "skips", "--on-nan", "skip")
    generation = job.wait_steady(SIZE)
    since_s = job.wait_step(size=SIZE).at_s
    play(job, 1, "nan")
    until(lambda: not job.end_file.with_name(f"{job.end_file.name}.1").exists(), lambda: job.status)
    job.wait_step(size=SIZE, since_s=since_s + 0.5)
    assert job.wait_steady(SIZE) == generation
    assert job.finish().phase is Phase.SUCCEEDED
    assert_none_done_again(cluster.runs, job.name, generation)
    assert "1 optimizer step left out for bad gradients" in whole_output(cluster.runs, job.name)


def test_odd_replica_is_named_and_replaced(cluster: Cluster) -> None:
    """The script changed its parameters; the others go on, and give theirs to its successor."""
    size = 3
    job = submit(cluster, "differs", "--compare-every", "5", size=size)
    generation = job.wait_steady(size)
    pids = job.log.pids(generation)
    play(job, 1, "differ")
    job.wait_step(size=size, after=generation)
    now = set(job.log.pids(job.wait_steady(size)).values())
    assert now & set(pids.values()) == {pids[0], pids[2]}

    def blamed() -> Failure | None:
        items = cluster.store.list(cluster.keys.incidents(job.name)).items
        incidents = [decode(Incident, item.value) for item in items]
        return next((i.culprit for i in incidents if i.generation == generation + 1), None)

    culprit = until(blamed, lambda: "nobody is blamed")
    assert culprit.rank == 1
    assert culprit.exception.startswith("ReplicaDiffers: At step ")
    assert "parameters of rank 1 differ from those of the other 2 of 3 ranks" in culprit.exception
    assert job.finish().phase is Phase.SUCCEEDED

"""Nodes join, are drained, and too few are left; a person scales and stops a job.

One job of two to three nodes lives through the module; it ends by `elasticd stop`.
"""

import json
import re
from collections.abc import Iterator

import pytest

from elasticd.records.job import JobStatus
from elasticd.records.reason import Phase, Reason
from tests.fixtures.cluster import SCRIPTS, Cluster, Job, cluster_on, until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.daemon("a")
        yield cluster


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> Job:
    return cluster.submit("sizes", "--nnodes", "2:3")


def reason_of(job: Job) -> Reason:
    world = job.world
    assert world is not None
    return world.reason


def test_job_below_its_least_size_waits_and_says_for_whom(cluster: Cluster, job: Job) -> None:
    """And begins by itself when the second node is there."""
    waits = "waiting for 1 more node: 1 of at least 2 ready"
    until(lambda: job.status.message.startswith(waits), lambda: job.status)
    assert job.status.phase is Phase.PENDING
    assert "waiting for 1 more node" in cluster.run("status", job.name).out
    cluster.daemon("b")
    job.wait_step(size=2)
    assert reason_of(job) is Reason.FIRST_WORLD


def test_node_joins_up_to_the_most(cluster: Cluster, job: Job) -> None:
    """Without a word to the job; those that were there keep their ranks."""
    generation = job.wait_steady(2)
    before = [job.node_of(0), job.node_of(1)]
    cluster.daemon("c")
    job.wait_step(size=3, after=generation)
    assert reason_of(job) is Reason.JOINED
    assert [job.node_of(rank) for rank in range(3)] == [*before, "c"]


def test_fourth_node_is_kept_as_a_spare(cluster: Cluster, job: Job) -> None:
    """It takes the place of the next one that is lost, with no time lost for its imports."""
    generation = job.wait_steady(3)
    cluster.daemon("d")
    job.wait_member("d")
    world = job.world
    assert world is not None and world.generation == generation
    cluster.daemons["c"].kill_node()
    job.wait_step(size=3, after=generation)
    assert job.node_of(2) == "d"
    cluster.daemons["c"].start()


def test_drained_node_is_left_and_comes_back(cluster: Cluster, job: Job) -> None:
    """Its agent stays registered, without a part in any job; it is a spare afterwards."""
    generation = job.wait_steady(3)
    job.wait_member("c")
    leaver = job.node_of(0)
    ended = cluster.run("drain", leaver, "--why", "new disk", "--wait")
    told = f"node {leaver} is being drained\nnode {leaver} is free of jobs\n"
    assert (ended.code, ended.out) == (0, told)
    job.wait_step(size=3, after=generation)
    assert reason_of(job) is Reason.DRAINED
    until(lambda: leaver not in job.members, lambda: job.members)
    assert cluster.daemons[leaver].is_running
    listed = json.loads(cluster.run("nodes", "--json").out)
    assert {n["node"]["node"]: n["drain_why"] for n in listed}[leaver] == "new disk"
    generation = job.wait_steady(3)
    assert cluster.run("drain", leaver, "--undo").code == 0
    job.wait_member(leaver)
    assert job.wait_steady(3) == generation


def test_job_is_scaled_down_and_up(cluster: Cluster, job: Job) -> None:
    """Within what it was submitted with; a refusal says what that was."""
    generation = job.wait_steady(3)
    assert cluster.run("scale", job.name, "2").code == 0
    job.wait_step(size=2, after=generation)
    assert reason_of(job) is Reason.SCALED
    generation = job.wait_steady(2)
    assert cluster.run("scale", job.name, "3").code == 0
    job.wait_step(size=3, after=generation)
    refused = cluster.run("scale", job.name, "4")
    assert refused.code == 2
    assert "2:3" in refused.sentence


def test_job_that_fell_below_its_least_size_resumes_by_itself(cluster: Cluster, job: Job) -> None:
    """Its workers are stopped, the status names the nodes, and the return of one is enough."""
    job.wait_steady(3)
    gone = sorted(set(cluster.daemons) - {job.node_of(0)})
    for node in gone:
        assert cluster.daemons[node].end() == 0
    waits = "waiting for 1 more node: 1 of at least 2 ready"

    def waiting() -> JobStatus | None:
        """Until the survivor's next process is there it may not count as ready itself."""
        status = job.status
        return status if status.message.startswith(waits) else None

    status = until(waiting, lambda: job.status)
    assert status.phase is Phase.WAITING
    assert any(f" {node}" in status.message for node in gone)
    survivor = cluster.daemons[next(iter(set(cluster.daemons) - set(gone)))]
    survivor.wait_workers_gone(status.generation)
    cluster.daemons[gone[0]].start()
    job.wait_step(size=2, after=status.generation)
    job.wait_phase(Phase.RUNNING)


def test_name_of_a_running_job_is_refused(cluster: Cluster, job: Job) -> None:
    """And the job is not disturbed."""
    generation = job.wait_steady(2)
    refused = cluster.run("run", "--job", job.name, str(SCRIPTS / "train.py"), "end")
    assert refused.code == 2
    assert f"The job name '{job.name}' is in use" in refused.sentence
    assert job.wait_steady(2) == generation


@pytest.mark.parametrize(
    "command",
    [("status", "size"), ("stop", "size"), ("scale", "size", "2"), ("why", "size")],
    ids=lambda command: command[0],
)
def test_unknown_job_is_answered_with_the_nearest(
    cluster: Cluster, job: Job, command: tuple[str, ...]
) -> None:
    """One sentence, exit code 2."""
    refused = cluster.run(*command)
    assert refused.code == 2
    assert f"There is no job 'size': did you mean {job.name}?" in refused.sentence


def test_unknown_node_is_answered(cluster: Cluster, job: Job) -> None:
    """One sentence, exit code 2."""
    refused = cluster.run("drain", "nobody")
    assert refused.code == 2
    assert "There is no node 'nobody'" in refused.sentence


def test_stopped_job_leaves_the_daemons(cluster: Cluster, job: Job) -> None:
    """Its workers and pools end, the agents go on, its name is free."""
    job.wait_steady(2)
    node = job.node_of(0)

    def is_timed() -> bool:
        """What was written in the last two seconds has no time yet."""
        last = cluster.run("logs", job.name, "--tail", "1000", "--timestamps", "--node", node)
        stamp = re.compile(r"^[-0-9]{10} [:0-9]{8} \S", re.MULTILINE)
        return last.code == 0 and stamp.search(last.out) is not None

    until(is_timed, lambda: "no line has a time")
    ended = cluster.run("stop", job.name, "--why", "enough", "--wait")
    assert ended.code == 0 and f"job {job.name} is over (stopped)" in ended.out
    assert job.status.phase is Phase.STOPPED and job.status.message == "enough"
    for command in ("wait", "attach"):
        assert cluster.run(command, job.name).code == 143
    running = [daemon for daemon in cluster.daemons.values() if daemon.is_running]
    assert len(running) == 2
    for daemon in running:
        daemon.wait_idle()
    refused = cluster.run("stop", job.name)
    assert refused.code == 2
    assert f"Job '{job.name}' is over" in refused.sentence
    would = cluster.run("prune", job.name, "--dry-run")
    assert would.code == 0 and "nothing was changed" in would.out
    assert cluster.run("why", job.name).code == 0
    removed = cluster.run("rm", job.name)
    assert removed.code == 0 and f"job {job.name}: " in removed.out
    assert "There is no job" in cluster.run("why", job.name).sentence

"""What the rules see of a job, by its records and those of the cluster."""

from dataclasses import replace

import pytest

from elasticd.autoscale.evaluation_input import Observation
from elasticd.records.codec import decode
from elasticd.records.ids import NodeId
from elasticd.records.job import JobSpec
from elasticd.records.member import Drain
from elasticd.records.reason import Reason
from tests.fixtures.autoscaler_scene import POLICY, Cluster, Deciding, JobScene, Leader


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def seen(cluster: Cluster, job: str = "j") -> Observation:
    leader = Leader(cluster, deciding := Deciding())
    leader.evaluate()
    leader.kill()
    return next(each for each in deciding.seen if each.job == job)


def job_on(cluster: Cluster, *nodes: str, name: str = "j", **more: int | str) -> JobScene:
    job = cluster.job(name, **more).submit()
    job.run(*nodes)
    return job


def test_a_running_job(cluster: Cluster) -> None:
    """Its size, its limits, its generation and how far it is."""
    cluster.node("a", "b")
    job = job_on(cluster, "a", "b", min_nodes=2, max_nodes=5)
    job.progress(77, 3.0)
    found = seen(cluster)
    assert (found.nodes, found.wanted, found.min_nodes, found.max_nodes) == (2, 5, 2, 5)
    assert (found.generation, found.step, found.uid) == (1, 77, "u")
    assert found.is_running and found.is_in_process and not found.is_pinned


def test_a_job_that_waits_has_no_nodes(cluster: Cluster) -> None:
    """Its last world stands there still, and does not train."""
    job = cluster.job().submit()
    found = seen(cluster)
    assert (found.nodes, found.is_running, found.generation) == (0, False, 0)
    assert job.wanted is None


@pytest.mark.parametrize("writer", ["user", "operator"])
def test_a_pin_is_seen_with_its_writer(cluster: Cluster, writer: str) -> None:
    """The autoscaler's own wish is none."""
    job = job_on(cluster, "a")
    job.want("autoscaler", 3)
    assert not seen(cluster).is_pinned
    job.want(writer, 2)
    found = seen(cluster)
    assert (found.is_pinned, found.pinned_by, found.wanted) == (True, writer, 2)


def test_steps_of_a_script_that_tells_none_are_none(cluster: Cluster) -> None:
    """A record without steps is not taken for step 0 of a job that stands still."""
    job = job_on(cluster, "a")
    job.progress(5, 3.0, has_steps=False)
    assert seen(cluster).step == 0


def test_free_nodes_are_available(cluster: Cluster) -> None:
    """With those that train; drained ones and small ones are not."""
    cluster.node("a", "b", "c")
    cluster.node("going", is_draining=True)
    cluster.node("drained")
    job = job_on(cluster, "a")
    job.put(cluster.keys.drain(NodeId("drained")), Drain())
    assert seen(cluster).available == 3


def test_nodes_that_other_jobs_train_on_are_not_available(cluster: Cluster) -> None:
    """A spare of another job is: whoever lacks nodes is served first."""
    cluster.node("a", "b", "c")
    job_on(cluster, "a")
    other = job_on(cluster, "b", name="other", max_nodes=1)
    other.join("c")
    assert seen(cluster).available == 2
    other.run("b", "c")
    assert seen(cluster).available == 1


def test_nodes_of_a_job_that_waits_for_them_are_not_available(cluster: Cluster) -> None:
    """It gets them before anybody else."""
    cluster.node("a", "b", "c")
    job_on(cluster, "a")
    waiting = cluster.job("waiting", min_nodes=4).submit(None)
    waiting.join("b", slots=())
    assert seen(cluster).available == 2


def test_a_node_with_slots_left_is_available(cluster: Cluster) -> None:
    """Several jobs share it."""
    cluster.node("a", slots=2)
    cluster.node("b", slots=1)
    job_on(cluster, "a")
    job_on(cluster, "a", "b", name="other", max_nodes=2)
    assert seen(cluster).available == 1
    assert seen(cluster, "other").available == 2


def test_a_node_that_is_not_ready_yet_counts_for_the_job_that_it_comes_to(
    cluster: Cluster,
) -> None:
    """It holds its slots for that job alone; a job that wants whole nodes has the idle ones."""
    cluster.node("a", "b")
    cluster.node("c", slots=2)
    job_on(cluster, "a")
    waiting = job_on(cluster, "b", name="waiting", max_nodes=2)
    waiting.join("c", slots=())
    assert seen(cluster).available == 2  # Its own, and the second slot of c.
    assert seen(cluster, "waiting").available == 2
    spec = cluster.store.get(cluster.keys.spec(waiting.name))
    assert spec is not None
    whole = replace(decode(JobSpec, spec.value), workers_per_node=0)
    waiting.put(cluster.keys.spec(waiting.name), whole)
    assert seen(cluster, "waiting").available == 2


def test_a_local_job_has_its_own_agents_only(cluster: Cluster) -> None:
    """Others' agents do not serve it: its members count."""
    cluster.node("a", "b", "stranger")
    job = job_on(cluster, "a")
    job.join("b")
    spec = cluster.store.get(cluster.keys.spec(job.name))
    assert spec is not None

    job.put(cluster.keys.spec(job.name), replace(decode(JobSpec, spec.value), is_local=True))
    assert seen(cluster).available == 2
    job.join("b", leaving=Reason.PREEMPTED)
    assert seen(cluster).available == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_nodes_without_the_labels_of_a_job_are_not_available(
    cluster: Cluster, workers: int
) -> None:
    """No agent there takes part in it, however free it is."""
    cluster.node("a", "b", gpu="h100")
    cluster.node("c", "d", gpu="a100")
    cluster.node("e", slots=2, gpu="h100")
    job = job_on(cluster, "a", max_nodes=5)
    assert seen(cluster).available == 5
    spec = cluster.store.get(cluster.keys.spec(job.name))
    assert spec is not None
    labelled = replace(
        decode(JobSpec, spec.value), node_labels={"gpu": "h100"}, workers_per_node=workers
    )
    job.put(cluster.keys.spec(job.name), labelled)
    assert seen(cluster).available == 3


def test_a_pause_is_seen(cluster: Cluster) -> None:
    """One worker that pauses makes all wait."""
    job = job_on(cluster, "a", "b")
    assert not seen(cluster).is_paused
    job.join("b", is_paused=True)
    assert seen(cluster).is_paused


def test_a_policy_that_was_set_is_seen_at_the_next_evaluation(cluster: Cluster) -> None:
    """And one that was taken back is not."""
    job = cluster.job().submit(None)
    job.run("a")
    leader = Leader(cluster, deciding := Deciding())
    leader.evaluate()
    job.set(POLICY)
    leader.evaluate()
    assert len(deciding.seen) == 1

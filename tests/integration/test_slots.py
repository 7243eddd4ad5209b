"""Nodes of different size, and jobs that share one."""

from collections.abc import Iterator

import pytest

from elasticd.records.reason import Phase
from tests.fixtures.cluster import Cluster, Job, cluster_on, until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.daemon("small", slots=1).wait_registered()
        cluster.daemon("big", slots=3, size="big").wait_registered()
        yield cluster


@pytest.fixture
def alike(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes of one slot."""
    with cluster_on(tmp_path_factory.mktemp("alike")) as cluster:
        for node in ("a", "b", "c"):
            cluster.daemon(node).wait_registered()
        yield cluster


def slots_of(job: Job) -> dict[str, list[int]]:
    world = job.world
    assert world is not None
    return {node.node: [worker.slot for worker in node.workers] for node in world.nodes}


def test_each_node_gives_as_many_workers_as_it_has_slots(cluster: Cluster) -> None:
    """With `--nproc-per-node auto`; ranks are contiguous and grouped by node."""
    job = cluster.submit("uneven", "--nnodes", "2", "--nproc-per-node", "auto")
    job.wait_steady(4)
    assert slots_of(job) == {"small": [0], "big": [0, 1, 2]}
    assert [job.node_of(rank) for rank in range(4)] in (
        ["small", "big", "big", "big"],
        ["big", "big", "big", "small"],
    )
    assert job.finish().phase is Phase.SUCCEEDED


def test_two_jobs_share_a_node_and_a_third_waits(cluster: Cluster) -> None:
    """Each has slots of its own; the third gets them when one of the others is over."""
    first = cluster.submit("first", "--nproc-per-node", "2")
    first.wait_steady(2)
    second = cluster.submit("second", "--nnodes", "2")
    second.wait_steady(2)
    third = cluster.submit("third", "--nproc-per-node", "3")
    assert slots_of(first) == {"big": [0, 1]}
    assert slots_of(second) == {"big": [2], "small": [0]}
    assert third.status.phase is Phase.PENDING
    assert not third.members
    for job in (first, second):
        assert job.finish().phase is Phase.SUCCEEDED
    third.wait_steady(3)
    assert slots_of(third) == {"big": [0, 1, 2]}
    assert third.finish().phase is Phase.SUCCEEDED


def test_node_that_a_job_gives_up_goes_to_the_one_that_waits(cluster: Cluster) -> None:
    """At once, and for good: the first does not take it back to keep a spare there."""
    # A job keeps the node that it began on: that is the one from which a second slot can be had.
    assert cluster.run("drain", "small").code == 0
    first = cluster.submit("shrinks", "--nnodes", "1:2")
    first.wait_steady(1)
    assert cluster.run("drain", "small", "--undo").code == 0
    first.wait_steady(2)
    second = cluster.submit("waits", "--nnodes", "2")
    until(lambda: len(second.members) == 1, lambda: "the second job is not on its one free node")
    assert cluster.run("scale", "shrinks", "1").code == 0
    second.wait_steady(2)
    until(lambda: set(first.members) == {"big"}, lambda: first.members)
    assert set(slots_of(first)) == {"big"}
    assert slots_of(second) == {"big": [1], "small": [0]}
    log = cluster.daemons["small"].log
    joined = [line for line in log.splitlines() if "job.joined" in line]
    assert len([line for line in joined if '"shrinks"' in line]) == 1, joined
    for job in (first, second):
        assert job.finish().phase is Phase.SUCCEEDED


def test_idle_spare_of_one_job_goes_to_one_that_lacks_a_node(alike: Cluster) -> None:
    """It joins each of them once, and comes back as a spare when the other is over."""
    keeps = alike.submit("keeps", "--nnodes", "2")
    generation = keeps.wait_steady(2)
    ready = until(
        lambda: (m := keeps.members) and len(m) == 3 and all(each.slots for each in m.values()),
        lambda: f"no spare: {keeps.members}",
    )
    assert ready
    spare = next(iter(set(alike.daemons) - set(slots_of(keeps))))
    lacks = alike.submit("lacks", "--nnodes", "1")
    lacks.wait_steady(1)
    assert slots_of(lacks) == {spare: [0]}
    until(lambda: set(keeps.members) == set(slots_of(keeps)), lambda: keeps.members)
    # Other things happen in the cluster, at each of which it could change its mind.
    third = alike.submit("waits", "--nnodes", "1")
    until(lambda: third.status.phase is Phase.PENDING, lambda: f"{third.status}")
    assert alike.run("stop", "waits").code == 0

    def joins(job: Job) -> int:
        lines = alike.daemons[spare].log.splitlines()
        return len([line for line in lines if "job.joined" in line and f'"{job.name}"' in line])

    def joined() -> tuple[int, int, int]:
        return joins(keeps), joins(lacks), joins(third)

    # What an agent logs is written by a thread of its own.
    until(lambda: joined() == (1, 1, 0), joined)
    assert lacks.finish().phase is Phase.SUCCEEDED
    keeps.wait_member(spare)
    until(lambda: joined() == (2, 1, 0), joined)
    assert "job.join_paused" not in alike.daemons[spare].log
    assert keeps.wait_steady(2) == generation  # The one that trained was not disturbed.
    assert keeps.finish().phase is Phase.SUCCEEDED


def test_job_takes_only_nodes_with_its_labels(cluster: Cluster) -> None:
    """And says which it waits for."""
    job = cluster.submit("labelled", "--nnodes", "1:2", "--node-label", "size=big")
    job.wait_steady(1)
    assert set(slots_of(job)) == {"big"}
    assert job.finish().phase is Phase.SUCCEEDED
    waits = cluster.submit("waits-for-label", "--node-label", "size=huge")
    said = "there are 0 such nodes in all: start `elasticd agent --label size=huge`"
    until(lambda: said in cluster.run("status", "waits-for-label").out, lambda: "it is not said")
    assert not waits.members
    assert cluster.run("stop", "waits-for-label").code == 0


def test_more_workers_than_any_node_has_slots_is_refused(cluster: Cluster) -> None:
    """The sentence says what each node offers."""
    refused = cluster.run("run", "--nproc-per-node", "4", __file__)
    assert refused.code == 2
    assert "--nproc-per-node 4 is more than any node's slots" in refused.sentence
    assert "big: 3" in refused.sentence


def test_second_agent_under_the_same_name_is_refused(cluster: Cluster) -> None:
    """The first one goes on serving."""
    refused = cluster.run("agent", "--node-id", "small", "--local-addr", "127.0.0.1")
    assert refused.code == 2
    assert "Node 'small' is already served by an agent" in refused.sentence
    until(lambda: cluster.daemons["small"].is_running, lambda: "the first one ended")

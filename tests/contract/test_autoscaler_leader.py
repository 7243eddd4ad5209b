"""A leader reads and writes the same on the store in memory and on every etcd that we work with."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from elasticd.records.keys import Keys
from elasticd.store.api import Delete, Txn
from tests.contract.conftest import Backend
from tests.fixtures.autoscaler_scene import POLICY, Cluster, Deciding, JobScene, Leader
from tests.fixtures.store import wait_until


@pytest.fixture
def cluster(backend: Backend, request: pytest.FixtureRequest) -> Cluster:
    """A cluster of this test's own, as one autoscaler sees it."""
    return Cluster(backend.store, Keys(cluster=request.node.name))


@pytest.fixture
def job(backend: Backend, cluster: Cluster) -> JobScene:
    """One that others write."""
    job = Cluster(backend.other, cluster.keys).job().submit()
    job.run("a", "b")
    return job


def evaluate_until(leader: Leader, is_so: Callable[[], bool]) -> None:
    """Evaluate until something is so: a watch of a real etcd may need more than one evaluation."""

    def is_done() -> bool:
        leader.evaluate()
        return is_so()

    wait_until(is_done)


def test_what_others_wrote_is_seen_and_what_is_decided_is_written(
    cluster: Cluster, job: JobScene
) -> None:
    """The wish, the decision and the memory; and afterwards what has changed."""
    deciding = Deciding(3)
    leader = Leader(cluster, deciding)
    evaluate_until(leader, lambda: job.wanted == 3)
    assert [each.to_nodes for each in job.decisions] == [3]
    assert deciding.seen[0].nodes == 2
    job.run("a", "b", "c")
    evaluate_until(leader, lambda: (deciding.seen[-1].nodes, deciding.seen[-1].wanted) == (3, 3))
    assert len(job.decisions) == 1
    leader.kill()


def test_writes_of_a_term_that_is_over_are_refused(
    backend: Backend, cluster: Cluster, job: JobScene
) -> None:
    """Whoever leads next counts, even if the first one has not heard of it."""
    before = Leader(cluster, Deciding(3))
    cluster.store.commit(Txn(then=(Delete(key=cluster.keys.autoscaler_election),)))
    after = Leader(Cluster(backend.other, cluster.keys), Deciding(2))
    evaluate_until(after, lambda: job.wanted == 2)
    before.term.is_over = False
    before.evaluate()
    assert job.wanted == 2 and len(job.decisions) == 1
    for leader in (before, after):
        leader.kill()


def test_an_evaluation_goes_on_after_its_watches_were_cut_off(
    backend: Backend, cluster: Cluster, job: JobScene
) -> None:
    """Also where what was missed is gone by then."""
    deciding = Deciding()
    leader = Leader(cluster, deciding)
    evaluate_until(leader, lambda: deciding.seen != [])
    newer = replace(POLICY, window_s=5.0)

    def change() -> None:
        job.run("a", "b", "c")
        job.set(newer)

    backend.away(change, is_compacted=True)

    evaluate_until(leader, lambda: deciding.seen[-1].nodes == 3)
    leader.kill()

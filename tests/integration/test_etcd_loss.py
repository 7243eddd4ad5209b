"""etcd dies, forgets, falls silent; training goes on, and is stopped only where it must be.

One job lives through the module, with the default isolation limit; others beside it have a short
one.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

from elasticd.records.codec import encode
from elasticd.records.job import Want
from elasticd.records.reason import Phase
from elasticd.store.api import Put, Txn
from elasticd.store.private_etcd.embedded import EmbeddedEtcd
from elasticd.store.private_etcd.etcd_program import find_etcd
from tests.fixtures.cluster import LEASE_TTL_S, Cluster, Job, cluster_on
from tests.fixtures.etcd import EtcdAdmin, EtcdCluster
from tests.fixtures.tcp_proxy import TcpProxy

SIZE = 2
ISOLATION_LIMIT_S = 1.5 * LEASE_TTL_S


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedEtcd]:
    with EmbeddedEtcd(tmp_path_factory.mktemp("etcd"), env=os.environ) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def proxy(etcd: EmbeddedEtcd) -> Iterator[TcpProxy]:
    """Between the agents and etcd."""
    with TcpProxy(int(etcd.url.rpartition(":")[2])) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, proxy: TcpProxy) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("cluster"), [proxy.url]) as cluster:
        for node in ("a", "b"):
            cluster.daemon(node, slots=2)
        yield cluster


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> Iterator[Job]:
    job = cluster.submit("training", "--nnodes", "1:2")
    yield job
    assert job.finish().phase is Phase.SUCCEEDED


def check_goes_on(job: Job, generation: int, for_s: float) -> None:
    """See that the same world makes steps for so long, whatever happened just before."""
    job.wait_step(size=SIZE, since_s=time.monotonic() + for_s)
    world = job.world
    assert world is not None and world.generation == generation


def check_recovers(job: Job, generation: int) -> None:
    """See that the agents can still agree on another world."""
    os.kill(job.wait_pid(generation, 0), signal.SIGKILL)
    job.wait_step(size=SIZE, after=generation)


def test_training_goes_on_while_etcd_crashes(etcd: EmbeddedEtcd, job: Job) -> None:
    """Killed, away for less than the isolation limit, started again: the world stands."""
    generation = job.wait_steady(SIZE)
    etcd.kill()
    job.wait_step(size=SIZE, since_s=time.monotonic() + 1.0)
    etcd.restart()
    check_goes_on(job, generation, for_s=1.5 * LEASE_TTL_S)
    check_recovers(job, generation)


def test_compaction_behind_a_watch_loses_no_wish(
    etcd: EmbeddedEtcd, proxy: TcpProxy, cluster: Cluster, job: Job
) -> None:
    """What was written while the agents were cut off is gone from the history; they read anew."""
    generation = job.wait_steady(SIZE)
    key = cluster.keys.want(job.name, "user")
    with contextlib.closing(EtcdAdmin(etcd.url)) as admin:
        proxy.close_door()
        for nodes in (2, 1):
            revision = admin.put(key, encode(Want(writer="user", nodes=nodes)))
        admin.compact(revision)
        proxy.open_door()
    job.wait_step(size=1, after=generation)
    generation = job.wait_steady(1)
    wish = Put(key=key, value=encode(Want(writer="user", nodes=SIZE)))
    cluster.store.commit(Txn(then=(wish,)))
    job.wait_step(size=SIZE, after=generation)


def submit_guarded(cluster: Cluster, name: str) -> Job:
    """Ranks that would go on for ever: only the isolation limit can end them."""
    limit = ("--isolation-limit", str(ISOLATION_LIMIT_S))
    return cluster.submit(name, "--nnodes", "2", *limit, script="alone.py")


def test_stopped_agents_workers_end_at_the_isolation_limit(cluster: Cluster) -> None:
    """The pool sees to it: the agent itself can do nothing. The job resumes when it can."""
    job = submit_guarded(cluster, "stopped")
    generation = job.wait_steady(SIZE)
    daemon = cluster.daemons[job.node_of(1)]
    daemon.send(signal.SIGSTOP)
    daemon.wait_workers_gone(generation)
    assert job.wait_phase(Phase.WAITING).message.startswith("waiting for 1 more node")
    daemon.send(signal.SIGCONT)
    job.wait_step(size=SIZE, after=generation)
    assert job.finish().phase is Phase.SUCCEEDED


def test_workers_are_stopped_when_etcd_is_away_for_too_long(
    etcd: EmbeddedEtcd, cluster: Cluster
) -> None:
    """Longer than the isolation limit; when it is back, the job resumes by itself."""
    job = submit_guarded(cluster, "isolated")
    generation = job.wait_steady(SIZE)
    etcd.kill()
    for daemon in cluster.daemons.values():
        daemon.wait_workers_gone(generation)
    etcd.restart()
    job.wait_step(size=SIZE, after=generation)
    assert job.finish().phase is Phase.SUCCEEDED


def test_members_of_etcd_may_die_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Of three, first the leader, then, when it is back, another: the world stands meanwhile."""
    members = EtcdCluster(find_etcd(), tmp_path_factory.mktemp("members"))
    try:
        members.start()
        with cluster_on(tmp_path_factory.mktemp("cluster"), members.urls) as cluster:
            for node in ("a", "b"):
                cluster.daemon(node)
            job = cluster.submit("replicated", "--nnodes", "2")
            leader = members.leader()
            other = next(member for member in members.members if member is not leader)
            for member in (leader, other):
                generation = job.wait_steady(SIZE)
                member.kill()
                check_goes_on(job, generation, for_s=1.5 * LEASE_TTL_S)
                check_recovers(job, generation)
                member.start()
            assert job.finish().phase is Phase.SUCCEEDED
    finally:
        members.kill()

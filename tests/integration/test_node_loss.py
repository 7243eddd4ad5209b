"""Nodes die, leave, stand still and flap; the survivors go on, and the node comes back.

One job of one to three nodes lives through the whole module: each test takes it from one steady
world of three to the next.
"""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elasticd.records.reason import Reason
from elasticd.records.world import World
from elasticd.rendezvous.journal import replay
from elasticd.rendezvous.next_world.exclusion import readmission_delay_s
from tests.fixtures.cluster import PATIENCE_S, Cluster, Daemon, Job, cluster_on
from tests.fixtures.fork_server import SERVER_VARIABLE

SIZE = 3
RETURN_S = PATIENCE_S + readmission_delay_s(100)
"""A node that was lost often is held back before it is taken in again. This module alone makes one
wait for half a minute; each loss that a busy machine adds doubles that, up to a minute."""
pytestmark = pytest.mark.timeout(480)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("cluster")) as cluster:
        for node in ("a", "b", "c"):
            cluster.daemon(node)
        yield cluster


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> Iterator[Job]:
    job = cluster.submit("nodes", "--nnodes", "1:3")
    yield job
    assert job.finish().phase.value == "succeeded"


def world_of(job: Job, *, size: int, after: int) -> World:
    """The world that follows, once it makes steps."""
    generation = job.wait_step(size=size, after=after, limit_s=RETURN_S).generation
    world = job.world
    assert world is not None and world.generation >= generation
    return world


def daemon_of(cluster: Cluster, job: Job, rank: int) -> Daemon:
    return cluster.daemons[job.node_of(rank)]


def test_agent_of_rank_0_may_be_killed(cluster: Cluster, job: Job) -> None:
    """Its workers end with it; another node has rank 0; it comes back when it is started again."""
    generation = job.wait_steady(SIZE)
    daemon = daemon_of(cluster, job, 0)
    second = job.node_of(1)
    daemon.kill()
    daemon.wait_gone()
    world = world_of(job, size=SIZE - 1, after=generation)
    assert world.reason is Reason.NODE_DEAD
    assert world.lost == (daemon.node,)
    assert job.node_of(0) == second
    daemon.start()
    assert world_of(job, size=SIZE, after=world.generation).reason is Reason.JOINED
    assert job.node_of(0) == second


def test_whole_node_may_die(cluster: Cluster, job: Job) -> None:
    """Agent, pool and workers at once."""
    generation = job.wait_steady(SIZE)
    daemon = daemon_of(cluster, job, 2)
    daemon.kill_node()
    world = world_of(job, size=SIZE - 1, after=generation)
    assert world.lost == (daemon.node,)
    daemon.start()
    world_of(job, size=SIZE, after=world.generation)


def test_agent_that_is_ended_says_goodbye(cluster: Cluster, job: Job) -> None:
    """The others need not find out: the reason is that it left."""
    generation = job.wait_steady(SIZE)
    daemon = daemon_of(cluster, job, 0)
    assert daemon.end() == 0
    assert not daemon.processes
    world = world_of(job, size=SIZE - 1, after=generation)
    assert world.reason is Reason.NODE_LEFT
    assert world.lost == (daemon.node,)
    daemon.start()
    world_of(job, size=SIZE, after=world.generation)


def test_stopped_agent_comes_back_as_another_incarnation(cluster: Cluster, job: Job) -> None:
    """Stopped for longer than its lease; what it did before counts no more when it wakes up."""
    generation = job.wait_steady(SIZE)
    before = job.world
    daemon = daemon_of(cluster, job, 0)
    old_workers = daemon.workers(generation)
    daemon.send(signal.SIGSTOP)
    world = world_of(job, size=SIZE - 1, after=generation)
    assert world.reason is Reason.NODE_LOST
    assert world.lost == (daemon.node,)
    daemon.send(signal.SIGCONT)
    after = world_of(job, size=SIZE, after=world.generation)
    assert before is not None
    old, new = before.node(after.nodes[-1].node), after.node(after.nodes[-1].node)
    assert old is not None and new is not None
    assert new.node == daemon.node
    assert new.incarnation != old.incarnation
    assert old_workers and not set(old_workers) & set(daemon.processes)
    job.log.check()


def test_two_agents_may_be_killed_at_once(cluster: Cluster, job: Job) -> None:
    """Rank 0 among them: two of the three that propose are gone."""
    generation = job.wait_steady(SIZE)
    lost = [daemon_of(cluster, job, rank) for rank in (0, 1)]
    for daemon in lost:
        daemon.kill()
    world = world_of(job, size=1, after=generation)
    for daemon in lost:
        daemon.start()
    world_of(job, size=SIZE, after=world.generation)


def test_all_agents_may_be_killed_at_once(cluster: Cluster, job: Job) -> None:
    """Nobody is left to propose; the job goes on as soon as they are back."""
    generation = job.wait_steady(SIZE)
    for daemon in cluster.daemons.values():
        daemon.kill()
    for daemon in cluster.daemons.values():
        daemon.wait_gone()
        daemon.start()
    world_of(job, size=SIZE, after=generation)


def test_node_that_flaps_is_counted_and_disturbs_little(cluster: Cluster, job: Job) -> None:
    """Twice each time: when it dies and when it is back. The longer it must wait the more often."""
    generation = begin = job.wait_steady(SIZE)
    daemon = daemon_of(cluster, job, SIZE - 1)
    before = losses_of(job, daemon)
    for times in (1, 2):
        with job.struck(generation, SIZE - 1):
            daemon.kill_node()
        world = world_of(job, size=SIZE - 1, after=generation)
        assert losses_of(job, daemon) == before + times
        daemon.start()
        generation = world_of(job, size=SIZE, after=world.generation).generation
    assert generation == begin + 4
    delays_s = [readmission_delay_s(losses) for losses in range(before + 3)]
    assert delays_s == sorted(delays_s)
    assert delays_s[0] < delays_s[-1]


@contextmanager
def silent_fork_server(path: Path) -> Iterator[str]:
    """One that takes connections, and never says that it is ready."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(str(path))
        silent.listen()
        yield str(path)


def test_node_that_dies_before_it_is_ready_disturbs_nobody(
    cluster: Cluster, job: Job, tmp_path: Path
) -> None:
    """It is no member of the world yet, so the world stands."""
    generation = job.wait_steady(SIZE)
    daemon = daemon_of(cluster, job, SIZE - 1)
    daemon.kill_node()
    world = world_of(job, size=SIZE - 1, after=generation)
    with silent_fork_server(tmp_path / "silent") as path:
        # Its pools wait for a minute for this one: so it is not ready, however late this kill is.
        cluster.fork_server_environ = {SERVER_VARIABLE: path}
        try:
            for _ in range(3):
                daemon.start()
                assert job.wait_member(daemon.node, is_ready=False).slots == ()
                daemon.kill_node()
        finally:
            cluster.fork_server_environ = None
    assert job.world == world
    daemon.start()
    assert world_of(job, size=SIZE, after=world.generation).generation == world.generation + 1


def test_recorded_events_replay_to_identical_effects(cluster: Cluster, job: Job) -> None:
    """Of all that the module did to these agents: the shipped decide has no hidden input."""
    job.wait_steady(SIZE)
    journals = sorted(cluster.journals.glob("nodes.*.jsonl"))
    assert len(journals) > 2 * SIZE
    for path in journals:
        # An agent that was killed may have written half a line.
        whole = path.read_text().rpartition("\n")[0].splitlines()
        assert replay(whole) is None, path


def losses_of(job: Job, daemon: Daemon) -> int:
    world = job.world
    assert world is not None
    exclusion = next((e for e in world.excluded if e.node == daemon.node), None)
    return exclusion.losses if exclusion is not None else 0

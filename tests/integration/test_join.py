"""The same call on every host, as with torchrun: `elasticd run --join`."""

import os
import signal
from collections.abc import Iterator

import pytest

from elasticd.records.reason import Phase
from tests.fixtures.cluster import (
    LEASE_TTL_S,
    SCRIPTS,
    SHUTDOWN_S,
    Call,
    Cluster,
    Job,
    cluster_on,
    until,
)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def call(cluster: Cluster, job: Job, host: str) -> Call:
    return cluster.call(
        *("run", "--join", "--job", job.name, "--nnodes", "1:2", "--node-id", host),
        *("--local-addr", "127.0.0.1", "--log-dir", str(cluster.runs)),
        *("--lease-ttl", f"{LEASE_TTL_S:g}", "--shutdown-timeout", str(SHUTDOWN_S)),
        # Relative, as people call it: each host's agent resolves it in its own folder.
        os.path.relpath(SCRIPTS / "train.py", cluster.folder),
        str(job.end_file),
    )


def test_hosts_join_leave_and_end_with_the_job(cluster: Cluster) -> None:
    """No daemon; one host leaves by Ctrl-C and comes back, and all end when the job does."""
    job = Job(cluster, "joined")
    hosts = {host: call(cluster, job, host) for host in ("h1", "h2")}
    until(lambda: cluster.store.get(cluster.keys.spec(job.name)), lambda: hosts["h1"].err)
    generation = job.wait_steady(2)
    assert {job.node_of(0), job.node_of(1)} == {"h1", "h2"}
    leaver = job.node_of(0)
    hosts[leaver].send(signal.SIGINT)
    assert hosts[leaver].wait().code == 128 + signal.SIGINT
    step = job.wait_step(size=1, after=generation)
    hosts[leaver] = call(cluster, job, leaver)
    job.wait_step(size=2, after=step.generation)
    job.wait_steady(2)
    assert job.finish().phase is Phase.SUCCEEDED
    for host in hosts.values():
        ended = host.wait()
        assert ended.code == 0, ended.err
        assert "job succeeded" in ended.err


def test_host_gives_its_last_checkpoint_up_by_the_second_ctrl_c(cluster: Cluster) -> None:
    """Its keeper stands still, and goes with the call."""
    host = cluster.call(
        *("run", "--join", "--job", "saves", "--nnodes", "1", "--node-id", "h1"),
        *("--local-addr", "127.0.0.1", "--log-dir", str(cluster.runs)),
        *("--checkpoint", f"file://{cluster.folder / 'saved'}", str(SCRIPTS / "saves_last.py")),
    )
    awaited = "waiting for the last checkpoint"
    until(lambda: awaited in host.err, lambda: host.err)
    host.send(signal.SIGINT)
    said = host.err.count(awaited)
    until(lambda: host.err.count(awaited) > said + 1, lambda: host.err)
    host.send(signal.SIGINT)
    ended = host.wait()
    assert ended.code == 0, ended.err
    assert ended.err.count("the last checkpoint was given up") == 1
    cluster.mark.wait_none_left()

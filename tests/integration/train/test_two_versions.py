"""The agents of a cluster are replaced by those of another version, one by one and back again."""

import subprocess
from collections.abc import Iterator

import pytest

from elasticd.records.reason import Phase
from tests.fixtures.cluster import Cluster, Job, cluster_on
from tests.fixtures.fork_server import SERVER_VARIABLE
from tests.fixtures.history import ROOT
from tests.fixtures.undisturbed import assert_losses_are_undisturbed

BEFORE = "d256e58c80e744104dcb4c4da473096e6aacf0c0"
"""The version before, as long as none is released: a commit that is a day older than this test."""
NODES = ("a", "b")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that runs the version before."""
    made = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True, check=True)
    tree = tmp_path_factory.mktemp("older")
    # Not by tarfile: the first releases of Python 3.11 have none of its filters.
    subprocess.run(["tar", "-x", "-C", str(tree)], input=made.stdout, check=True)
    # Its agents import torch themselves: the tests' fork server is of this version.
    return {"PYTHONPATH": f"{tree}:{tree / 'agent'}", SERVER_VARIABLE: ""}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, older: dict[str, str]) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("two-versions")) as cluster:
        for node in NODES:
            cluster.environ_of[node] = dict(older)
            cluster.daemon(node, slots=2)
        yield cluster


@pytest.fixture(scope="module")
def jobs(cluster: Cluster, older: dict[str, str]) -> list[Job]:
    """One in each mode, submitted by the older version."""
    (cluster.folder / "lives.end.speed").write_text("flat 0.03")
    size = ("--nnodes", "1:2", "--nproc-per-node", "1")
    saved = ("--checkpoint", f"file://{cluster.folder / 'saved'}")
    return [
        cluster.submit("lives", *size, script="scaled.py", env=older),
        cluster.submit("resumes", *size, *saved, script="resumed.py", env=older),
    ]


def replace(cluster: Cluster, jobs: list[Job], node: str, environ: dict[str, str]) -> None:
    """Drain a node, start its agent anew, and wait until both jobs train on it again."""
    assert cluster.run("drain", node, "--wait").code == 0
    daemon = cluster.daemons[node]
    before = {job.name: job.wait_steady(1) for job in jobs}
    assert daemon.end() == 0
    daemon.wait_gone()
    cluster.environ_of[node] = dict(environ)
    daemon.start()
    daemon.wait_registered()
    assert cluster.run("drain", node, "--undo").code == 0
    for job in jobs:
        job.wait_step(size=len(NODES), after=before[job.name])
        job.wait_steady(len(NODES))


@pytest.mark.slow
@pytest.mark.history
@pytest.mark.timeout(1200)
def test_jobs_train_on_while_the_agents_are_replaced_one_by_one(
    cluster: Cluster, jobs: list[Job], older: dict[str, str]
) -> None:
    """From the older version to this one and back: each mixture trains, and loses nothing."""
    for job in jobs:
        job.wait_step(size=len(NODES))
    for environ in ({}, older):
        for node in NODES:
            replace(cluster, jobs, node, environ)
    lives, resumes = jobs
    assert [job.finish().phase for job in jobs] == [Phase.SUCCEEDED, Phase.SUCCEEDED]
    training = next(iter(lives.results.values())).training
    assert training is not None
    assert (training.repeated, training.skipped) == (0, 0)
    assert_losses_are_undisturbed(cluster.runs, lives)
    assert_losses_are_undisturbed(cluster.runs, resumes, "resumed.py")

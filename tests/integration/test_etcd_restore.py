"""etcd is restored from a backup, with etcd's own tool, under a job that trains."""

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from elasticd.records.reason import Phase
from elasticd.store.private_etcd.embedded import EmbeddedEtcd
from tests.fixtures.cluster import Job, cluster_on
from tests.fixtures.etcd import PROGRAMS

SIZE = 2
ETCD = PROGRAMS["etcd-3.5"]
ETCDCTL = ETCD.with_name("etcdctl")
"""Of the same wheel: Debian has it in a package of its own, which need not be there."""


def etcdctl(*args: str) -> None:
    environ = {**os.environ, "ETCDCTL_API": "3"}
    done = subprocess.run(
        [ETCDCTL, *args], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def restore(etcd: EmbeddedEtcd, backup: Path, folder: Path) -> None:
    """As operations.md says: stop etcd, restore beside it, take the place of its data."""
    etcd.stop()
    etcdctl("snapshot", "restore", str(backup), "--data-dir", str(folder))
    shutil.rmtree(etcd.data)
    shutil.copytree(folder, etcd.data)
    etcd.restart()


def recovered(job: Job, after: int) -> int:
    """Kill rank 0 of a world that came after this one and stands; the generation that follows.

    A restored etcd may cost more than one change of world: a generation in which one rank made a
    step may be over before the other one has made its own.
    """
    job.wait_step(size=SIZE, after=after)
    generation = job.wait_steady(SIZE)
    with suppress(ProcessLookupError):  # It was ended just now, which is a change of world too.
        os.kill(job.wait_pid(generation, 0), signal.SIGKILL)
    return job.wait_step(size=SIZE, after=generation).generation


def test_training_goes_on_after_etcd_was_restored_from_a_backup(tmp_path: Path) -> None:
    """The backup knows an older world, and the leases that the agents have still."""
    with (
        EmbeddedEtcd(tmp_path / "etcd", program=ETCD, env=os.environ) as etcd,
        cluster_on(tmp_path, [etcd.url]) as cluster,
    ):
        for node in ("a", "b"):
            cluster.daemon(node)
        job = cluster.submit("restored", "--nnodes", "2")
        job.wait_steady(SIZE)
        etcdctl("--endpoints", etcd.url, "snapshot", "save", str(tmp_path / "backup"))
        generation = recovered(job, 0)
        restore(etcd, tmp_path / "backup", tmp_path / "restored")
        # Not one that there was before: its logs and checkpoints stand.
        recovered(job, generation)
        assert job.finish().phase is Phase.SUCCEEDED

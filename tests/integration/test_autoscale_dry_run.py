"""`elasticd autoscale run --dry-run` as a process of its own, on a job's records in a real etcd."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from signal import SIGTERM

from tests.fixtures.autoscaler_scene import POLICY, Cluster, JobScene
from tests.fixtures.cluster import ELASTICD, PATIENCE_S, cluster_on, until


def test_a_dry_run_decides_and_changes_no_size(tmp_path: Path) -> None:
    """What needs no metric is decided at once: one node is wanted, and two are the least."""
    with cluster_on(tmp_path) as cluster:
        job = Cluster(cluster.store, cluster.keys).job().submit(replace(POLICY, min_nodes=2))
        job.want("autoscaler", 1)
        job.run("a")
        decided(cluster.endpoints, job, "--dry-run")
        assert job.wanted == 1
        told = cluster.run("autoscale", "explain", job.name)
        assert "dry run: the autoscaler was started with --dry-run" in told.out, told
        assert "#1 1 -> 2 nodes (limits, dry run)" in told.out
        decided(cluster.endpoints, job)
        assert job.wanted == 2
        assert [each.is_dry_run for each in job.decisions] == [True, False]


def decided(endpoints: Sequence[str], job: JobScene, *flags: str) -> None:
    """Run an autoscaler until it has made one more decision."""
    before = len(job.decisions)
    command = [*ELASTICD, "autoscale", "run", "--etcd", ",".join(endpoints), "--period", "0.2s"]
    autoscaler = subprocess.Popen([*command, "--listen", "127.0.0.1:0", *flags])
    try:
        until(lambda: len(job.decisions) > before, lambda: job.memory)
    finally:
        autoscaler.send_signal(SIGTERM)
    assert autoscaler.wait(PATIENCE_S) == 0

"""What the Kubernetes guide shows of a verdict: the words and the form of today."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import cast

from chaos.cluster.fault import Kind
from chaos.cluster.plan import Plan
from chaos.cluster.run import ClusterRun
from tests.unit.chaos.cluster.small_cluster import SmallCluster

PAGE = Path(__file__).parents[4] / "docs" / "guides" / "kubernetes.md"


def test_guide_shows_what_a_run_prints() -> None:
    """Of this cluster in memory, as the guide says beside it."""
    cluster = SmallCluster(nodes=("node1", "node2", "node3"))
    cluster.job = cluster.true = replace(cluster.job, name="long", job="default.long")
    run = ClusterRun(
        cluster,
        Plan(kinds=(Kind.POD_FORCE_DELETE, Kind.WORKER_KILL, Kind.WORKER_STOP), faults=4),
        ("long",),
        say=lambda _: None,
        stop=cast(threading.Event, cluster),
        now_s=lambda: cluster.now_s,
    )
    verdict = run.run()
    assert verdict.exit_code == 0
    assert f"```text\n{verdict.to_text()}\n```" in PAGE.read_text()

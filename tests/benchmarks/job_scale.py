"""`kubectl scale` of an ElasticJob on a real Kubernetes: to the first commit at the new size.

    python -m tests.benchmarks.job_scale --trials 30

Takes the cluster of `make kube-up`, and leaves it with elasticd on it; or makes one, which ends
with it. The size goes from three nodes to two and back. The time is from just before the request to
the moment at which as many nodes as were asked for have committed in a newer world; commits of the
world before do not count. The same request as kubectl makes goes to the API server without kubectl,
whose own start takes longer than what it asks for.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from elasticd.kube.api.port import ELASTIC_JOBS, Name
from tests.benchmarks.pod_deletion import LIMIT_S, STEADY_S
from tests.benchmarks.report import percentile, table
from tests.kube.elastic_cluster import ElasticCluster
from tests.kube.testbed.cluster import NODES, Cluster

JOB = "resized"
POLL_S = 0.05


def measure(elastic: ElasticCluster, trials: int) -> dict[int, list[float]]:
    """Scale down and up in turn, each when all nodes of the size before train; seconds by size."""
    elastic.apply(JOB, steps=10_000_000)
    found: dict[int, list[float]] = {len(NODES) - 1: [], len(NODES): []}
    elastic.wait_trains(JOB, nodes=len(NODES), after_s=time.monotonic())
    for trial in range(trials):
        for size in found:
            time.sleep(STEADY_S)
            found[size].append(_scale(elastic, size))
            print(f"{trial}: to {size} nodes in {found[size][-1]:.3f} s", file=sys.stderr)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=30)
    asked = parser.parse_args()
    cluster = Cluster()
    was_up = cluster.is_up()
    try:
        cluster.up()
        elastic = ElasticCluster(cluster)
        elastic.up()
        found = measure(elastic, asked.trials)
        lost = sum(int(change["lost_steps"]) for change in elastic.changes(JOB))
        elastic.kubectl("delete", "ej", JOB, "--timeout=60s")
        _show(found, lost)
    finally:
        if not was_up:
            cluster.down()
    return 0


def _scale(elastic: ElasticCluster, size: int) -> float:
    generation = elastic.commits(JOB)[-1].generation
    path = f"{ELASTIC_JOBS.path(Name('default', JOB))}/scale"
    at_s = time.monotonic()
    elastic.cluster.api.patch(path, {"spec": {"replicas": size}})
    while time.monotonic() < at_s + LIMIT_S:
        first: dict[str, float] = {}
        for each in elastic.commits(JOB):
            if each.generation > generation:
                first.setdefault(each.node, each.at_s)
        if len(first) == size:
            return max(first.values()) - at_s
        time.sleep(POLL_S)
    raise RuntimeError(f"{JOB} did not train on {size} nodes within {LIMIT_S:g} s.")


def _show(found: dict[int, list[float]], lost: int) -> None:
    rows = [
        (f"to {size} nodes", str(len(values)), *_percentiles(values))
        for size, values in found.items()
    ]
    print(table(("scaled", "n", "p50", "p90", "max"), rows, markdown=True))
    print(f"lost steps: {lost} in all")


def _percentiles(values: Sequence[float]) -> Sequence[str]:
    return [f"{percentile(values, share):.3f} s" for share in (0.5, 0.9, 1.0)]


if __name__ == "__main__":
    sys.exit(main())

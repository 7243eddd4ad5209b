"""A pod of an agent is deleted by force on a real Kubernetes: to the next commit, and to all nodes.

    python -m tests.benchmarks.pod_deletion --seconds 600

Takes the cluster of `make kube-up`, and leaves it with elasticd on it; or makes one, which ends
with it. The time is from just before the request to the first commit of a node that stays, in a
world without the deleted pod; commits of the old world do not count. The longest time in which none
of them committed is told beside it: what the job stood still for. Then, until the deleted pod's
node commits again: when its next container began, and how long it took from there.
"""

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.pods.agent_pod import AGENT, agent_pods
from chaos.pods.node import first_process
from tests.benchmarks.report import percentile, table
from tests.kube.elastic_cluster import Commit, ElasticCluster
from tests.kube.testbed.cluster import NODES, Cluster

JOB = "deleted"
LIMIT_S = 60.0
STEADY_STEPS = 20
STEADY_S = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """One, as the survivors' commits tell it."""

    at_s: float
    node: str
    next_s: float
    gap_s: float
    began_s: float
    """To the start of the next container."""
    back_s: float
    """To the first commit of the deleted pod's node."""


def measure(elastic: ElasticCluster, seconds: float) -> Sequence[Deletion]:
    """Delete pod after pod, each node's in turn, each when all three train again."""
    elastic.apply(JOB, steps=10_000_000)
    until_s = time.monotonic() + seconds
    found: list[Deletion] = []
    while time.monotonic() < until_s:
        steady_from_s = time.monotonic()
        elastic.wait_trains(JOB, nodes=len(NODES), after_s=steady_from_s)
        time.sleep(STEADY_S)
        node = NODES[len(found) % len(NODES)]
        found.append(_delete(elastic, node))
        each = found[-1]
        print(
            f"{node}: {each.next_s:.3f} s, stood still {each.gap_s:.3f} s, next container after "
            f"{each.began_s:.2f} s, it trained again after {each.back_s:.2f} s",
            file=sys.stderr,
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    asked = parser.parse_args()
    cluster = Cluster()
    was_up = cluster.is_up()
    try:
        cluster.up()
        elastic = ElasticCluster(cluster)
        elastic.up()
        found = measure(elastic, asked.seconds)
        _show(found, elastic.changes(JOB))
        elastic.kubectl("delete", "ej", JOB, "--timeout=60s")
    finally:
        if not was_up:
            cluster.down()
    return 0


def _delete(elastic: ElasticCluster, node: str) -> Deletion:
    before = elastic.commits(JOB)
    generation = before[-1].generation
    pod = elastic.agent(node)
    at_s = time.monotonic()
    elastic.cluster.api.delete(f"/api/v1/namespaces/elasticd/pods/{pod}?gracePeriodSeconds=0")
    stay = _newer(elastic, generation, at_s, node, is_there=False)
    before_it = [each for each in elastic.commits(JOB) if each.node != node]
    back = _newer(elastic, stay[0].generation, at_s, node, is_there=True)[0]
    return Deletion(
        at_s=at_s,
        node=node,
        next_s=stay[0].at_s - at_s,
        gap_s=_gap_s(before_it, at_s, stay[0]),
        began_s=_began_s(elastic, node) - at_s,
        back_s=back.at_s - at_s,
    )


def _newer(
    elastic: ElasticCluster, generation: int, after_s: float, node: str, *, is_there: bool
) -> Sequence[Commit]:
    """Wait until the node, or one of the others, commits in a newer world; return those commits."""
    while time.monotonic() < after_s + LIMIT_S:
        new = [
            each
            for each in elastic.commits(JOB)
            if each.generation > generation
            and each.at_s > after_s
            and (each.node == node) is is_there
        ]
        if new:
            return new
        time.sleep(0.05)
    raise RuntimeError(f"After {node} was struck nobody committed within {LIMIT_S:g} s.")


def _began_s(elastic: ElasticCluster, node: str) -> float:
    """Return when the first process of the agent's container on a node began."""
    elastic.agent(node)
    items = json.loads(elastic.ours("get", "pods", "-l", AGENT, "-o", "json"))["items"]
    return first_process(agent_pods(items)[node]).began_ticks / os.sysconf("SC_CLK_TCK")


def _gap_s(stay: Sequence[Commit], at_s: float, new: Commit) -> float:
    """Return the longest time between two commits of those that stay, around the deletion."""
    last_s = max(each.at_s for each in stay if each.at_s <= at_s)
    times = [each.at_s for each in stay if last_s <= each.at_s <= new.at_s]
    return max(later - sooner for sooner, later in itertools.pairwise(times))


def _show(found: Sequence[Deletion], changes: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for name, values in (
        ("deletion to the survivors' next commit", [each.next_s for each in found]),
        ("of that, no survivor committed for", [each.gap_s for each in found]),
        ("deletion to the start of the next container", [each.began_s for each in found]),
        ("that start to its node's first commit", [each.back_s - each.began_s for each in found]),
        ("deletion to the first commit with its node", [each.back_s for each in found]),
    ):
        p50, p90, most = (percentile(values, share) for share in (0.5, 0.9, 1.0))
        rows.append((name, str(len(values)), f"{p50:.3f} s", f"{p90:.3f} s", f"{most:.3f} s"))
    print(table(("series", "n", "p50", "p90", "max"), rows, markdown=True))
    reasons = [str(each["reason"]) for each in changes]
    print(f"changes of world: { {each: reasons.count(each) for each in sorted(set(reasons))} }")
    lost = [int(each["lost_steps"]) for each in changes]
    print(f"lost steps: {sum(lost)} in all, most at once {max(lost)}")


if __name__ == "__main__":
    sys.exit(main())

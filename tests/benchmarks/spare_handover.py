"""The idle spare of one job goes to another that lacks a node: how long that takes.

Three daemons with a slot each on one etcd. A job has all that it may have, two nodes, and keeps the
third one as a spare. Then a second job of one node is submitted, again and again.
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic

from elasticd.records.codec import decode
from elasticd.records.job import JobSpec
from elasticd.records.reason import Phase
from tests.benchmarks.bench import workplace
from tests.benchmarks.call import run
from tests.benchmarks.report import Figure, Result, Series
from tests.fixtures.cluster import Cluster, Job, cluster_on, until

__all__ = ["measure"]

TRIALS = 20
TARGET_S = 2.0
NODES = 3


@dataclass(slots=True)
class Taken:
    joined: list[float] = field(default_factory=list)
    stepped: list[float] = field(default_factory=list)
    back: list[float] = field(default_factory=list)


def measure(trials: int) -> Result:
    """Submit one job after the other, beside the one that keeps the spare."""
    taken, changes = Taken(), 0
    with workplace() as folder, cluster_on(folder) as cluster:
        cluster.fork_server_environ = {}
        for number in range(NODES):
            cluster.daemon(f"n{number}").wait_registered()
        keeps = cluster.submit("keeps", "--nnodes", str(NODES - 1))
        generation = keeps.wait_steady(NODES - 1)
        world = keeps.world
        assert world is not None
        spare = next(iter(set(cluster.daemons) - {node.node for node in world.nodes}))
        keeps.wait_member(spare)
        for trial in range(trials):
            _trial(cluster, keeps, spare, f"lacks-{trial}", taken)
            print(f"joined {taken.joined[-1]:.3f} s, step {taken.stepped[-1]:.3f} s", flush=True)
        changes = keeps.wait_steady(NODES - 1) - generation
        assert keeps.finish().phase is Phase.SUCCEEDED
    return _result(trials, taken, changes)


def _trial(cluster: Cluster, keeps: Job, spare: str, name: str, taken: Taken) -> None:
    job = cluster.submit(name, "--nnodes", "1")
    step = job.wait_step(size=1)
    item = cluster.store.get(cluster.keys.spec(job.name))
    assert item is not None
    submitted_s = decode(JobSpec, item.value).submitted_at_unix_s
    taken.joined.append(_joined_s(cluster, spare, name, 1) - submitted_s)
    offset_s = datetime.now(UTC).timestamp() - monotonic()
    taken.stepped.append(step.at_s + offset_s - submitted_s)
    before = _joins(cluster, spare, keeps.name)
    assert job.finish().phase is Phase.SUCCEEDED
    ended_s = datetime.now(UTC).timestamp()
    keeps.wait_member(spare)
    taken.back.append(max(0.0, _joined_s(cluster, spare, keeps.name, len(before) + 1) - ended_s))


def _joins(cluster: Cluster, node: str, job: str) -> list[float]:
    """When the node's agent wrote that it had joined the job, by the clock of the machine."""
    lines = [
        json.loads(line)
        for line in cluster.daemons[node].log.splitlines()
        if '"job.joined"' in line and f'"{job}"' in line
    ]
    return [datetime.fromisoformat(line["timestamp"]).timestamp() for line in lines]


def _joined_s(cluster: Cluster, node: str, job: str, count: int) -> float:
    # What an agent logs is written by a thread of its own.
    until(
        lambda: len(_joins(cluster, node, job)) >= count,
        lambda: f"{node} did not join {job}: {cluster.daemons[node].log[-2000:]}",
    )
    return _joins(cluster, node, job)[count - 1]


def _result(trials: int, taken: Taken, changes: int) -> Result:
    joined = Series(name="submitted to the spare's join", values=tuple(taken.joined))
    stepped = Series(name="submitted to the first step there", values=tuple(taken.stepped))
    back = Series(name="end of that job to the spare's return", values=tuple(taken.back))
    return Result(
        name="spare_handover",
        title="The spare of one job goes to another that lacks a node",
        command=f"python -m tests.benchmarks.spare_handover --trials {trials}",
        method=(
            "Three daemons with a slot each; a job of two nodes keeps the third one as a spare.",
            "Join: from the submission, by the second job's record, to the agent's `job.joined`.",
            "Step: from the submission to the first one of the worker on the spare (restart mode).",
            "Return: from the second job's end, seen from outside, to the agent's next join.",
        ),
        series=(joined, stepped, back),
        figures=(
            Figure(name=f"{joined.name}, max", value=joined.at(1.0), target=TARGET_S),
            Figure(name=f"{stepped.name}, p50", value=stepped.at(0.5)),
            Figure(
                name="changes of world of the job that had the spare",
                value=changes,
                unit="",
                target=0,
            ),
        ),
    )


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

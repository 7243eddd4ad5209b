"""The second job on the same daemon, and a node that comes back: from its join to its first step.

Two daemons on one etcd, each with one slot. One forks pools from its fork server, the other has a
pool import torch for each job, as before. In turn each gets a job and then is drained and
undrained.
"""

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from elasticd.records.reason import Phase
from tests.benchmarks.bench import workplace
from tests.benchmarks.call import run
from tests.benchmarks.report import Figure, Result, Series
from tests.fixtures.cluster import Cluster, Daemon, Job, cluster_on

__all__ = ["measure"]

TRIALS = 10
TARGET_S = 0.3
KINDS = {"fork server": {}, "each pool imports": {"ELASTICD_FORK_SERVER": "/nowhere"}}
"""The environment of each daemon, beside its own."""


@dataclass(slots=True)
class Taken:
    job: list[float] = field(default_factory=list)
    back: list[float] = field(default_factory=list)


def measure(trials: int) -> Result:
    """Give each daemon a job after the other."""
    taken = {kind: Taken() for kind in KINDS}
    with workplace() as folder, cluster_on(folder) as cluster:
        daemons = {}
        for number, (kind, more) in enumerate(KINDS.items()):
            cluster.fork_server_environ = more
            daemons[kind] = cluster.daemon(f"n{number}", kind=str(number))
        for trial in range(trials + 1):
            for number, kind in enumerate(KINDS):
                job = cluster.submit(
                    f"job-{trial}-{number}", "--nnodes", "1", "--node-label", f"kind={number}"
                )
                found = Taken([_first_step_s(daemons[kind], job, 0)])
                found.back.append(_comes_back_s(cluster, daemons[kind], job))
                if trial > 0:  # The first job of a daemon finds no server yet.
                    taken[kind].job += found.job
                    taken[kind].back += found.back
                assert job.finish().phase is Phase.SUCCEEDED
                print(f"{kind}: {found.job[0]:.3f} s, back {found.back[0]:.3f} s", flush=True)
    return _result(trials, taken)


def _comes_back_s(cluster: Cluster, daemon: Daemon, job: Job) -> float:
    generation = job.wait_steady(1)
    assert cluster.run("drain", daemon.node, "--force").code == 0
    daemon.wait_workers_gone(generation)
    assert cluster.run("drain", daemon.node, "--undo").code == 0
    return _first_step_s(daemon, job, generation)


def _first_step_s(daemon: Daemon, job: Job, after: int) -> float:
    """The seconds from the node's join to the first step of a generation after this one."""
    step = job.wait_step(size=1, after=after)
    joined = [
        json.loads(line)["timestamp"]
        for line in daemon.log.splitlines()
        if '"job.joined"' in line and f'"{job.name}"' in line
    ]
    joined_s = datetime.fromisoformat(joined[-1]).timestamp()
    offset_s = datetime.now(UTC).timestamp() - time.monotonic()
    return step.at_s + offset_s - joined_s


def _result(trials: int, taken: dict[str, Taken]) -> Result:
    series, figures = [], []
    for kind, each in taken.items():
        second = Series(name=f"{kind}: second job, join to its first step", values=tuple(each.job))
        back = Series(name=f"{kind}: node that comes back, the same", values=tuple(each.back))
        series += [second, back]
        if kind == "fork server":
            figures = [
                Figure(name=f"{one.name}, p50", value=one.at(0.5), target=TARGET_S)
                for one in (second, back)
            ]
    return Result(
        name="second_job",
        title="The second job on a daemon, and a node that comes back",
        command=f"python -m tests.benchmarks.second_job --trials {trials}",
        method=(
            "Two daemons with a slot each, one without a fork server; one worker in restart mode.",
            "The two in turn, from the daemon's line `job.joined` to the worker's first step.",
            "The first job of each daemon is not counted.",
        ),
        series=tuple(series),
        figures=tuple(figures),
    )


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

"""What one evaluation of 100 jobs costs, without Prometheus: `python -m ...autoscaler_evaluation`.

The shipped loop reads the records of 100 jobs with eight nodes each, measures their windows, lets
`decide` compose a target of two metrics with the goodput rule, and writes what matters, all in a
store in memory. The source of the metrics answers at once. Every evaluation finds progress that is
new, and each fourth one a window that is whole, as one each 15 s does with windows of 60 s.

The slowest evaluations are those in which the windows of all 100 jobs end at once, so that each has
its curve fitted and its memory written: jobs that did not all begin at the same moment spread that.
"""

import logging
import os
import random
import time

import structlog

from elasticd.autoscale.decide import decide
from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.records.autoscale.policy import (
    GoodputRule,
    MetricKind,
    Policy,
    TargetMetric,
    TargetRule,
)
from tests.benchmarks.call import run
from tests.benchmarks.report import Figure, Result, Series
from tests.fixtures.autoscaler_scene import Cluster, FakeSource, JobScene, Leader, Ticks

__all__ = ["measure"]

TRIALS = 200
JOBS, NODES = 100, 8
EVERY_S = 15.0
WARM = 20
"""Evaluations that are not counted: the first ones read all records and know no size."""
POLICY = Policy(
    target=TargetRule(
        metrics=(
            TargetMetric(name="queue", query="a", target=10.0, kind=MetricKind.LOAD),
            TargetMetric(name="speed", query="b", target=1.0, kind=MetricKind.SUPPLY),
        )
    ),
    goodput=GoodputRule(),
    set_at_unix_s=1.0,
)


def measure(trials: int) -> Result:
    load = os.getloadavg()[0]
    quiet = structlog.make_filtering_bound_logger(logging.WARNING)
    structlog.configure(wrapper_class=quiet)
    clock = Ticks()
    cluster = Cluster()
    cluster.node(*(f"n{number}" for number in range(NODES)))
    jobs = [_job(cluster, number) for number in range(JOBS)]
    source = FakeSource({"queue": QueryReading(value=5.0), "speed": QueryReading(value=1.0)})
    leader = Leader(cluster, decide, source=source, now_s=clock)
    noise = random.Random(1)
    steps = [0.0] * JOBS
    took_s, cpu_s = [], []
    for number in range(WARM + trials):
        clock.s += EVERY_S
        for at, job in enumerate(jobs):
            steps[at] += EVERY_S * 5.0 * noise.gauss(1.0, 0.02)
            job.progress(round(steps[at]), (number + 1) * EVERY_S)
        began_s, began_cpu_s = time.perf_counter(), time.thread_time()
        leader.evaluate()
        cpu_s.append(time.thread_time() - began_cpu_s)
        took_s.append(time.perf_counter() - began_s)
    counted = Series(name="one evaluation", values=tuple(took_s[WARM:]))
    cpu = Series(name="its processor time", values=tuple(cpu_s[WARM:]))
    decisions = sum(len(job.decisions) for job in jobs)
    leader.kill()
    return Result(
        name="autoscaler_evaluation",
        title=f"One evaluation of {JOBS} jobs by the autoscaler",
        command="python -m tests.benchmarks.autoscaler_evaluation",
        method=tuple(" ".join(part.split()) for part in (__doc__ or "").split("\n\n")[1:]),
        figures=(
            Figure(
                name=f"evaluation of {JOBS} jobs, p50",
                value=counted.at(0.5),
                target=0.05,
            ),
            Figure(name=f"evaluation of {JOBS} jobs, p99", value=counted.at(0.99)),
        ),
        series=(counted, cpu),
        notes=(
            f"{decisions} decisions were made and written meanwhile.",
            f"Load average before: {load:.1f}, priority: nice {os.nice(0)}.",
        ),
    )


def _job(cluster: Cluster, number: int) -> JobScene:
    job = cluster.job(f"job-{number}", uid=f"u{number}", max_nodes=NODES).submit(POLICY)
    job.run(*(f"n{at}" for at in range(NODES // 2)))
    return job


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

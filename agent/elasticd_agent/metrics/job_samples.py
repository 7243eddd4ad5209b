"""The samples of one job, of what its meter showed. Pure."""

import math
from collections.abc import Iterator
from typing import TypeAlias

from elasticd.goodput.cause import TimeCause
from elasticd.records.job import JobStatus, target_nodes
from elasticd.records.reason import Cause, Phase
from elasticd.rendezvous.state import JobState
from elasticd.telemetry.metrics.catalog import by_name
from elasticd.telemetry.metrics.exposition import Sample
from elasticd_agent.metrics.job_meter import JobCounts, JobReading

__all__ = ["job_samples"]

Values: TypeAlias = Iterator[tuple[str, tuple[str, ...], float]]


def job_samples(reading: JobReading) -> Iterator[Sample]:
    """Yield what this node exports of the job."""
    name = str(reading.spec.name)
    for metric, labels, value in _values(reading):
        yield Sample(by_name(f"elasticd_{metric}"), (name, *labels), value)


def _values(reading: JobReading) -> Values:
    if reading.slots or not reading.is_over:
        yield "job_slots", (), reading.slots
    yield from _counters(reading.counts)
    for cause in TimeCause:
        yield "slot_seconds_total", (cause.value,), reading.slot_seconds.get(cause, 0.0)
    yield "step_wait_seconds_total", (), reading.step_wait_s
    if reading.state is not None and reading.is_told_here:
        yield from _standing(reading, reading.state)
    if reading.step is not None:
        yield "step", (), reading.step
        yield "epoch", (), reading.epoch
    for name, value in reading.scalars.items():
        yield "scalar", (name,), value


def _counters(counts: JobCounts) -> Values:
    yield "steps_total", (), counts.steps
    yield "samples_total", (), counts.samples
    yield "step_seconds_total", (), counts.step_seconds
    yield "lost_steps_total", (), counts.lost_steps
    for reason, count in counts.changes.items():
        yield "changes_total", (reason,), count
    for phase, seconds in counts.change_seconds.items():
        yield "change_seconds_total", (phase,), seconds


def _standing(reading: JobReading, state: JobState) -> Values:
    spec, world = state.spec, state.world
    status = state.status or JobStatus()
    for phase in Phase:
        yield "job_phase", (phase.value,), float(phase is status.phase)
    is_training = world is not None and not state.is_over and not state.is_world_ended
    yield "workers", (), world.size if world is not None and is_training else 0
    yield "nodes", (), len(world.nodes) if world is not None and is_training else 0
    yield "wanted_nodes", (), 0 if state.is_over else target_nodes(spec, state.wants)
    yield "late_ratio", (), reading.late_ratio
    yield "min_nodes", (), spec.min_nodes
    yield "max_nodes", (), spec.max_nodes
    yield "generation", (), world.generation if world is not None else 0
    yield "generation_start_timestamp_seconds", (), reading.generation_start_unix_s
    for cause in Cause:
        limit = int(getattr(spec.limits, cause.value))
        yield "restart_budget", (cause.value,), limit if limit >= 0 else math.inf
        yield "restart_budget_used", (cause.value,), status.budget.used(cause)

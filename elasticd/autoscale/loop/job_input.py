"""Builds the input of the rules for one job at one moment, from the job's records. Pure."""

from collections.abc import Mapping

from elasticd.autoscale.evaluation_input import Observation, QueryReading
from elasticd.autoscale.loop.availability import AvailableNodes, available
from elasticd.autoscale.loop.job_watch import JobFacts
from elasticd.autoscale.loop.measurement import Measured, used_node_hours
from elasticd.control.job_policy import AUTOSCALER
from elasticd.records.job import size_want, target_nodes
from elasticd.records.reason import Phase

__all__ = ["job_input"]


def job_input(
    facts: JobFacts,
    measured: Measured,
    cluster: AvailableNodes,
    readings: Mapping[str, QueryReading],
    *,
    now_s: float,
    unix_s: float,
) -> Observation:
    """Build the input; `now_s` is the deciding process's own clock."""
    spec, world, progress = facts.spec, facts.world, facts.progress
    want = size_want(facts.wants)
    pinned_by = want.writer if want is not None and want.writer != AUTOSCALER else ""
    has_steps = progress is not None and progress.has_steps
    return Observation(
        job=spec.name,
        uid=spec.uid,
        now_s=now_s,
        unix_s=unix_s,
        min_nodes=spec.min_nodes,
        max_nodes=spec.max_nodes,
        nodes=len(world.nodes) if world is not None else 0,
        wanted=target_nodes(spec, facts.wants),
        is_running=facts.status.phase is Phase.RUNNING and world is not None,
        is_in_process=facts.status.is_in_process,
        generation=facts.generation,
        available=available(facts, cluster),
        is_pinned=bool(pinned_by),
        pinned_by=pinned_by,
        step=progress.step if progress is not None and has_steps else 0,
        is_paused=any(member.is_paused for member in facts.members),
        data_share=measured.data_share,
        used_node_hours=used_node_hours(facts),
        windows=measured.windows,
        has_full_window=measured.has_full_window,
        change_cost_s=measured.change_cost_s,
        readings=readings,
    )

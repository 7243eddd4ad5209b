"""The incident of a change of world, as this node saw it: begun, completed, and written once.

A change in restart mode is measured when its last worker is started. One whose workers are attached
goes on until their first commits, so its incident waits for these in the state.
"""

import dataclasses
from collections.abc import Mapping

from elasticd.records.account.incident import Incident
from elasticd.records.world import World
from elasticd.rendezvous.conduct.in_process import living_workers
from elasticd.rendezvous.effect import Effect, WriteIncident
from elasticd.rendezvous.own_record import my_node
from elasticd.rendezvous.state import JobState, Stage, Timing, replace

__all__ = ["begin_incident", "counted_once", "phases_until", "write_incident"]

Step = tuple[JobState, tuple[Effect, ...]]

LEAST_UNNOTICED_S = 1.0
"""The least time that counts: steps are heard of five times a second, so less would be noise."""


def phases_until(timing: Timing, now_s: float) -> dict[str, float]:
    """Return the seconds of each phase of a change that has come so far."""
    marks = (
        ("detect", timing.fact_s, timing.proposed_s),
        ("agree", timing.proposed_s or timing.fact_s, timing.world_s),
        ("stop", timing.world_s, timing.stopped_s),
        ("start", timing.stopped_s, now_s),
    )
    return {
        name: round(max(0.0, end_s - begin_s), 4)
        for name, begin_s, end_s in marks
        if begin_s is not None and end_s is not None
    }


def begin_incident(state: JobState, incident: Incident, world: World) -> JobState:
    """Begin the incident when our workers have entered; the rest follows with their
    first commit.
    """
    phases = dict(incident.phases_s)
    timing = state.timing
    if world.at_step is None and timing.world_s is not None and timing.entered_s is not None:
        phases["push"] = round(max(0.0, timing.entered_s - timing.world_s), 4)
    for name in ("stop", "start"):
        phases.pop(name, None)
    kept = dataclasses.replace(
        incident, phases_s=phases, unnoticed_s=_unnoticed_s(state, world, incident)
    )
    return replace(state, incident=kept, timing=Timing())


def _unnoticed_s(state: JobState, world: World, incident: Incident) -> float:
    """Return how long a hang or a lease that had to run out stopped the training before anybody
    knew.
    """
    pace, noticed_s = state.pace, state.timing.world_s
    if pace is None or noticed_s is None or world.reason.is_planned:
        return 0.0
    if pace.generation != world.generation - 1:
        return 0.0  # Not known, or told with the change before.
    if state.ended_s > pace.stepped_s:
        noticed_s = state.ended_s  # Then it waited for nodes.
    else:
        noticed_s -= sum(incident.phases_s.get(name, 0.0) for name in ("detect", "agree"))
    idle_s = noticed_s - pace.stepped_s - pace.step_s
    return round(idle_s, 2) if idle_s >= LEAST_UNNOTICED_S else 0.0


def write_incident(state: JobState, now_s: float) -> Step:
    """Write the incident down once our workers have stepped, or when the next change came first."""
    incident, world = state.incident, state.world
    if incident is None or world is None or state.is_fenced:
        return state, ()
    if state.stage not in (Stage.MEMBER, Stage.LEAVING):
        return state, ()
    if world.generation == incident.generation and not state.is_over:
        mine = my_node(state)
        living = living_workers(state, mine) if mine is not None else []
        if any(worker.stepped != world.generation for worker in living):
            return state, ()
    incident = dataclasses.replace(incident, phases_s=counted_once(incident.phases_s))
    return replace(state, incident=None), (WriteIncident(incident=incident),)


def counted_once(phases_s: Mapping[str, float]) -> dict[str, float]:
    """Return the phases with the time to close the old group counted once, since the worker's push
    includes it.
    """
    phases = dict(phases_s)
    if "push" in phases and "abort" in phases:
        phases["push"] = round(max(0.0, phases["push"] - phases["abort"]), 4)
    return phases

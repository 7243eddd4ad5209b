"""Writes the decisions about one job into the agent's log, for people."""

from typing import Any

from elasticd.rendezvous.decide import RACES_BEFORE_REREAD
from elasticd.rendezvous.state import JobState

__all__ = ["log_changes"]

Log = Any
"""A bound structlog logger; structlog has no narrower type for it."""


def log_changes(log: Log, before: JobState, state: JobState) -> None:
    """Log what is worth it in how a job stands, compared with how it stood before."""
    world = state.world
    if world is not None and world is not before.world:
        log.info(
            "world.committed",
            generation=world.generation,
            reason=world.reason.value,
            size=world.size,
            nodes=len(world.nodes),
            is_mine=state.is_in_world,
            proposer=world.proposer,
        )
    if state.adopted_arrival != before.adopted_arrival:
        log.info("world.arrived", generation=state.adopted_arrival)
    if state.failure is not None and state.failure is not before.failure:
        failure = state.failure
        log.warning(
            "worker.failed",
            generation=failure.generation,
            rank=failure.rank,
            ending=failure.ending,
            exception=failure.exception,
            is_secondary=failure.is_secondary,
            in_a_row=failure.in_a_row,
            is_slot_given_up=failure.is_last_of_slot,
        )
    status = state.status
    if status is not None and status is not before.status:
        was = before.status
        if was is None or (was.phase, was.message) != (status.phase, status.message):
            log.info("job.status_changed", phase=status.phase.value, message=status.message)
    if state.is_replaced and not before.is_replaced:
        log.warning("job.replaced", uid=state.spec.uid)
    if state.lost_races == RACES_BEFORE_REREAD > before.lost_races:
        log.warning("proposal.refused", times=state.lost_races)
    if state.is_fenced != before.is_fenced:
        log.warning("lease.uncertain" if state.is_fenced else "lease.held")
    if state.stage is not before.stage:
        leaving = state.leaving.value if state.leaving is not None else ""
        log.info("member.stage_changed", stage=state.stage.value, leaving=leaving)

"""Sentences and rows about where the time of a job's slots went. Pure."""

from collections.abc import Mapping

from elasticd.cli.words import seconds
from elasticd.control.job_time import JobTime
from elasticd.control.report import Change
from elasticd.goodput.cause import TimeCause

__all__ = ["change_cost", "time_rows", "time_sentence"]

SHOWN_S = 0.05
"""What is less would be a row of zeros."""


def time_rows(time: JobTime) -> list[tuple[str, str, str]]:
    """One row for each cause that took any time, training first, then the most costly; all."""
    taken = {cause: value for cause, value in time.seconds.items() if value >= SHOWN_S}
    order = sorted(taken, key=lambda cause: (cause is not TimeCause.TRAIN, -taken[cause]))
    rows = [
        (_name(cause, time), f"{taken[cause]:.1f}", _share(taken[cause], time)) for cause in order
    ]
    return [*rows, ("all", f"{time.total_s:.1f}", _share(time.total_s, time))]


def time_sentence(time: JobTime) -> str:
    """Say the shares that matter, and what they are of."""
    if time.goodput is None:
        return "goodput: no slot had any time yet"
    text = f"goodput {time.goodput:.1%} of the time of all slots but spare ones"
    if time.attainment is not None:
        text += f", attainment {time.attainment:.1%} of what was wanted"
    if not time.is_in_process:
        text += " (steps are not seen here: all that workers ran counts)"
    return text


def change_cost(change: Change) -> str:
    """Say what a change cost from the last commit before it to the first one after it."""
    if not change.slot_s:
        return ""
    parts = _by_cost(change.spent_s)
    return f"cost {seconds(change.slot_s)} of slots: {parts}"


def _by_cost(spent_s: Mapping[str, float]) -> str:
    found = sorted(spent_s.items(), key=lambda item: -item[1])
    return ", ".join(f"{cause} {seconds(value)}" for cause, value in found if value)


def _name(cause: TimeCause, time: JobTime) -> str:
    is_running = cause is TimeCause.TRAIN and not time.is_in_process
    return "running" if is_running else cause.value


def _share(value: float, time: JobTime) -> str:
    return f"{value / time.total_s:.1%}" if time.total_s > 0.0 else ""

"""Measures steps and seconds of one generation, from the records of the node of rank 0.

Two progress records of one generation were written by one node, so their difference in
`generation_s` is time on one clock, independent of other clocks. Steps count from the 20th of the
generation on, or, if its first step is not known, from the 20th after its first record: the first
steps of a world are slower, because of connections, caches and the compiler. There is no
measurement across a change of world, or if the age or the step went back: then another node writes,
or the scripts started again.

The account of the same node, written at the same time, says which part of that time belongs to
steps. The causes `train`, `redone`, `save` and `data` belong to steps: each step needs them.
Waiting for data is included, since a job that waits for its data gains nothing from more nodes.
`unexplained` is included, because its cause is not known. All other causes are not: a pause, a
checkpoint that is read, a recovery.

A job also stops for reasons outside it: a disk, another process. A few such seconds in the only
window of a trial would make the size look worse than it is, for ever. So a window in which the rate
jumps begins again, once: a stop that happens in each window is part of the time of a step.

Rejected: the median of the rates within a window. A slow job makes a few steps between two
readings, and a median of whole numbers is wrong by a tenth then, but the mean is not.

Rejected: the mean of the step times that agents export. It needs a Prometheus, and leaves out the
time between two steps.
"""

from dataclasses import dataclass, replace

from elasticd.autoscale.evaluation_input import MeasuredWindow
from elasticd.goodput.cause import TimeCause
from elasticd.goodput.formula import causes_of
from elasticd.records.account.time_spent import JobProgress, TimeSpent
from elasticd.records.ids import Generation

__all__ = [
    "FIRST_STEPS",
    "WINDOW_STEPS",
    "Measuring",
    "ProgressReading",
    "measured",
    "reading_of",
    "window_between",
]

FIRST_STEPS = 20
"""The number of first steps of a generation that are not measured."""
WINDOW_STEPS = 10
"""The least number of steps of a window: its error may be one step at either end."""
JUMP_SHARE, JUMP_STEPS = 0.7, 3
"""The rate jumps if the one part of the window has less than this part of the steps that the other
part predicts, or the reverse, and differs by this many steps: whole numbers may differ by one or
two."""
OF_STEPS = frozenset(
    {TimeCause.TRAIN, TimeCause.REDONE, TimeCause.SAVE, TimeCause.DATA, TimeCause.UNEXPLAINED}
)
"""The causes whose time belongs to a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReading:
    """The progress of a job at one time of its writer's clock."""

    generation: Generation
    generation_s: float
    """The age of the generation, on that clock."""
    step: int
    nodes: int
    """The number of nodes of the generation's world."""
    without_steps_s: float | None = 0.0
    """The seconds of each slot of that node, since some start, that belong to no step. None if they
    are not known at this time, so that no window begins or ends with this reading."""
    first_step: int | None = None
    """The first step of the generation; None if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """The state between two readings of one job; the first reading is measured with `Measuring()`.

    The state need not outlive its process: the next leader begins with the next reading.
    """

    first: ProgressReading | None = None
    """The first reading of the generation."""
    begin: ProgressReading | None = None
    """The first reading of the window; None until the first steps are over."""
    newest: ProgressReading | None = None
    windows: int = 0
    """The number of windows of this generation."""
    is_anew: bool = False
    """True if this window began a second time."""


def reading_of(
    progress: JobProgress, spent: TimeSpent | None, nodes: int, first_step: int | None = None
) -> ProgressReading:
    """Make a reading of two records of the node of rank 0: the job's progress and its own account.

    `spent` is None if the node has written no account; `first_step` is None if no incident gives
    it. If the two records are not from the same time, since they were read between the two writes,
    the reading has only the job's progress.
    """
    without_s: float | None = 0.0
    if spent is not None:
        is_of_one_moment = (spent.uid, spent.generation, spent.generation_s) == (
            progress.uid,
            progress.generation,
            progress.generation_s,
        )
        without_s = _without_steps_s(spent) if is_of_one_moment else None
    return ProgressReading(
        generation=progress.generation,
        generation_s=progress.generation_s,
        step=progress.step,
        nodes=nodes,
        without_steps_s=without_s,
        first_step=first_step,
    )


def measured(
    before: Measuring, reading: ProgressReading, *, window_s: float
) -> tuple[Measuring, MeasuredWindow | None]:
    """Take a reading; return the new state, and a window of at least `window_s` if one ended."""
    first, begin, newest = before.first, before.begin, before.newest
    if first is None or newest is None or not _follows(newest, reading):
        before, first, begin, newest = Measuring(first=reading), reading, None, reading
    now = replace(before, newest=reading)
    if reading.without_steps_s is None:
        return now, None
    if begin is None:
        known = reading.first_step if reading.first_step is not None else first.step
        is_begun = reading.step >= known + FIRST_STEPS
        return (replace(now, begin=reading) if is_begun else now), None
    if not before.is_anew and _has_jumped(begin, newest, reading):
        return replace(now, begin=reading, is_anew=True), None
    if reading.generation_s - begin.generation_s < window_s:
        return now, None
    window = window_between(begin, reading)
    if window is None:
        return replace(now, begin=reading), None
    if window.seconds < window_s or window.steps < WINDOW_STEPS:
        return now, None
    windows = before.windows + 1
    return replace(now, begin=reading, windows=windows, is_anew=False), window


def window_between(begin: ProgressReading, end: ProgressReading) -> MeasuredWindow | None:
    """Return the steps between two readings of one generation; None if they are no measurement.

    The caller must know whether the first steps of the generation are over.
    """
    if begin.without_steps_s is None or end.without_steps_s is None or not _follows(begin, end):
        return None
    without_s = end.without_steps_s - begin.without_steps_s
    seconds = end.generation_s - begin.generation_s - without_s
    if without_s < 0.0 or seconds <= 0.0:
        return None  # The account was taken over in between, and counts from 0 again.
    return MeasuredWindow(
        generation=end.generation, nodes=end.nodes, steps=end.step - begin.step, seconds=seconds
    )


def _has_jumped(begin: ProgressReading, middle: ProgressReading, end: ProgressReading) -> bool:
    """Return whether the steps of two parts of a window were made at different rates."""
    first, last = window_between(begin, middle), window_between(middle, end)
    if first is None or last is None:
        return False
    expected = first.steps / first.seconds * last.seconds
    low, high = sorted((expected, float(last.steps)))
    return low < JUMP_SHARE * high and high - low >= JUMP_STEPS


def _follows(before: ProgressReading, after: ProgressReading) -> bool:
    return (
        before.generation == after.generation
        and before.nodes == after.nodes
        and before.generation_s <= after.generation_s
        and before.step <= after.step
    )


def _without_steps_s(spent: TimeSpent) -> float:
    seconds = causes_of(spent.seconds)
    without_s = sum(value for cause, value in seconds.items() if cause not in OF_STEPS)
    return without_s / max(1, spent.slots)

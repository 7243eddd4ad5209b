"""The measurement: steps and seconds of one generation, from what the node of rank 0 writes.

Two progress records of one generation were written by one node, so their difference in
`generation_s` is time on one clock, whatever the clocks of others say. Steps count from the 20th
of the generation on, or, where its first is not known, the 20th after its first record: the first
ones of a world are slower, by connections, caches, the compiler. Nothing is measured across a
change of world, nor where the age or the step went back: then another node writes, or the scripts
began anew.

What of that time belongs to a step is asked of the account of the same node, written at the same
moment. The causes `train`, `redone`, `save` and `data` do: what a step needs each time, waiting for
data too, since a job that waits for its data gains nothing by more nodes. `unexplained` does, as
nobody knows better. All others do not: a pause, a checkpoint that is read, a recovery.

A job also stands still for reasons that are nobody's: a disk, a neighbour. A few seconds of that in
the one window of a size that is tried make the size look worse than it is, for good. So a window in
which the rate jumps begins anew, once: what happens in each window is part of what a step takes.

Rejected: the median of the rates within a window. Between two readings there are a few steps of a
slow job, and a median of whole numbers is wrong by a tenth where the mean is not.

Rejected: the mean of the step times that agents export. It needs a Prometheus, and leaves out what
lies between two steps.
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
"""How many first steps of a generation are not measured."""
WINDOW_STEPS = 10
"""The least steps of a window: it may be wrong by the part of a step at either end."""
JUMP_SHARE, JUMP_STEPS = 0.7, 3
"""The rate jumps where less than this part of the steps was made that the other part of the window
predicts, or the reverse, and by so many steps: whole numbers differ by one or two."""
OF_STEPS = frozenset(
    {TimeCause.TRAIN, TimeCause.REDONE, TimeCause.SAVE, TimeCause.DATA, TimeCause.UNEXPLAINED}
)
"""The causes whose time belongs to a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReading:
    """How far a job was at one moment of its writer's clock."""

    generation: Generation
    generation_s: float
    """The age of the generation, on that clock."""
    step: int
    nodes: int
    """The number of nodes of the generation's world."""
    without_steps_s: float | None = 0.0
    """The seconds of each slot of that node, from some time on, that belong to no step. None if
    they are not known for this moment, so that no window begins or ends with it."""
    first_step: int | None = None
    """The first step that the generation made; None if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """What is remembered between two readings of one job; the first one follows on `Measuring()`.

    It need not outlive its process: the next leader begins with the next reading.
    """

    first: ProgressReading | None = None
    """The first reading of the generation."""
    begin: ProgressReading | None = None
    """The first reading of the window; None while the first steps are not over."""
    newest: ProgressReading | None = None
    windows: int = 0
    """How many windows this generation had."""
    is_anew: bool = False
    """True if this window was begun anew."""


def reading_of(
    progress: JobProgress, spent: TimeSpent | None, nodes: int, first_step: int | None = None
) -> ProgressReading:
    """Return what two records of the node of rank 0 say, the job's progress and its own account.

    `spent` None: it has written no account; `first_step` None: incidents do not tell it. Where the
    two records are not of one moment, since they were read between the two writes, the reading says
    only how far the job is.
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
    """Take a reading; return what to remember, and a window of at least `window_s` if one ended."""
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
    """Return the steps between two readings of one generation; None where nothing is measured.

    The caller must know whether the first steps of the generation are over.
    """
    if begin.without_steps_s is None or end.without_steps_s is None or not _follows(begin, end):
        return None
    without_s = end.without_steps_s - begin.without_steps_s
    seconds = end.generation_s - begin.generation_s - without_s
    if without_s < 0.0 or seconds <= 0.0:
        return None  # Its account was taken over in between, and counts from 0 again.
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

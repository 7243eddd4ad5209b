"""The speed of a training, and its estimated end, from the reports of its agents. Pure.

The rate is that of the last half minute. So a pause for a checkpoint or a change of world counts,
and the estimated end is not too early. The training ends with the last epoch that the script asked
for, or at the last step that the script named, whichever comes first.
"""

from collections import deque
from dataclasses import dataclass

from elasticd.records.account.progress import RankProgress
from elasticd.records.ids import Generation

__all__ = ["Speed", "SpeedEstimator"]

WINDOW_S = 30.0
LEAST_S = 1.0
"""The least time between two answers that give a rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The speed of a training; a field is None if it is not known yet."""

    steps_s: float | None = None
    """Committed steps per second."""
    samples_s: float | None = None
    """Samples per second, of all ranks."""
    rest_s: float | None = None
    """Seconds to the end of the training."""


@dataclass(frozen=True, slots=True)
class _Point:
    at_s: float
    generation: Generation
    step: int
    samples: int


class SpeedEstimator:
    """Estimates the speed from a rank's reports, in the order of time.

    The estimate begins anew if a step was undone.
    """

    def __init__(self) -> None:
        self._points: deque[_Point] = deque()

    def take(self, rank: RankProgress, now_s: float) -> Speed:
        """Add a report, and return the speed at that time; `now_s` is a monotonic clock's time."""
        if rank.step is None:
            return Speed()
        samples = rank.epoch * rank.epoch_samples + rank.consumed
        point = _Point(now_s, rank.generation, rank.step, samples)
        last = self._points[-1] if self._points else point
        if point.step < last.step or samples < last.samples:
            self._points.clear()  # A step was undone, or epochs got shorter.
        while self._points and now_s - self._points[0].at_s > WINDOW_S and len(self._points) > 1:
            self._points.popleft()
        self._points.append(point)
        first = self._points[0]
        passed_s = now_s - first.at_s
        if passed_s < LEAST_S:
            known = 1.0 / rank.step_s if rank.step_s > 0.0 else None
            return Speed(steps_s=known)
        samples_s = (samples - first.samples) / passed_s if rank.epoch_samples else None
        steps_s = (point.step - first.step) / passed_s
        return Speed(steps_s=steps_s, samples_s=samples_s, rest_s=_rest_s(rank, steps_s, samples_s))


def _rest_s(rank: RankProgress, steps_s: float, samples_s: float | None) -> float | None:
    """Return the seconds to the nearer of the two ends; None if neither end is known."""
    ends = []
    samples = (rank.epochs - rank.epoch) * rank.epoch_samples - rank.consumed
    if samples_s and rank.epochs and samples >= 0:
        ends.append(samples / samples_s)
    if steps_s and rank.steps and rank.step is not None:
        ends.append(max(0, rank.steps - rank.step) / steps_s)
    return min(ends, default=None)

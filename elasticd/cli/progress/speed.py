"""How fast a training goes, and when it will be over, from what its agents report. Pure.

The rate is that of the last half minute. So a pause for a checkpoint or a change of world is part
of it, and the estimated end is not too early because of those. It ends with the last epoch that was
asked for, or at the step at which the script said that it ends, whichever comes first.
"""

from collections import deque
from dataclasses import dataclass

from elasticd.records.account.progress import RankProgress
from elasticd.records.ids import Generation

__all__ = ["Speed", "SpeedEstimator"]

WINDOW_S = 30.0
LEAST_S = 1.0
"""Two answers that are closer together than this say little about a rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast a training goes; None where that is not known, or not yet."""

    steps_s: float | None = None
    """Committed steps per second."""
    samples_s: float | None = None
    """Samples per second, of all ranks."""
    rest_s: float | None = None
    """Seconds to the end that `state.epochs` was told of."""


@dataclass(frozen=True, slots=True)
class _Point:
    at_s: float
    generation: Generation
    step: int
    samples: int


class SpeedEstimator:
    """Takes what a rank reports, in the order of time; a step that was undone begins it anew."""

    def __init__(self) -> None:
        self._points: deque[_Point] = deque()

    def take(self, rank: RankProgress, now_s: float) -> Speed:
        """Return the speed as of this answer."""
        if rank.step is None:
            return Speed()
        samples = rank.epoch * rank.epoch_samples + rank.consumed
        point = _Point(now_s, rank.generation, rank.step, samples)
        last = self._points[-1] if self._points else point
        if point.step < last.step or samples < last.samples:
            self._points.clear()  # Undone; or the epochs of another loader are shorter.
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
    """Return how long it takes to the nearer of the two ends; None if it knows neither."""
    ends = []
    samples = (rank.epochs - rank.epoch) * rank.epoch_samples - rank.consumed
    if samples_s and rank.epochs and samples >= 0:
        ends.append(samples / samples_s)
    if steps_s and rank.steps and rank.step is not None:
        ends.append(max(0, rank.steps - rank.step) / steps_s)
    return min(ends, default=None)

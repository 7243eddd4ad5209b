"""A job's progress over time, as far as this process saw it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = ["SAMPLES_LIMIT", "ProgressSample", "ProgressSamples"]

SAMPLES_LIMIT = 1200
"""The number of samples that are kept: twenty minutes at one a second. Then every second sample is
dropped, and new samples are taken half as often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSample:
    at_s: float
    """When it was taken, on this process's monotonic clock, which orders the samples."""
    at_unix_s: float
    step: int
    step_s: float
    """The duration of a step; 0 if not known."""
    scalars: Mapping[str, float] = field(default_factory=dict)


class ProgressSamples:
    """The history of one job, from its first sample to its last; its length is limited."""

    def __init__(self) -> None:
        self._kept: list[ProgressSample] = []
        self._newest: ProgressSample | None = None
        self._apart_s = 0.0
        self.times_moved = 0
        """How often the samples got other times, since the clock was set back."""

    def add(self, sample: ProgressSample) -> None:
        """Add a sample; a sample that is not newer than all others is dropped.

        If the clock was set back meanwhile, those before get the times that it would have shown.
        """
        newest = self._newest
        if newest is not None:
            if sample.at_s <= newest.at_s:
                return
            if sample.at_unix_s <= newest.at_unix_s:
                passed_s = sample.at_s - newest.at_s
                self._move(sample.at_unix_s - passed_s - newest.at_unix_s)
        self._newest = sample
        if self._kept and sample.at_unix_s - self._kept[-1].at_unix_s < self._apart_s:
            return
        self._kept.append(sample)
        if len(self._kept) > SAMPLES_LIMIT:
            self._kept = self._kept[::2]
            span_s = self._kept[-1].at_unix_s - self._kept[0].at_unix_s
            self._apart_s = span_s / len(self._kept)

    def all(self) -> tuple[ProgressSample, ...]:
        """Return all samples, the newest last."""
        last = self._newest
        if last is None or self._kept[-1] is last:
            return tuple(self._kept)
        return (*self._kept, last)

    def _move(self, by_s: float) -> None:
        newest = self._newest
        is_kept = bool(self._kept) and self._kept[-1] is newest
        self._kept = [replace(each, at_unix_s=each.at_unix_s + by_s) for each in self._kept]
        if newest is not None:
            moved = replace(newest, at_unix_s=newest.at_unix_s + by_s)
            self._newest = self._kept[-1] if is_kept else moved
        self.times_moved += 1

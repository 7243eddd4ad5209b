"""A job's progress over time, as far as this process saw it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["SAMPLES_LIMIT", "ProgressSample", "ProgressSamples"]

SAMPLES_LIMIT = 1200
"""The number of samples that are kept: twenty minutes at one a second. Then every second sample is
dropped, and new samples are taken half as often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSample:
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

    def add(self, sample: ProgressSample) -> None:
        """Add a sample; a sample that is not newer than all others is dropped."""
        newest = self._newest
        if newest is not None and sample.at_unix_s <= newest.at_unix_s:
            return
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

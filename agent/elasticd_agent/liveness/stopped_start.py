"""Which worker a signal stopped before it called `elasticd.run`: decided from /proc. Pure.

Before that call a worker sends no heartbeats, and from a slow import (a file system that hangs, a
large library) nothing tells one that will never end. One case leaves no doubt: a process all of
whose threads a signal has stopped (state T, as by SIGSTOP), and that uses no CPU time. It imports
nothing, and goes on only if another signal comes; until then nobody else gets its slot.

A debugger stops a process in state t, a disk holds it in state D; neither is judged. A tool that
limits a process's CPU time by stopping and continuing it lets it have some.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from elasticd_agent.liveness.hang_detector import Frozen, ProcessSample

__all__ = ["LIMIT_S", "StoppedStarts"]

LIMIT_S = 30.0
"""Longer than anybody needs to stop a process and attach a debugger, and short beside the time for
which the slot would be empty."""
PAUSE_S = 2.0
"""The pause between two looks at each such worker."""
SKIPPED_LOOKS = 3
"""If two looks are this many pauses apart, we stood still ourselves: the time does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stop:
    since_s: float
    cpu_s: float


class StoppedStarts:
    """The workers that were started and have not called `elasticd.run`.

    The caller gives the time, samples the workers that are `due`, and has them judged.
    """

    def __init__(self, *, limit_s: float = LIMIT_S, pause_s: float = PAUSE_S) -> None:
        self._limit_s, self._pause_s = limit_s, pause_s
        self._stops: dict[int, _Stop | None] = {}
        """The stop that each worker is in, as far as it was seen."""
        self._looked_s = 0.0

    def watch(self, pid: int) -> None:
        self._stops[pid] = None

    def forget(self, pid: int) -> None:
        """Forget a worker that has called `elasticd.run`, is being stopped, or has ended."""
        self._stops.pop(pid, None)

    def due(self, *, now_s: float) -> tuple[int, ...]:
        """Return the workers of which `judge` wants samples now."""
        return tuple(self._stops) if now_s >= self._looked_s + self._pause_s else ()

    def rest_s(self, *, now_s: float) -> float | None:
        """Return the time until the next look; None if there is nobody to look at."""
        return max(0.0, self._looked_s + self._pause_s - now_s) if self._stops else None

    def judge(
        self, samples: Mapping[int, ProcessSample | None], *, now_s: float
    ) -> tuple[Frozen, ...]:
        """Return the workers that have been stopped for too long, each of them once."""
        is_gap = now_s - self._looked_s > SKIPPED_LOOKS * self._pause_s
        self._looked_s = now_s
        verdicts = []
        for pid, sample in samples.items():
            if pid not in self._stops:
                continue  # It called `elasticd.run` meanwhile.
            stop = _continued(None if is_gap else self._stops[pid], sample, now_s)
            self._stops[pid] = stop
            if stop is not None and now_s - stop.since_s >= self._limit_s:
                self.forget(pid)
                verdicts.append(_verdict(pid, now_s - stop.since_s))
        return tuple(verdicts)


def _continued(stop: _Stop | None, sample: ProcessSample | None, now_s: float) -> _Stop | None:
    """Return the stop that a worker is in; None if any of its threads is not stopped."""
    living = "" if sample is None else sample.states.translate({ord(c): None for c in "ZX"})
    if sample is None or not living or living.strip("T"):
        return None
    if stop is not None and sample.cpu_s == stop.cpu_s:
        return stop
    return _Stop(since_s=now_s, cpu_s=sample.cpu_s)


def _verdict(pid: int, stopped_s: float) -> Frozen:
    why = (
        "The process is stopped by a signal (such as SIGSTOP), and was so before it called "
        f"elasticd.run: no CPU time for {stopped_s:.0f} s."
    )
    return Frozen(pid=pid, why=why, has_run=False)

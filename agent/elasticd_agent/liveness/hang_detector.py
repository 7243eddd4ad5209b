"""Which worker is frozen, and which makes no progress: decided from beats and /proc. Pure.

A process that computes needs no attention, however long it is silent; one that waits for a peer
in a collective looks to /proc like one that is stuck for good. So two questions are kept apart:

*Frozen*: its beats stopped, so either it does not run or nobody in it gets the GIL, and it does
not run either: no thread wants a CPU and the CPU time stands still. A process that is starved of
CPU *wants* one (state R), one that computes with the GIL held *has* one. Known after half a second
if a signal stopped it, else after one, and after five where it may wait for a disk or a library.

*Stalled*: it lives, but no number of its beats changes:
`elasticd_agent/liveness/progress_timeout.py`.

A worker that has not sent its first beat is not judged here, but by
`elasticd_agent/liveness/stopped_start.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from elasticd.channel.worker import (
    Beat,
    Broken,
    Entered,
    Finished,
    Formed,
    FromWorker,
    Left,
    Stepped,
)
from elasticd.records.ids import Generation, JobName
from elasticd_agent.liveness.observed_worker import ObservedWorker, Quiet
from elasticd_agent.liveness.progress_timeout import Resumed, Stalled, stalled

__all__ = ["Frozen", "HangDetector", "ProcessSample", "Verdict"]

SILENT_S = 1.0
"""A process that is silent for this long (five heartbeats) has a problem, or its machine has."""
LATE_S = 0.35
"""From this silence on /proc is sampled, so that QUIET_S of samples exist before SILENT_S."""
STOPPED_S, STOPPED_QUIET_S = 0.55, 0.2
"""The same for a process that a signal stopped: its state leaves no doubt."""
QUIET_S = 0.4
"""How long a silent process must be seen neither to run nor to want to."""
PATIENCE_S = 5.0
"""The same limit where it may be at work without running: in state D (a disk, a page of a network
file system), or outside the loop over batches, where libraries are loaded with the GIL held."""
IDLE_CPU_S, IDLE_CPU_SHARE = 0.015, 0.02
"""CPU use that does not count as running: one tick of the kernel's clock, and threads that wait for
the GIL and look for it every 5 ms (measured with 16 of them: 0.0175)."""
SKIPPED_TURNS = 3
"""If two of our own looks are this many pauses apart, we stood still ourselves."""
_ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSample:
    """The facts in /proc about a process at one moment."""

    states: str
    """One letter for each thread; the list may end at the first R."""
    cpu_s: float
    """CPU seconds of all threads since the process started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """It does not run, and will not run by itself."""

    pid: int
    why: str
    has_run: bool = True
    """False if it has not called `elasticd.run`: it is in no world, and no stacks are asked for."""


Verdict: TypeAlias = Frozen | Stalled | Resumed


class HangDetector:
    """Keeps the facts about each worker's heartbeat.

    The caller gives the time, and must call `judge` regularly.
    """

    def __init__(self) -> None:
        self._workers: dict[int, ObservedWorker] = {}
        self._looked_s: float | None = None

    def watch(self, pid: int, *, job: JobName, limit_s: float) -> None:
        """Begin to watch this worker; `limit_s` is how long it may make no progress."""
        self._workers[pid] = ObservedWorker(pid=pid, job=job, limit_s=limit_s)

    def forget(self, pid: int) -> None:
        self._workers.pop(pid, None)

    @property
    def is_needed(self) -> bool:
        """Return True if any worker sends heartbeats."""
        return any(worker.beat is not None for worker in self._workers.values())

    def receive(self, pid: int, message: FromWorker | None, *, now_s: float) -> None:
        """Take in a worker's message; None means that its connection ended, so its silence means
        nothing any more.
        """
        worker = self._workers.get(pid)
        if worker is None:
            return
        if message is None or isinstance(message, Finished):
            # What it does after `train` is its own affair, and so is how its interpreter ends.
            self.forget(pid)
            return
        worker.heard_s, worker.quiet, worker.is_told_frozen = now_s, None, False
        match message:
            case Beat():
                worker.beats(message, now_s)
            case Formed(generation=generation, step=step):
                worker.forms(generation, step, now_s)
            case Stepped(generation=generation, step=step):
                if generation != worker.formed:
                    worker.forms(generation, step, now_s)
                worker.has_stepped = True
                worker.moved_s = now_s
            case Entered() | Left() | Broken():
                worker.formed = Generation(0)
            case _:
                pass

    def late(self, *, now_s: float) -> tuple[int, ...]:
        """Return the workers whose heartbeats are overdue: `judge` wants samples of these alone."""
        return tuple(
            worker.pid
            for worker in self._workers.values()
            if worker.beat is not None
            and not worker.is_told_frozen
            and now_s - worker.heard_s >= LATE_S
        )

    def judge(
        self, samples: Mapping[int, ProcessSample | None], *, now_s: float, pause_s: float
    ) -> tuple[Verdict, ...]:
        """Return new verdicts; `pause_s` is the intended time since the last look."""
        before_s, self._looked_s = self._looked_s, now_s
        if before_s is not None and now_s - before_s > SKIPPED_TURNS * pause_s:
            self._skip(now_s - before_s, now_s)
            return ()
        verdicts: list[Verdict] = []
        for pid, sample in samples.items():
            worker = self._workers.get(pid)
            if worker is not None:
                worker.quiet = _sampled(worker.quiet, sample, now_s)
                verdicts += _frozen(worker, now_s)
        for world in self._worlds():
            verdicts += stalled(world, now_s)
        return tuple(verdicts)

    def pause(self) -> None:
        """Pause: no look will follow for a while."""
        self._looked_s = None

    def _skip(self, gap_s: float, now_s: float) -> None:
        """Skip a time in which we were stopped or starved: what we did not see does not count, and
        silence begins anew.
        """
        for worker in self._workers.values():
            worker.heard_s, worker.quiet = now_s, None
            worker.moved_s = min(now_s, worker.moved_s + gap_s)

    def _worlds(self) -> Iterable[list[ObservedWorker]]:
        """Group the workers whose numbers can be compared: those of one job and one generation."""
        worlds: dict[tuple[JobName, Generation], list[ObservedWorker]] = {}
        for worker in self._workers.values():
            if worker.in_loop is not None:
                worlds.setdefault((worker.job, worker.formed), []).append(worker)
        return worlds.values()


# --- frozen -----------------------------------------------------------------------------------


def _sampled(quiet: Quiet | None, sample: ProcessSample | None, now_s: float) -> Quiet | None:
    """Continue the run of quiet samples, or end it, or begin another."""
    living = "" if sample is None else sample.states.translate({ord(c): None for c in "ZX"})
    if sample is None or not living:
        return None  # It ended; that is the pool's to tell.
    is_running = "R" in living
    if quiet is not None:
        allowed_s = IDLE_CPU_S + IDLE_CPU_SHARE * (now_s - quiet.since_s)
        has_run = sample.cpu_s - quiet.cpu_s > allowed_s or (is_running and quiet.was_running)
        if has_run:
            quiet = None
    if quiet is None:
        if is_running:
            return None
        quiet = Quiet(since_s=now_s, last_s=now_s, cpu_s=sample.cpu_s)
    quiet.last_s = now_s
    quiet.was_running = is_running
    quiet.has_disk = quiet.has_disk or "D" in living
    quiet.is_stopped = not living.strip("Tt")
    if living.strip("T"):
        quiet.signalled_s = None
    elif quiet.signalled_s is None:
        quiet.signalled_s = now_s
    return quiet


def _frozen(worker: ObservedWorker, now_s: float) -> list[Frozen]:
    quiet, beat = worker.quiet, worker.beat
    silent_s = now_s - worker.heard_s
    signalled_s = quiet.signalled_s if quiet is not None else None
    least_s = SILENT_S if signalled_s is None else STOPPED_S
    if quiet is None or beat is None or quiet.was_running or silent_s < least_s:
        return []
    is_stepping = worker.in_loop is not None and worker.has_stepped and not beat.is_paused
    since_s = quiet.since_s
    if signalled_s is not None:
        since_s, needed_s, how = signalled_s, STOPPED_QUIET_S, "is stopped by a signal"
    elif quiet.is_stopped:
        needed_s, how = QUIET_S, "is stopped (by a signal or a debugger)"
    elif quiet.has_disk:
        needed_s, how = PATIENCE_S, "hangs in the kernel (state D)"
    else:
        needed_s = QUIET_S if is_stepping else PATIENCE_S
        how = "sleeps and lets no other thread run (is the GIL held?)"
    if quiet.last_s - since_s < needed_s - _ROUNDING_S:
        return []
    worker.is_told_frozen = True
    why = f"The process {how}: no sign of life and no CPU time for {silent_s:.1f} s."
    return [Frozen(pid=worker.pid, why=why)]

"""Which worker is frozen, and which makes no progress: decided from beats and /proc. Pure.

A process that computes needs no attention, however long it is silent; one that waits for a peer
in a collective looks to /proc like one that is stuck for good. So two questions are kept apart:

*Frozen*: its beats stopped, so either it does not run or nobody in it gets the GIL, and it does
not run either: no thread wants a CPU and the CPU time stands still. A process that is starved of
CPU *wants* one (state R), one that computes with the GIL held *has* one. Known after half a second
if a signal stopped it, else after one, and after five where it may wait for a disk or a library.

*Stalled*: it lives, but no number of its beats changes. This says little: an evaluation, a big
save and a first compilation look the same. So the limit is generous; it is short only where
another rank waits in a collective for this one, in the middle of a step like those before it.
"""

import math
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

__all__ = ["Frozen", "Pulse", "Sample", "Stalled", "Verdict"]

SILENT_S = 1.0
"""Five beats. Without any for so long something is wrong with the process or with its machine."""
LATE_S = 0.35
"""From here on /proc is looked at, so that QUIET_S of samples lie before SILENT_S."""
STOPPED_S, STOPPED_QUIET_S = 0.55, 0.2
"""The same for a process that a signal stopped: its state leaves no doubt."""
QUIET_S = 0.4
"""How long a silent process must be seen neither to run nor to want to."""
PATIENCE_S = 5.0
"""The same where it may be at work without running: in state D (a disk, a page of a network file
system), or outside the loop over batches, where libraries are loaded with the GIL held."""
IDLE_CPU_S, IDLE_CPU_SHARE = 0.015, 0.02
"""Not taken for running: one tick of the kernel's clock, and threads that wait for the GIL and
look for it every 5 ms (measured with 16 of them: 0.0175)."""
SKIPPED_TURNS = 3
"""So many times the intended pause between two of our own looks: we stood still ourselves."""
SHORT_LIMIT_S, SHORT_LIMIT_STEPS, SHORT_LIMIT_MARGIN_S = 5.0, 20.0, 2.0
OWN_RECORD_FACTOR = 2.0
"""Who took long within a step before, and came on, is given twice as long (it may compile)."""
_ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What /proc says of a process at one moment."""

    states: str
    """A letter for each thread; may end at the first R."""
    cpu_s: float
    """Consumed since its start, of all threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """It does not run and will not by itself."""

    pid: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled:
    """Its numbers stand still, and no worker of its job here is further behind."""

    pid: int
    step: int
    sequence: int
    since_s: float
    """For how long."""
    is_waited_for: bool = False
    """Other workers here came further and wait for it."""
    has_returned: bool = False
    """It is out of `train`, and they are not."""

    @property
    def why(self) -> str:
        """What is wrong with it, where others wait for it."""
        if self.has_returned:
            return "It returned from train."
        return f"No progress for {self.since_s:.0f} s, while others waited for it."


Verdict: TypeAlias = Frozen | Stalled


@dataclass(slots=True, kw_only=True)
class _Quiet:
    """A run of samples in which the process did not run."""

    since_s: float
    last_s: float
    cpu_s: float
    has_disk: bool = False
    is_stopped: bool = False
    signalled_s: float | None = None
    """Since when it is stopped by a signal; not by a debugger: those come and go."""
    was_running: bool = False
    """In the last sample; one alone may be a look for the GIL."""


@dataclass(slots=True, kw_only=True)
class _Worker:
    pid: int
    job: JobName
    limit_s: float
    heard_s: float = 0.0
    beat: Beat | None = None
    quiet: _Quiet | None = None
    formed: Generation = Generation(0)
    formed_step: int = 0
    has_stepped: bool = False
    """In the generation that is formed."""
    moved_s: float = 0.0
    """When a number last changed; moved on by what does not count."""
    record_s: float = 0.0
    """The longest that it stood still within a step, and came on."""
    is_told_frozen: bool = False
    is_told_stalled: bool = False

    @property
    def in_loop(self) -> Beat | None:
        """Its beat, if it counts for progress."""
        beat = self.beat
        return beat if beat is not None and 0 < beat.generation == self.formed else None

    @property
    def place(self) -> tuple[int, int]:
        assert self.beat is not None
        return (self.beat.step, self.beat.sequence)


class Pulse:
    """What is known of each worker. Time is the caller's; `look` must be called regularly."""

    def __init__(self) -> None:
        self._workers: dict[int, _Worker] = {}
        self._looked_s: float | None = None

    def watch(self, pid: int, *, job: JobName, limit_s: float) -> None:
        """Begin with this worker; `limit_s` without progress are too many."""
        self._workers[pid] = _Worker(pid=pid, job=job, limit_s=limit_s)

    def forget(self, pid: int) -> None:
        self._workers.pop(pid, None)

    @property
    def is_needed(self) -> bool:
        """True if any worker beats."""
        return any(worker.beat is not None for worker in self._workers.values())

    def hear(self, pid: int, message: FromWorker | None, *, now_s: float) -> None:
        """Take in what a worker said; None: its connection ended, silence is no sign any more."""
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
                _beat(worker, message, now_s)
            case Formed(generation=generation, step=step):
                _formed(worker, generation, step, now_s)
            case Stepped(generation=generation, step=step):
                if generation != worker.formed:
                    _formed(worker, generation, step, now_s)
                worker.has_stepped = True
                worker.moved_s = now_s
            case Entered() | Left() | Broken():
                worker.formed = Generation(0)
            case _:
                pass

    def late(self, *, now_s: float) -> tuple[int, ...]:
        """Whose beats are overdue: `look` wants samples of these, and of nobody else."""
        return tuple(
            worker.pid
            for worker in self._workers.values()
            if worker.beat is not None
            and not worker.is_told_frozen
            and now_s - worker.heard_s >= LATE_S
        )

    def look(
        self, samples: Mapping[int, Sample | None], *, now_s: float, pause_s: float
    ) -> tuple[Verdict, ...]:
        """Return what is new; `pause_s` is how long after the last look this one was meant."""
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
            verdicts += _stalled(world, now_s)
        return tuple(verdicts)

    def rest(self) -> None:
        """No look will follow for a while."""
        self._looked_s = None

    def _skip(self, gap_s: float, now_s: float) -> None:
        """We were stopped or starved: what we did not see does not count, silence begins anew."""
        for worker in self._workers.values():
            worker.heard_s, worker.quiet = now_s, None
            worker.moved_s = min(now_s, worker.moved_s + gap_s)

    def _worlds(self) -> Iterable[list[_Worker]]:
        """Workers whose numbers can be compared: of one job and one generation."""
        worlds: dict[tuple[JobName, Generation], list[_Worker]] = {}
        for worker in self._workers.values():
            if worker.in_loop is not None:
                worlds.setdefault((worker.job, worker.formed), []).append(worker)
        return worlds.values()


def _beat(worker: _Worker, beat: Beat, now_s: float) -> None:
    before = worker.beat
    if before is None or _numbers(before) != _numbers(beat):
        if worker.in_loop is not None and before is not None and _is_in_step(before):
            worker.record_s = max(worker.record_s, now_s - worker.moved_s)
        worker.moved_s, worker.is_told_stalled = now_s, False
    if beat.generation == worker.formed and beat.step > worker.formed_step:
        worker.has_stepped = True
    worker.beat = beat


def _formed(worker: _Worker, generation: Generation, step: int, now_s: float) -> None:
    worker.formed, worker.formed_step = generation, step
    worker.has_stepped = worker.is_told_stalled = False
    worker.moved_s = now_s


def _numbers(beat: Beat) -> tuple[int, ...]:
    return (beat.generation, beat.step, beat.batches, beat.sequence)


def _is_in_step(beat: Beat) -> bool:
    """True if a batch was delivered that is not committed yet."""
    return beat.is_in_step


# --- frozen -----------------------------------------------------------------------------------


def _sampled(quiet: _Quiet | None, sample: Sample | None, now_s: float) -> _Quiet | None:
    """Go on with the run of quiet samples, or end it, or begin another."""
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
        quiet = _Quiet(since_s=now_s, last_s=now_s, cpu_s=sample.cpu_s)
    quiet.last_s = now_s
    quiet.was_running = is_running
    quiet.has_disk = quiet.has_disk or "D" in living
    quiet.is_stopped = not living.strip("Tt")
    if living.strip("T"):
        quiet.signalled_s = None
    elif quiet.signalled_s is None:
        quiet.signalled_s = now_s
    return quiet


def _frozen(worker: _Worker, now_s: float) -> list[Frozen]:
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


# --- stalled ----------------------------------------------------------------------------------


def _stalled(world: list[_Worker], now_s: float) -> list[Stalled]:
    """Of the workers that stand still, name those that nobody here is behind."""
    early = _returned_early(world, now_s)
    if early is not None:
        return early
    if any(w.beat is not None and (w.beat.is_paused or w.beat.has_returned) for w in world):
        # The others may have to wait for it, for as long as it pauses; and what one does after
        # the last step, while others are done, may take its time.
        for worker in world:
            worker.moved_s = now_s
        return []
    last = min(worker.place for worker in world)
    found = []
    for worker in world:
        idle_s = now_s - worker.moved_s
        if worker.place > last or worker.is_told_stalled or worker.is_told_frozen:
            continue
        waiting = [o for o in world if o.place > last and not o.is_told_frozen]
        waited_s = max((now_s - other.moved_s for other in waiting), default=0.0)
        if idle_s >= worker.limit_s or min(idle_s, waited_s) >= _short_limit_s(worker, waiting):
            worker.is_told_stalled = True
            step, sequence = worker.place
            found.append(
                Stalled(
                    pid=worker.pid,
                    step=step,
                    sequence=sequence,
                    since_s=idle_s,
                    is_waited_for=bool(waiting),
                )
            )
    return found


def _returned_early(world: list[_Worker], now_s: float) -> list[Stalled] | None:
    """Name who returned from `train` while others are in a collective; None: nobody did."""
    returned = [w for w in world if w.beat is not None and w.beat.has_returned]
    if not returned:
        return None
    first = min(returned, key=lambda worker: worker.place)
    waiting = [w for w in world if w not in returned and w.place > first.place]
    if not waiting:
        return None
    waited_s = max(now_s - worker.moved_s for worker in waiting)
    if waited_s < SHORT_LIMIT_S or first.is_told_stalled:
        return []
    first.is_told_stalled = True
    step, sequence = first.place
    return [
        Stalled(
            pid=first.pid,
            step=step,
            sequence=sequence,
            since_s=waited_s,
            is_waited_for=True,
            has_returned=True,
        )
    ]


def _short_limit_s(worker: _Worker, waiting: list[_Worker]) -> float:
    """How long others may wait for this one; for ever, if its limit is not to be shortened."""
    beat = worker.beat
    assert beat is not None
    beats = [other.beat for other in waiting if other.beat is not None]
    step_s = max((b.step_s for b in (beat, *beats) if math.isfinite(b.step_s)), default=0.0)
    # Nobody commits a step that it did not take part in: behind in steps is within one.
    is_in_step = _is_in_step(beat) or any(b.step > beat.step for b in beats)
    if not beats or not worker.has_stepped or step_s <= 0.0 or not is_in_step:
        return math.inf
    return max(
        SHORT_LIMIT_S,
        SHORT_LIMIT_STEPS * step_s + SHORT_LIMIT_MARGIN_S,
        OWN_RECORD_FACTOR * worker.record_s,
    )

"""Counts the events of one job on this node for its metrics.

A counter counts only what happened while this node had rank 0. So each event of a job is counted
once, by one node, and the sum over all nodes is right also after rank 0 has moved. Every node that
serves the job shows the counters from the beginning, with 0: of a series that begins with 1,
Prometheus does not see the first increase.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from elasticd.channel.worker import Beat, Progressed
from elasticd.goodput.cause import TimeCause
from elasticd.records.account.incident import Incident
from elasticd.records.ids import Generation, JobName, Rank
from elasticd.records.job import JobSpec
from elasticd.rendezvous.effect import Effect, WriteIncident
from elasticd.rendezvous.next_world.propose import proposers
from elasticd.rendezvous.state import JobState
from elasticd.telemetry.metrics.label import CHANGE_PHASES, CHANGE_REASONS, SCALARS_LIMIT

__all__ = ["JobCounts", "JobMeter", "JobReading"]


@dataclass(slots=True, kw_only=True)
class JobCounts:
    """The counts of a job since this node first served the job; times are in seconds."""

    steps: int = 0
    samples: int = 0
    step_seconds: float = 0.0
    lost_steps: int = 0
    changes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CHANGE_REASONS, 0))
    change_seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(CHANGE_PHASES, 0.0)
    )

    def copied(self) -> "JobCounts":
        return JobCounts(
            steps=self.steps,
            samples=self.samples,
            step_seconds=self.step_seconds,
            lost_steps=self.lost_steps,
            changes=dict(self.changes),
            change_seconds=dict(self.change_seconds),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReading:
    """One job at one moment; nothing in it changes afterwards."""

    spec: JobSpec
    slots: int
    """Slots of this node that the job holds."""
    counts: JobCounts
    state: JobState | None
    """What the core knows of it; None: nothing was fed yet."""
    is_told_here: bool
    """What belongs to the whole job is for this node to export."""
    is_over: bool = False
    generation_start_unix_s: float = 0.0
    step: int | None = None
    """None: rank 0 is not here, or says nothing of its steps."""
    epoch: int = 0
    scalars: Mapping[str, float] = field(default_factory=dict)
    slot_seconds: Mapping[TimeCause, float] = field(default_factory=dict)
    """The seconds of this node's slots by cause, without those that may still be taken back."""
    step_wait_s: float = 0.0
    """How long the workers of this node waited for others, in committed steps."""
    late_ratio: float = 0.0
    """By how much the latest node is late, as far as this node judges."""


class JobMeter:
    """The meter of one job, over all incarnations that serve it here. Only the owner's thread uses
    it."""

    def __init__(self, spec: JobSpec, *, unix_s: Callable[[], float] = time.time) -> None:
        self.spec = spec
        self._unix_s = unix_s
        self._counts = JobCounts()
        self._state: JobState | None = None
        self._is_served = self._was_told_at_end = False
        self._has_slots, self._is_over = True, False
        self._start_unix_s = 0.0
        self._generation = Generation(0)
        """The newest whose beginning was seen."""
        self._led = Generation(0)
        """The newest in which this node has rank 0."""
        self._beat: Beat | None = None
        """The last one of rank 0, while it was here."""
        self._has_moved = False
        """Rank 0 has been on another node since that heartbeat."""
        self._told = Progressed(step=0)
        """What a script of restart mode said last as rank 0, and in which generation."""
        self._told_in = Generation(0)
        self._names: dict[str, None] = {}
        self._waited_s = 0.0
        """How long workers waited for others in earlier incarnations."""
        self._step_wait_s: Callable[[], float] = float
        self._late_ratio: Callable[[], float] = float

    @property
    def job(self) -> JobName:
        return self.spec.name

    def serve(self) -> None:
        """Begin, or go on after another incarnation."""
        self._is_served = self._has_slots = True
        self._is_over = False

    def measure(self, *, step_wait_s: Callable[[], float], late_ratio: Callable[[], float]) -> None:
        """Ask these, while the job is served, how long its steps wait and how late a node is.

        The first grows from 0 with each incarnation that serves the job.
        """
        self._waited_s += self._step_wait_s()
        self._step_wait_s, self._late_ratio = step_wait_s, late_ratio

    def rest(self, *, keeps_slots: bool) -> None:
        """Know that nobody here serves the job any more, or for now.

        Who served it is let go: its series go on for a while, and it is large.
        """
        self.measure(step_wait_s=float, late_ratio=float)
        self._is_served, self._has_slots = False, keeps_slots

    def end(self) -> None:
        """Know that the job is over, of which this node may have had no part at the end."""
        self.rest(keeps_slots=False)
        self._is_over = True

    def observe(self, before: JobState, after: JobState, effects: Iterable[Effect]) -> None:
        """Count what a decision of the core means."""
        self._state = after
        if after.is_over and not before.is_over:
            self._was_told_at_end = _is_told_by(before)
        if after.world is not None and after.world.generation > self._generation:
            self._began(after)
        for effect in effects:
            if isinstance(effect, WriteIncident):
                self._passed(effect.incident)

    def receive(self, rank: Rank, beat: Beat, formed_step: int) -> None:
        """Count the progress of a heartbeat; `formed_step`: applied when its group was formed."""
        if rank != 0 or not beat.generation:
            return
        before, self._beat = self._beat, beat
        if before is not None and before.generation == beat.generation:
            since_step, since_samples = before.step, before.samples
        elif before is not None and not self._has_moved:
            # What was applied between the last heartbeat and the change counts, if it stands.
            since_step = min(before.step, formed_step)
            since_samples = min(before.samples, beat.samples)
        else:
            is_first = before is None and not formed_step
            since_step, since_samples = formed_step, 0 if is_first else beat.samples
        if before is None or before.generation != beat.generation:
            self._has_moved = False
        steps = max(0, beat.step - since_step)
        self._counts.steps += steps
        self._counts.step_seconds += steps * beat.step_s
        self._counts.samples += max(0, beat.samples - since_samples)
        self._name(beat)

    def count_progress(self, rank: Rank, generation: Generation, progress: Progressed) -> None:
        """Count the progress that a script of restart mode reports; its processes are of one
        generation.
        """
        if rank != 0:
            return
        before = self._told if self._told_in == generation else Progressed(step=0)
        # The first call says that a step has ended, whatever its number is.
        before_steps = before.step - before.first_step + 1 if before is self._told else 0
        steps = max(0, progress.step - progress.first_step + 1 - before_steps)
        self._counts.steps += steps
        self._counts.step_seconds += steps * progress.step_s
        self._counts.samples += max(0, progress.samples - before.samples)
        self._told_in, self._told, self._has_moved = generation, progress, False
        self._beat = Beat(
            generation=generation,
            step=progress.step,
            step_s=progress.step_s,
            batches=0,
            sequence=0,
            epoch=progress.epoch,
            scalars=progress.scalars,
        )
        self._name(self._beat)

    def count_more(self, before: Incident, after: Incident) -> None:
        """Count the part of a change that was unknown when it was reported: the time to the first
        step.
        """
        if after.generation == self._led and after.generation > 1:
            for phase, seconds in after.phases_s.items():
                if phase in self._counts.change_seconds:
                    more_s = max(0.0, seconds - before.phases_s.get(phase, 0.0))
                    self._counts.change_seconds[phase] += more_s
            self._counts.lost_steps += max(0, after.lost_steps - before.lost_steps)

    def _name(self, beat: Beat) -> None:
        """Give a series to each number that is new, as long as there are few."""
        for name in beat.scalars:
            if len(self._names) >= SCALARS_LIMIT:
                break
            self._names.setdefault(name)

    def reading(self) -> JobReading:
        """Say how things are, as a value that does not change any more."""
        state, beat = self._state, self._beat
        is_told_here = False
        if state is not None and state.is_over:
            is_told_here = self._was_told_at_end
        elif state is not None and self._is_served:
            is_told_here = _is_told_by(state)
        if self._has_moved or self._led != self._generation:
            beat = None
        return JobReading(
            spec=self.spec,
            slots=len(state.slots) if state is not None and self._has_slots else 0,
            counts=self._counts.copied(),
            state=state,
            is_told_here=is_told_here,
            is_over=self._is_over or (state is not None and state.is_over),
            step_wait_s=self._waited_s + self._step_wait_s(),
            late_ratio=self._late_ratio() if self._is_served else 0.0,
            generation_start_unix_s=self._start_unix_s,
            step=beat.step if beat is not None else None,
            epoch=beat.epoch if beat is not None else 0,
            scalars={n: beat.scalars[n] for n in self._names if n in beat.scalars}
            if beat is not None
            else {},
        )

    def _began(self, state: JobState) -> None:
        """Another world stands: note when, and count it if rank 0 is here."""
        world = state.world
        assert world is not None
        self._generation, self._start_unix_s = world.generation, self._unix_s()
        if not world.nodes or not state.is_in_world or world.nodes[0].node != state.me.node:
            self._has_moved = True
            return
        self._led = world.generation
        reason = world.reason.value
        self._counts.changes[reason if reason in self._counts.changes else "other"] += 1

    def _passed(self, incident: Incident) -> None:
        """Take note that this node went through a change, or was overtaken by the next one."""
        if incident.generation != self._led or incident.generation <= 1:
            return
        for phase, seconds in (*incident.phases_s.items(), ("unnoticed", incident.unnoticed_s)):
            if phase in self._counts.change_seconds:
                self._counts.change_seconds[phase] += seconds
        self._counts.lost_steps += incident.lost_steps


def _is_told_by(state: JobState) -> bool:
    """Return True if this node reports for the whole job: it has rank 0, or is the first left."""
    turn = proposers(state)
    return not state.is_fenced and bool(turn) and turn[0] == state.me.node

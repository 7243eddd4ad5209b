"""Divides the time of one job's slots on one node among the time causes, step by step.

Time in `train` is charged by the commits that workers tell of. So where a fault becomes known, what
is open reaches back to the last commit: the work on the step that was lost (`redone`), for as long
as a step takes, and then time in which nobody knew yet (`notice`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import is_not

from elasticd.channel.worker import Beat, Progressed
from elasticd.goodput.account import Account, Parts, SlotTime
from elasticd.goodput.cause import TimeCause
from elasticd.records.ids import Generation, Nonce, Slot, life_of
from elasticd.records.job import JobSpec, target_nodes
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.state import JobState
from elasticd_agent.account.generations import Generations
from elasticd_agent.account.record_writer import RecordWriter
from elasticd_agent.account.slot_cause import cause_of, world_end_parts
from elasticd_agent.account.slot_history import SlotHistory

__all__ = ["JobAccount"]

READ_BACK = frozenset({"memory", "storage"})
"""Restores that read a state back; a copy from another rank's memory is recovery."""
PAUSE_NEWS_S = 0.2
"""How soon a worker's pause is known: with its next heartbeat."""
UNSURE_S = 300.0
"""A script that calls `elasticd.run` within this time of its start was starting, not training."""
_NO_COST = frozenset({TimeCause.TRAIN, TimeCause.SPARE, TimeCause.PAUSE})
_NOTHING_SEEN = (object(),)
_BEFORE_COMMIT = frozenset({TimeCause.START, TimeCause.RECOVER, TimeCause.RESIZE})


@dataclass(slots=True, kw_only=True)
class _Track:
    """The facts about the worker in one slot."""

    nonce: Nonce = Nonce(0)
    generation: Generation = Generation(0)
    step: int = 0
    """The last applied step up to which the slot's time is charged."""
    is_recovering: bool = False
    """True if it has not committed since a fault."""
    is_running: bool = False
    """True if `train` means only that the worker runs: no steps are seen, or none yet."""
    has_returned: bool = False
    """True if it has returned, and waits for the other ranks and for the last checkpoint."""
    is_told: bool = False
    """True if its script reports how far it is."""
    way: TimeCause = TimeCause.START
    """What the slot was held for before its worker ran."""
    way_s: float = 0.0
    """How many seconds after that its first step was made."""
    first_step: int = 0
    """The number of that first step, as the script counts."""
    measured: Mapping[TimeCause, float] = field(default_factory=dict)
    """The worker's sums as they were last counted."""
    fault_s: float | None = None
    """When a fault became known behind which time is open; None if all is divided."""
    step_s: float = 0.0
    """How long a step took at that time."""

    def of_fault(self, since_s: float, committed_s: float | None) -> list[tuple[TimeCause, float]]:
        """Divide the open time behind a fault into its causes, once; the rest is recovery.

        `committed_s`: when the worker itself says that it committed last.
        """
        if self.fault_s is None:
            return []
        fault_s, self.fault_s = self.fault_s, None
        last_s = min(fault_s, max(since_s, committed_s if committed_s is not None else since_s))
        redone_s = min(self.step_s, fault_s - last_s)
        return [
            (TimeCause.TRAIN, last_s - since_s),
            (TimeCause.REDONE, redone_s),
            (TimeCause.NOTICE, fault_s - last_s - redone_s),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """How far the job is, as a worker of this node reports it."""

    step: int = 0
    samples: int = 0
    scalars: Mapping[str, float] = field(default_factory=dict)
    """The finite ones among the script's scalars."""

    @classmethod
    def of(cls, progress: Beat | Progressed) -> "Newest":
        """Return how many ranks `samples` covers: a script of restart mode knows only its own."""
        finite = {name: value for name, value in progress.scalars.items() if math.isfinite(value)}
        samples = progress.samples if isinstance(progress, Beat) else 0
        return cls(step=progress.step, samples=samples, scalars=finite)


class JobAccount:
    """All methods run on the owner's thread; any thread may read `account`, which never changes."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self._account = Account()
        self.history = SlotHistory()
        self.has_steps = False
        """Steps are seen; else `train` means that workers run."""
        self._tracks: dict[Slot, _Track] = {}
        self._seen: tuple[object, ...] = _NOTHING_SEEN
        self._furthest = -1
        """The newest step that any generation committed, which may be 0; -1: none is known."""
        self._redo_until = -1
        """Steps of the generation up to here were done before."""
        self._redo_in = Generation(0)
        self._change: dict[TimeCause, float] = {}
        self.told_in = Generation(0)
        """The newest generation whose change was told of."""
        self.generations = Generations()
        self._newest: Beat | Progressed = Progressed(step=0)
        self.wanted_slots = 0
        self._wanted_s = 0.0
        self._wanted_since_s: float | None = None
        self.writer: RecordWriter | None = None
        """Who writes it down, once there is something; it goes on over memberships."""

    @property
    def account(self) -> Account:
        return self._account

    @account.setter
    def account(self, account: Account) -> None:
        self.history.take(self._account, account)
        self._account = account

    def follow(self, event: ev.Event, state: JobState, now_s: float) -> None:
        """Take note of how things stand after a decision, before its effects are carried out."""
        seen = (
            state.slots,
            state.workers,
            state.world,
            state.status,
            state.stage,
            state.is_pool_ready,
            state.failure,
            state.broken,
            state.dead,
            state.is_replaced,
            state.is_in_process,
            state.wants,
        )
        if not any(map(is_not, seen, self._seen)):
            return
        self._seen = seen
        self.has_steps |= state.is_in_process
        self._want(state, now_s)
        if state.world is not None:
            lives = (life_of(node.incarnation) for node in state.world.nodes)
            self.generations.observe(state.world.generation, now_s, lives)
            if state.is_world_ended:
                self.generations.end(state.world.generation, now_s)
        if isinstance(event, ev.WorkerStepped):
            self._begin_generation(event.generation)
            self.generations.begin(event.generation, event.step)
        for slot in {*state.slots, *state.workers, *self.account.slots}:
            self._turn(slot, event, state, now_s)
        if isinstance(event, ev.WorkerStepped) and event.slot in self._tracks:
            self._tracks[event.slot].step = event.step
            self._furthest = max(self._furthest, event.step)

    def beat(self, slot: Slot, nonce: Nonce, beat: Beat, now_s: float) -> None:
        """Charge the slot's time up to the last commit that this heartbeat tells of."""
        if beat.generation and beat.step >= self._newest.step:
            self._newest = beat
        track, held = self._tracks.get(slot), self.account.slots.get(slot)
        if track is None or held is None:
            return
        if track.nonce != nonce:
            track.nonce, track.measured = nonce, {}  # Another process, which counts from 0.
        track.has_returned = beat.has_returned
        sums = {TimeCause.DATA: beat.data_s, TimeCause.SAVE: beat.save_s}
        until_s = now_s - max(0.0, beat.committed_ago_s)
        if track.fault_s is not None:
            until_s = min(until_s, track.fault_s)  # Read late: it was sent before anybody knew.
        elif held.cause is not TimeCause.TRAIN:
            track.measured = sums  # Of a time that goes to something else.
            return
        if beat.generation and beat.step > track.step and until_s > held.since_s:
            self._charge_steps(slot, track, sums, step=beat.step, until_s=until_s)

    def count_reported_steps(
        self, slot: Slot, nonce: Nonce, progress: Progressed, now_s: float
    ) -> bool:
        """Count exactly the steps that a script of restart mode reports.

        Returns True if with this report all workers here have made their first step.
        """
        track, held = self._tracks.get(slot), self.account.slots.get(slot)
        if track is None or held is None or not track.is_running:
            return False
        is_first = not track.is_told or track.nonce != nonce
        self.has_steps = True
        self._newest = progress
        newest_s = now_s - max(0.0, progress.told_ago_s)
        if is_first:
            track.nonce, track.is_told, track.measured = nonce, True, {}
            track.step = track.first_step = progress.first_step
            # It ran all the time, and this was its way to the first step.
            first_s = newest_s - max(0.0, progress.stepping_s)
            track.way_s = max(0.0, first_s - held.since_s)
            self._change[track.way] = self._change.get(track.way, 0.0) + track.way_s
            self._charge(slot, first_s, [(track.way, math.inf)])
            self._begin_generation(self.generations.newest)
        track.step_s = progress.step_s
        if progress.step > track.step:
            sums = {TimeCause.SAVE: progress.save_s}
            self._charge_steps(slot, track, sums, step=progress.step, until_s=newest_s)
        running = [each for each in self._tracks.values() if each.is_running]
        return is_first and all(each.is_told for each in running)

    @property
    def way_s(self) -> float:
        """Return the seconds from start to first step of the slowest worker here (restart mode)."""
        return max((each.way_s for each in self._tracks.values()), default=0.0)

    @property
    def first_step(self) -> int:
        """Return the first step that scripts here reported in this generation; 0 if none."""
        return max((each.first_step for each in self._tracks.values()), default=0)

    @property
    def repeated_steps(self) -> int:
        """Return how many steps, from the first one on, an earlier generation had made too."""
        return max(0, self._redo_until - self.first_step + 1)

    def note_furthest(self, step: int) -> None:
        """Take note of how far the job had come before this node took part in it."""
        self._furthest = max(self._furthest, step or -1)

    def charge(self, now_s: float) -> None:
        """Count that workers run although no steps are seen, and none will be."""
        for slot, held in self.account.slots.items():
            track = self._tracks[slot]
            if held.cause is TimeCause.TRAIN and track.is_running and not track.is_told:
                self.account = self.account.charge(slot, until_s=now_s - UNSURE_S)

    def leave(self, now_s: float, *, keeps_workers: bool) -> None:
        """End the membership. Workers that are kept wait with their slots for the next one."""
        self._seen = _NOTHING_SEEN
        for slot in list(self.account.slots):
            if keeps_workers:
                self._tracks.setdefault(slot, _Track()).is_recovering = True
                self.account = self.account.hold(slot, TimeCause.RECOVER, now_s=now_s)
            else:
                self._release(slot, now_s)

    @property
    def newest(self) -> Newest:
        """Return what the last commit that was heard of here says of the job."""
        return Newest.of(self._newest)

    def wanted_s(self, now_s: float) -> float:
        """Return wanted slots times the time since this account began."""
        open_s = now_s - self._wanted_since_s if self._wanted_since_s is not None else 0.0
        return self._wanted_s + self.wanted_slots * max(0.0, open_s)

    def change_s(self, generation: Generation) -> Mapping[TimeCause, float]:
        """Return the cost, in slot-seconds, of the change that began this generation.

        The next generation begins now; its world may stand already and have ended this one.
        """
        self.told_in = generation
        cost, self._change = self._change, {}
        return cost

    # --- private ----------------------------------------------------------------------------------

    def _charge(self, slot: Slot, until_s: float, parts: Parts) -> None:
        self.account = self.account.charge(slot, until_s=until_s, parts=parts)

    def _charge_steps(
        self,
        slot: Slot,
        track: _Track,
        sums: Mapping[TimeCause, float],
        *,
        step: int,
        until_s: float,
    ) -> None:
        """Count steps that were made up to now, and what they spent on other things."""
        parts = [(each, sums[each] - track.measured.get(each, 0.0)) for each in sums]
        known_s = sum(max(0.0, seconds) for _, seconds in parts)
        left_s = max(0.0, until_s - self.account.slots[slot].since_s - known_s)
        parts.append((TimeCause.REDONE, self._redone_share(track.step, step) * left_s))
        parts.append((TimeCause.TRAIN, math.inf))
        self._charge(slot, until_s, parts)
        track.measured, track.step = sums, step
        self._furthest = max(self._furthest, step)
        self.generations.commit(step)

    def _want(self, state: JobState, now_s: float) -> None:
        self._wanted_s, self._wanted_since_s = self.wanted_s(now_s), now_s
        each = state.spec.workers_per_node or len(state.slots)
        is_wanted = not state.is_over
        self.wanted_slots = target_nodes(state.spec, state.wants) * each if is_wanted else 0

    def _release(self, slot: Slot, now_s: float) -> None:
        track, held = self._tracks.pop(slot, None), self.account.slots.get(slot)
        if track is not None and held is not None:
            parts = track.of_fault(held.since_s, None)
            self.account = self.account.release(slot, now_s=now_s, parts=parts)

    def _turn(self, slot: Slot, event: ev.Event, state: JobState, now_s: float) -> None:
        cause = cause_of(state, slot)
        held = self.account.slots.get(slot)
        if cause is None:
            self._release(slot, now_s)
            return
        track = self._tracks.setdefault(slot, _Track())
        if cause is TimeCause.PAUSE and track.has_returned:
            cause = TimeCause.SAVE  # That is what `elasticd.run` pauses for itself.
        if cause is TimeCause.RECOVER:
            track.is_recovering = True
        elif cause in (TimeCause.TRAIN, TimeCause.PAUSE, TimeCause.SPARE):
            track.is_recovering = False
        elif cause in _BEFORE_COMMIT and track.is_recovering and not state.is_over:
            cause = TimeCause.RECOVER
        elif cause is TimeCause.RESIZE and state.is_in_process and self._furthest < 0:
            cause = TimeCause.START  # No step was made that a change of size could have held up.
        has_left = isinstance(event, ev.WorkerEntered) and event.slot == slot
        if held is not None and not has_left and self._is_fault(held.cause, cause, state, track):
            # Its workers are about to say when they committed last: divided then.
            track.fault_s = now_s
            if not track.is_told:
                track.step_s = state.pace.step_s if state.pace is not None else 0.0
            self.account = self.account.relabel(slot, cause)
            return
        before = self.account.charged
        if held is not None:
            parts = self._parts(slot, held, cause, event, state, now_s)
            if parts:
                self.account = self.account.charge(slot, until_s=now_s, parts=parts)
        is_running = cause is TimeCause.TRAIN and not state.is_in_process
        if is_running and not track.is_running and held is not None:
            track.way, track.is_told = held.cause, False
        track.is_running = is_running
        self.account = self.account.hold(slot, cause, now_s=now_s)
        for each, seconds in self.account.charged.items():
            cost_s = seconds - before.get(each, 0.0)
            if cost_s and each not in _NO_COST:
                self._change[each] = self._change.get(each, 0.0) + cost_s

    def _is_fault(self, before: TimeCause, now: TimeCause, state: JobState, track: _Track) -> bool:
        """Return whether steps ended because something broke, and the commits are known."""
        is_seen = track.is_told if track.is_running else state.is_in_process
        return is_seen and before is TimeCause.TRAIN and now is TimeCause.RECOVER

    def _parts(
        self,
        slot: Slot,
        held: SlotTime,
        now: TimeCause,
        event: ev.Event,
        state: JobState,
        now_s: float,
    ) -> list[tuple[TimeCause, float]]:
        """Return the causes of the slot's open time, as far as they are known now."""
        track = self._tracks[slot]
        ago_s = 0.0
        if isinstance(event, ev.WorkerEntered) and event.slot == slot:
            ago_s = event.committed_ago_s
            if track.fault_s is not None:
                return track.of_fault(held.since_s, now_s - ago_s if ago_s else None)
        if held.cause is now:
            return []
        parts = track.of_fault(held.since_s, None)
        if isinstance(event, ev.WorkerStepped) and event.place in READ_BACK:
            parts.append((TimeCause.RESTORE, event.phases_s.get("copy", 0.0)))
        if held.cause is not TimeCause.TRAIN or not state.is_in_process:
            return parts
        if track.is_running:
            return [(now, math.inf)]  # It was on its way to `elasticd.run`, as it turns out.
        if now is TimeCause.WAIT:
            return world_end_parts(state)
        if now is TimeCause.PAUSE:
            return [(TimeCause.PAUSE, PAUSE_NEWS_S)]
        if now is TimeCause.START and state.spec.checkpoint is not None:
            return [(TimeCause.SAVE, math.inf)]  # Its training is over, and was saved.
        if now in _BEFORE_COMMIT and ago_s:
            return [(TimeCause.TRAIN, now_s - ago_s - held.since_s), (now, math.inf)]
        return parts

    def _begin_generation(self, generation: Generation) -> None:
        """Begin a generation: steps that were committed beyond its start will be repeated."""
        if generation > self._redo_in:
            self._redo_in, self._redo_until = generation, self._furthest

    def _redone_share(self, before: int, now: int) -> float:
        return max(0, min(self._redo_until, now) - before) / (now - before)

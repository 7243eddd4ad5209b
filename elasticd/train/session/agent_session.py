"""A worker's session with its agent: it gets the wanted worlds, and reports their outcomes.

A thread reads what the agent sends. A change that is due at once aborts the group, so that the
training thread leaves any call in which it waits; a planned change waits for its step. The training
thread itself reads one attribute a step. It always leaves `train` by an exception at a leave point,
and `next_world` says where to go.

Rejected: asking the agent at each commit. It would cost a round trip a step, and a training thread
that is blocked in a collective asks nobody.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import Condition, Thread

from elasticd.channel.worker import (
    Attached,
    Broken,
    Dump,
    Enter,
    Entered,
    Finished,
    Formed,
    Leave,
    Left,
    Stacks,
)
from elasticd.records.ids import Generation, NodeId
from elasticd.train.group_broken import GroupBroken
from elasticd.train.interrupt import Interrupted, may_be_left, uninterruptible
from elasticd.train.introspection import stacks, stuck_rank
from elasticd.train.introspection.collective_wait import step_wait
from elasticd.train.introspection.time_spent import SecondsSpent
from elasticd.train.session.departure import Departure
from elasticd.train.session.final_save import FinalSave
from elasticd.train.session.first_commit import FirstCommit
from elasticd.train.session.heartbeat import HeartbeatSender
from elasticd.train.session.interrupt_signal import PATIENCE_S, InterruptSignal
from elasticd.train.session.ports import AbortableGroup, AgentPort, ObservedState
from elasticd.train.session.step_session import DeviceMark, EpochProgress

__all__ = ["AgentSession"]

WAIT_S = 1.0
"""Waits are cut into pieces of this length, so that a Ctrl-C is seen."""
EXPLANATION_S = 2.0
"""How long to wait, after the connection to a peer has ended, for the agent to say why."""
SHORT_STEP_S = 1.0
"""Less than what others need to leave a rank behind that stands still."""
DIRTY_PATIENCE_S = 2.0
"""How long a rank may finish its commit after a change is due: leaving before costs the step."""


class AgentSession:
    """The session of a whole run; `Session` documents its methods.

    Only the training thread calls methods without an underscore.
    """

    def __init__(self, link: AgentPort) -> None:
        self.generation = 0
        self.step = self.epoch = self.batches = self._batches_applied = 0
        self.why_paused: str | None = None
        self.has_returned = self.has_failed = False
        self.committed_at_s = 0.0
        self.on_commit: Callable[[int], None] | None = None
        self.spent = SecondsSpent()
        self._link = link
        self._changed = Condition()
        self._wanted: Enter | Leave | None = None
        self._wanted_after: Leave | None = None
        """The leave that is due in the world to be entered next, as soon as that has formed."""
        self._final_save: FinalSave | None = None
        self._entered, self._heard_at_s, self._abort_s = 0, 0.0, 0.0
        self._is_gone = self._is_closing = self._is_training = self._has_raised = False
        self._group: AbortableGroup | None = None
        self._is_formed = self._is_urgent = False
        """Urgent means that the group is over, whatever later worlds are planned."""
        self._departure: Departure | None = None
        self._last_complete: int | None = None
        self._observed: ObservedState | None = None
        self._first: FirstCommit | None = None
        self._interrupt: InterruptSignal | None = None
        beat = partial(link.send, is_news=True)
        self._heartbeat = HeartbeatSender(self, beat, self._interrupt_training)
        self._listener = Thread(target=self._listen, name="elasticd-hearing", daemon=True)

    # --- Watch: on the way of every step --------------------------------------------------------

    @uninterruptible  # It holds a lock while it waits, and says itself when to leave.
    def check(self, step: int) -> None:
        if self._wanted is None:
            return
        with self._changed:
            if self._departure is not None:  # Mostly all have agreed long before this step.
                self._departure.wait(step, lambda: not self._holds())
        if self._is_due(step):
            raise Interrupted

    def committed(self, position: tuple[int, int]) -> None:
        self.step, self.epoch = position
        self.committed_at_s = time.monotonic()
        step_wait.taken_s, step_wait.total_s = 0.0, step_wait.blocked_s
        step_wait.ends.append((step_wait.blocked_s, self.committed_at_s))
        self._batches_applied = self.batches
        first = self._first
        if first is not None and self.step > first.after:
            self._first = None
            self._link.send(first.stepped(self.step, self.committed_at_s))
        if self.on_commit is not None:
            self.on_commit(self.step)

    def synchronize(self, mark: DeviceMark | None = None) -> None:
        # In nearly every step nothing is wanted, and it is not asked whether that is due.
        if self._wanted is not None and not self._holds():
            raise Interrupted
        group = self._group
        if group is not None:
            is_peer_gone = group.synchronize(self._holds, mark)
            step_wait.waited_for_future()
            if self._wanted is not None and not self._holds():
                raise Interrupted
            if is_peer_gone:
                self._explain(group)

    def pause(self, why: str | None) -> None:
        self.why_paused = why

    def delivered(self) -> None:
        if self._wanted is not None:
            is_overdue = time.monotonic() - self._heard_at_s >= DIRTY_PATIENCE_S
            if is_overdue or not self._is_dirty():  # Between two optimizers' steps nobody leaves.
                self.check(self.step)
        self.batches += 1

    # --- Session: between the worlds --------------------------------------------------------------

    def attach(self, observed: ObservedState, pid: int) -> None:
        """Say that this worker is prepared, and begin to listen; for the main thread only."""
        self._observed = observed
        self._interrupt = InterruptSignal(
            lambda: self._is_due(self.step),
            lambda frame: not self._is_dirty() and may_be_left(frame),
        )
        self._interrupt.arm()
        stacks.arm()
        self._link.send(Attached(pid=pid))
        self._listener.start()
        self._heartbeat.start()

    def next_world(self) -> Enter | None:
        """Wait for the next world; all that belonged to the one before has been stopped."""
        left_at_s, is_new = time.monotonic(), self._entered == 0
        while True:
            with self._changed:
                while self._wanted is None and not self._is_gone:
                    self._changed.wait(WAIT_S)
                final_save = self.final_save
                wanted, self._wanted = self._wanted, None
                if self._is_gone or wanted is None:
                    return None
                if isinstance(wanted, Enter):
                    self._wanted, self._wanted_after = self._wanted_after, None
                    self.generation = self._entered = wanted.generation
                    self._has_raised = False
                    break
            left = Left(step=self.step)
            self._link.send(left if final_save is None else final_save.left(self.step))
        ago_s = time.monotonic() - self.committed_at_s if self.committed_at_s else 0.0
        sent_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._link.send(Entered(generation=wanted.generation, committed_ago_s=ago_s, sent_s=sent_s))
        # A planned change was known long before it was due, and a worker that waits loses nothing.
        # One that stood by since it left had nothing to leave.
        heard_at_s = self._heard_at_s
        begun_at_s = heard_at_s if wanted.at_step is None else max(left_at_s, heard_at_s)
        self._abort_s = 0.0 if is_new else time.monotonic() - begun_at_s
        return wanted

    def use(self, group: AbortableGroup | None) -> None:
        with self._changed:
            if self._departure is not None:
                self._departure.end()
            self._group, self._departure, self._last_complete = group, None, None
            self._is_formed = self._is_urgent = False
            is_over = not self._holds()
        if group is not None and is_over:
            group.abort()

    def call(self, function: Callable[[], object]) -> None:
        assert self._interrupt is not None
        self._is_training = True
        try:
            self._interrupt.call(function)
        except BaseException:
            self._has_raised = True
            raise
        finally:
            self._is_training = False
            self.why_paused = None

    def is_stale(self, generation: int) -> bool:
        return generation != self._entered or self._is_due(self.step)

    def has_newer(self, generation: int) -> bool:
        return generation != self._entered or self._wanted is not None

    def wait_newer(self, generation: int, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.has_newer(generation), timeout_s)

    def formed(self, formed: Formed, note: str = "") -> None:
        """Tell the agent that `train` is called next; its first commit says what was done again."""
        formed = dataclasses.replace(formed, phases_s={"abort": self._abort_s, **formed.phases_s})
        self._first = FirstCommit(formed, begun=self.step + self.is_in_step, note=note)
        self._batches_applied, self.step = self.batches, formed.step
        with self._changed:
            self._is_formed = True
            self._plan_departure()
        self._link.send(formed)

    def broken(self, why: str, unreachable: tuple[NodeId, ...] = ()) -> None:
        generation = Generation(self._entered)
        self._link.send(Broken(generation=generation, why=why, unreachable=unreachable))

    def finished(self, finished: Finished) -> None:
        self._is_closing = True
        self._link.send(finished)

    def close(self) -> None:
        self._is_closing = True
        self.has_failed = self._has_raised
        self._heartbeat.stop()
        self._link.close()
        self._listener.join(WAIT_S)
        if self._interrupt is not None:
            self._interrupt.disarm()

    @property
    def final_save(self) -> FinalSave | None:
        return self._final_save if isinstance(self._wanted, Leave) else None

    @property
    def has_left_as_agreed(self) -> bool:
        departure = self._departure
        return departure is not None and departure.is_agreed and departure.last == self.step

    # --- HeartbeatFacts: read by the heartbeat's thread -----------------------------------------

    @property
    def training_generation(self) -> int:
        """The generation in `train` and in the wait for the other ranks' return; else 0."""
        is_training = self._is_training or self.has_returned or self.has_failed
        return self.generation if is_training else 0

    @property
    def is_in_step(self) -> bool:
        """Return True if the script has taken a batch that no commit counts yet."""
        return self.batches != self._batches_applied

    def sequence(self) -> int:
        return self._group.sequence() if self._group is not None else 0

    def arrived(self) -> int:
        return group.arrived() if (group := self._group) is not None else 0

    def is_in_collective(self) -> bool:
        return (group := self._group) is not None and group.is_in_collective()

    def epoch_progress(self) -> EpochProgress:
        return self._observed.epoch_progress if self._observed is not None else EpochProgress()

    def scalars(self) -> Mapping[str, float]:
        return self._observed.scalars() if self._observed is not None else {}

    # --- any thread -----------------------------------------------------------------------------

    def _explain(self, group: AbortableGroup) -> None:
        """Decide whether this step counts although a peer is gone.

        It counts if all results of its collectives are here, or if the peer left as agreed. In a
        long step this process may have stood still while others went on, so it waits for news.

        Raises:
            Interrupted: the world is over.
            GroupBroken: no agent has said why the peer is gone.
        """
        is_short = time.monotonic() - self.committed_at_s < SHORT_STEP_S
        if is_short and self._last_complete in (None, self.step) and group.has_all_results():
            self._last_complete = self.step
            return
        with self._changed:
            is_known = self._changed.wait_for(self._is_gone_explained, EXPLANATION_S)
        if not self._holds():
            raise Interrupted
        if not is_known:
            raise GroupBroken("a rank is gone, and nobody said why")

    def _is_gone_explained(self) -> bool:
        """Return whether the world is over, or another rank may have left it as agreed."""
        departure = self._departure
        is_agreed = departure is not None and departure.is_agreed
        return not self._holds() or (is_agreed and self._is_due(self.step + 1))

    def _holds(self) -> bool:
        """Return whether this world goes on for now: no change is due, now or later."""
        wanted, final_save = self._wanted, self._final_save
        if wanted is None:
            return True
        is_overdue = final_save is not None and final_save.is_overdue
        return wanted.at_step is not None and not self._is_urgent and not is_overdue

    def _is_due(self, step: int) -> bool:
        """Return whether the world is to be left after this step, or was to be left before it."""
        departure = self._departure
        if not self._holds():
            return True
        return self._wanted is not None and departure is not None and departure.is_due(step)

    def _plan_departure(self) -> None:
        """Ask the other ranks after which step to leave; the caller holds the lock."""
        wanted, group = self._wanted, self._group
        if wanted is None or wanted.at_step is None or group is None:
            return
        if self._is_formed and not self._is_urgent and self._departure is None:
            # Whoever trains sees the wish before another step: this one may be under way.
            least = max(wanted.at_step, self.step + 1)
            self._departure = Departure(group, self._changed, least=least)

    def _is_dirty(self) -> bool:
        return self._observed is not None and self._observed.is_dirty

    # --- the threads that listen and that send heartbeats ---------------------------------------

    def _listen(self) -> None:
        try:
            for message in self._link.messages():
                if isinstance(message, Dump):
                    self._link.send(Stacks(text=stacks.text()))
                else:
                    self._want(message)
        finally:
            self._lose()

    def _want(self, message: Enter | Leave) -> None:
        with self._changed:
            if isinstance(message, Enter) and message.generation <= self._entered:
                return  # Overtaken by a newer one.
            within_s = message.save_within_s if isinstance(message, Leave) else None
            self._final_save = FinalSave(within_s) if within_s is not None else None
            if isinstance(message, Leave) and within_s and isinstance(self._wanted, Enter):
                # Others may be on their way there already: so all go, and end there together.
                self._wanted_after = message
                return
            self._wanted, self._wanted_after = message, None
            self._heard_at_s = time.monotonic()
            group = self._group
            self._is_urgent |= message.at_step is None and group is not None
            self._plan_departure()
            self._changed.notify_all()
        if message.at_step is None and group is not None:
            group.abort()
        self._heartbeat.wake()

    def _lose(self) -> None:
        """Give the world up: without the agent nobody would tell this worker of its end."""
        with self._changed:
            self._is_gone, self._wanted, self._final_save = True, Leave(), None
            group = self._group
            self._changed.notify_all()
        if group is not None and not self._is_closing:
            group.abort()

    def _interrupt_training(self, now_s: float) -> bool:
        """Interrupt the call in which the training thread is stuck: send a signal, end the group.

        Returns whether a change of world waits for that thread.
        """
        overdue_s = self._interrupt.send_if_due(now_s) if self._interrupt is not None else None
        if overdue_s is None:
            return False
        # A planned change has not aborted the group, in which this rank may wait for a peer.
        patience_s = DIRTY_PATIENCE_S if self._is_dirty() else PATIENCE_S
        group = self._group
        if overdue_s >= patience_s and group is not None:
            group.abort()
            if self._may_end() and self._interrupt is not None and self._interrupt.is_stuck(now_s):
                self._end_process()
        return True

    def _may_end(self) -> bool:
        """Return whether this process may be ended: other ranks have the state, and wait for it."""
        # In a pause it may wait for a disk for as long as that takes; it is in no collective.
        wanted = self._wanted
        return self.why_paused is None and isinstance(wanted, Enter) and wanted.size > 1

    def _end_process(self) -> None:
        self.broken("the training thread is stuck in a call that the end of the group did not wake")
        stuck_rank.end_process()

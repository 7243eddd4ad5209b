"""The worker's heartbeat: a thread that reports five times a second where the training stands.

The heartbeats themselves show that the process lives and that its threads get the GIL; their
content shows whether it makes progress. The thread reads plain attributes and takes no lock that
the training thread could hold, so a training thread that hangs does not silence it.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from threading import Event, Thread
from typing import Protocol

from elasticd.channel.worker import Beat
from elasticd.records.ids import Generation
from elasticd.train.introspection.collective_wait import step_wait
from elasticd.train.introspection.time_spent import SecondsSpent
from elasticd.train.session.nonfinite_scalar import FiniteCheck
from elasticd.train.session.step_session import EpochProgress

__all__ = ["HeartbeatFacts", "HeartbeatSender", "StepDuration"]

BEAT_S = 0.2
RING_S = 0.05
"""The time between two looks while a change of world waits for the training thread."""

NAMES_LIMIT, NAME_LIMIT = 64, 200
"""How many numbers of a commit a heartbeat carries, and how many letters their names may have. The
agent closes the connection at a line of a megabyte, and gives the worker up."""
TEMPO_SMOOTHING = 0.3
"""The weight of the newest heartbeat's steps: a change of speed shows within about a second."""


class HeartbeatFacts(Protocol):
    """The facts that a heartbeat reports; each attribute is read by itself, and no read waits."""

    step: int
    epoch: int
    batches: int
    why_paused: str | None
    has_returned: bool
    has_failed: bool
    committed_at_s: float
    spent: SecondsSpent

    @property
    def training_generation(self) -> int: ...
    @property
    def is_in_step(self) -> bool: ...
    def arrived(self) -> int: ...
    def is_in_collective(self) -> bool: ...
    def epoch_progress(self) -> EpochProgress: ...
    def scalars(self) -> Mapping[str, float]: ...


class StepDuration:
    """The smoothed duration of a step in seconds, by the times of the commits."""

    def __init__(self) -> None:
        self.step_s = 0.0
        self._generation = 0
        self._step = 0
        self._at_s = 0.0

    def take(self, generation: int, step: int, at_s: float) -> float:
        """Return the duration of a step in seconds, as of this commit.

        A new generation is measured from its first commit on. `at_s` is the time of the commit by
        the monotonic clock.
        """
        steps = step - self._step
        if generation == self._generation and self._at_s and steps > 0:
            newest_s = (at_s - self._at_s) / steps
            share = TEMPO_SMOOTHING if self.step_s else 1.0
            self.step_s += share * (newest_s - self.step_s)
        if generation != self._generation:
            self._generation, self._step, self._at_s = generation, step, 0.0
        elif steps:
            self._step, self._at_s = step, at_s
        return self.step_s


class HeartbeatSender:
    """Sends the heartbeats and, while a change of world is due, interrupts the training thread."""

    def __init__(
        self,
        facts: HeartbeatFacts,
        send: Callable[[Beat], None],
        interrupt: Callable[[float], bool],
    ) -> None:
        """Make a sender, whose thread `start` begins.

        Args:
            facts: what the heartbeats report.
            send: sends one heartbeat, and does not wait.
            interrupt: gets the monotonic clock in seconds, interrupts the training thread if it is
                time to, and returns whether a change of world waits for that thread.
        """
        self._facts = facts
        self._send = send
        self._interrupt = interrupt
        self._step_duration = StepDuration()
        self._finite = FiniteCheck()
        self._wake = Event()
        self._is_over = False
        self._thread = Thread(target=self._run, name="elasticd-beating", daemon=True)

    def start(self) -> None:
        """Begin to send heartbeats."""
        self._thread.start()

    def wake(self) -> None:
        """Look now whether a change of world is due; any thread may call this."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread; a last heartbeat reports the steps before, if the training failed."""
        self._is_over = True
        self._wake.set()
        self._thread.join(BEAT_S * 5)

    def _run(self) -> None:
        beat_at_s = 0.0
        while not self._is_over:
            now_s = time.monotonic()
            if now_s >= beat_at_s:
                self._send(self._beat())
                beat_at_s = now_s + BEAT_S
            is_due = self._interrupt(now_s)
            self._wake.wait(RING_S if is_due else max(0.0, beat_at_s - time.monotonic()))
            self._wake.clear()
        if self._facts.has_failed:
            self._send(self._beat())

    def _beat(self) -> Beat:
        facts = self._facts
        generation, step = facts.training_generation, facts.step
        scalars: Mapping[str, float] = {}
        with suppress(Exception):  # A number that cannot be read must not make the worker silent.
            scalars = _few(facts.scalars())
        self._finite.check(scalars, step)
        far, committed_at_s = facts.epoch_progress(), facts.committed_at_s
        return Beat(
            generation=Generation(generation),
            step=step,
            step_s=self._step_duration.take(generation, step, committed_at_s),
            batches=facts.batches,
            sequence=facts.arrived(),
            is_in_collective=facts.is_in_collective(),
            is_in_step=facts.is_in_step,
            has_returned=facts.has_returned,
            is_paused=facts.why_paused is not None,
            why_paused=facts.why_paused or "",
            epoch=facts.epoch,
            consumed=far.consumed,
            epochs=far.epochs,
            steps=far.steps,
            epoch_samples=far.epoch_samples,
            scalars=scalars,
            committed_ago_s=time.monotonic() - committed_at_s if committed_at_s else 0.0,
            sent_s=time.clock_gettime(time.CLOCK_BOOTTIME),
            samples=far.samples,
            data_s=facts.spent.data_s,
            save_s=facts.spent.save_s,
            step_wait_s=step_wait.total_s,
            waits=step_wait.summary(),
        )


def _few(scalars: Mapping[str, float]) -> Mapping[str, float]:
    if len(scalars) <= NAMES_LIMIT and all(len(name) <= NAME_LIMIT for name in scalars):
        return scalars
    short = (name for name in scalars if len(name) <= NAME_LIMIT)
    return {name: scalars[name] for name in islice(short, NAMES_LIMIT)}

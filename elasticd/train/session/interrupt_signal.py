"""Gets the training thread out of `train` when it reaches no leave point by itself.

It may be in a long computation, in a sleep, or in a library. A signal is sent to that very thread:
Python runs the handler there, between two instructions, and a sleep or a wait for a lock ends for
it. So whether to raise is decided by the thread that it would be raised in, at that instant, and
nothing can change between the look and the act.

Rejected: PyThreadState_SetAsyncExc. The thread that calls it cannot know what the other is in by
the time the exception lands (in an optimizer's step, in our own code after `train`), and a sleep is
not woken by it.
"""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from elasticd.train.interrupt import Interrupted

__all__ = ["PATIENCE_S", "InterruptSignal"]

PATIENCE_S = 0.3
"""Most scripts reach a leave point, or an aborted collective, sooner."""

AGAIN_S = 0.5
"""A script that caught the interrupt, or was in a place that must not be left."""

DEAF_RINGS = 4
"""Rings without an answer after which a thread that uses no CPU counts as stuck: after 1.8 s."""

DEAF_SHARE = 0.2
"""Of a CPU; a thread that uses more of it computes, and will come back."""

FIRST_SIGNAL = signal.SIGRTMIN + 8
"""The first from here on that the script has not taken."""


class InterruptSignal:
    """One for a session; `call` belongs to the main thread, `ring` to another."""

    def __init__(self, is_due: Callable[[], bool], may_leave: Callable[[FrameType], bool]) -> None:
        """Take what says that a change is due, and whether a frame may be left right now."""
        self._is_due = is_due
        self._may_leave = may_leave
        self._thread = threading.main_thread().ident
        self._number = 0
        self._due_since_s: float | None = None
        self._rang_at_s = 0.0
        self._rings = 0
        self._first_ring: tuple[float, float] = (0.0, 0.0)
        """When, and how much CPU time the training thread had used by then."""
        self._is_inside = False

    def arm(self) -> None:
        """Take a signal; main thread only."""
        for number in range(FIRST_SIGNAL, signal.SIGRTMAX - 1):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._on_signal)
                self._number = number
                return

    def disarm(self) -> None:
        """Give the signal back; after the thread that rings has ended."""
        if self._number and signal.getsignal(self._number) == self._on_signal:
            signal.signal(self._number, signal.SIG_DFL)
        self._number = 0

    def call(self, function: Callable[[], object]) -> None:
        """Call a function that may be interrupted; nothing else in the process is."""
        self._is_inside = True
        try:
            function()
        finally:
            self._is_inside = False

    def ring(self, now_s: float) -> float | None:
        """Send the signal if it is time; called several times a second.

        Returns for how long a change has been due that the function was not left for; None if
        there is none. The clock starts anew with each.
        """
        if not (self._number and self._is_inside and self._is_due()):
            self._due_since_s = None
            self._rings = 0
            return None
        if self._due_since_s is None:
            self._due_since_s = now_s
            self._rang_at_s = now_s + PATIENCE_S - AGAIN_S
        elif now_s - self._rang_at_s >= AGAIN_S:
            self._rang_at_s = now_s
            if not self._rings:
                self._first_ring = now_s, self._cpu_s()
            self._rings += 1
            assert self._thread is not None
            signal.pthread_kill(self._thread, self._number)
        return now_s - self._due_since_s

    def is_deaf(self, now_s: float) -> bool:
        """True if the training thread waits in a call that nothing ends, not even a signal."""
        if self._rings <= DEAF_RINGS:
            return False
        since_s, cpu_s = self._first_ring
        return self._cpu_s() - cpu_s < DEAF_SHARE * (now_s - since_s)

    def _cpu_s(self) -> float:
        assert self._thread is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread))

    def _on_signal(self, _: int, frame: FrameType | None) -> None:
        self._rings = 0
        if not self._is_due() or frame is None:
            return
        # The function must have begun and not have returned: then its frame stands between the
        # one that runs and that of `call`, and the exception goes through it.
        walk: FrameType | None = frame
        while walk is not None and walk.f_code is not _CALL:
            walk = walk.f_back
        if walk is None or walk is frame:
            return
        if self._may_leave(frame):
            raise Interrupted


_CALL = InterruptSignal.call.__code__

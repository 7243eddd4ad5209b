"""Gets the training thread out of `train` when it reaches no leave point by itself.

The agent's order comes to agent_session.py, which lets the thread leave by itself first.
It may be in a long computation, in a sleep, or in a library. A signal is sent to that very thread:
Python runs the handler there, between two instructions, and a sleep or a wait for a lock ends for
it. So the training thread itself decides, at that instant, whether to raise, and nothing can change
between the look and the raise.

Rejected: PyThreadState_SetAsyncExc. The thread that calls it cannot know where the other thread is
when the exception arrives (in an optimizer's step, in elasticd's code after `train`), and it does
not end a sleep.
"""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from elasticd.train.interrupt import Interrupted

__all__ = ["PATIENCE_S", "InterruptSignal"]

PATIENCE_S = 0.3
"""How long a change is due before the first signal; most scripts reach a leave point sooner."""

AGAIN_S = 0.5
"""The time between two signals: the script may have caught one, or been where it may not leave."""

STUCK_SIGNALS = 4
"""Signals without an answer after which a thread that uses no CPU counts as stuck: after 1.8 s."""

STUCK_CPU_SHARE = 0.2
"""A thread that uses more than this share of a CPU computes, and will come back."""

FIRST_SIGNAL = signal.SIGRTMIN + 8
"""The first number to try; the first one from here on that the script has not taken is used."""


class InterruptSignal:
    """Sends the signal to the training thread, and raises Interrupted there where it may be left.

    A session has one. The main thread calls `call`, another one `send_if_due`.
    """

    def __init__(self, is_due: Callable[[], bool], may_leave: Callable[[FrameType], bool]) -> None:
        """Make one that holds no signal yet.

        Args:
            is_due: returns whether a change of world is due.
            may_leave: returns whether a frame may be left by an exception right now.
        """
        self._is_due = is_due
        self._may_leave = may_leave
        self._thread = threading.main_thread().ident
        self._number = 0
        self._due_since_s: float | None = None
        self._sent_at_s = 0.0
        self._signals = 0
        self._first_signal: tuple[float, float] = (0.0, 0.0)
        """When the first signal was sent, and the CPU seconds of the thread at that time."""
        self._is_inside = False

    def arm(self) -> None:
        """Install the handler for a signal that is free; only the main thread may call this."""
        for number in range(FIRST_SIGNAL, signal.SIGRTMAX - 1):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._on_signal)
                self._number = number
                return

    def disarm(self) -> None:
        """Give the signal back, once the thread that sends it has ended."""
        if self._number and signal.getsignal(self._number) == self._on_signal:
            signal.signal(self._number, signal.SIG_DFL)
        self._number = 0

    def call(self, function: Callable[[], object]) -> None:
        """Call a function that may be interrupted; code outside of it never is."""
        self._is_inside = True
        try:
            function()
        finally:
            self._is_inside = False

    def send_if_due(self, now_s: float) -> float | None:
        """Send the signal if it is time to; the caller calls this several times a second.

        Args:
            now_s: the monotonic clock, in seconds.

        Returns for how many seconds a change has been due that the function was not left for, or
        None if no change is due.
        """
        if not (self._number and self._is_inside and self._is_due()):
            self._due_since_s = None
            self._signals = 0
            return None
        if self._due_since_s is None:
            self._due_since_s = now_s
            self._sent_at_s = now_s + PATIENCE_S - AGAIN_S
        elif now_s - self._sent_at_s >= AGAIN_S:
            self._sent_at_s = now_s
            if not self._signals:
                self._first_signal = now_s, self._cpu_s()
            self._signals += 1
            assert self._thread is not None
            signal.pthread_kill(self._thread, self._number)
        return now_s - self._due_since_s

    def is_stuck(self, now_s: float) -> bool:
        """Return whether the training thread waits in a call that not even a signal ends."""
        if self._signals <= STUCK_SIGNALS:
            return False
        since_s, cpu_s = self._first_signal
        return self._cpu_s() - cpu_s < STUCK_CPU_SHARE * (now_s - since_s)

    def _cpu_s(self) -> float:
        assert self._thread is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread))

    def _on_signal(self, _: int, frame: FrameType | None) -> None:
        self._signals = 0
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

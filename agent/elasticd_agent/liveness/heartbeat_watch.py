"""Watches the workers that send heartbeats: it feeds the hang detector and passes its verdicts on.

No thread of its own: it is the `tick` of `WorkerSockets` and runs on that thread, after everything
that lay unread was heard. A thread of its own could run while the listening one does not. It would
then take unread heartbeats for the silence of all workers, which wait in a collective most of the
time and then look dead in /proc.
"""

from collections.abc import Callable
from threading import Lock

from elasticd.channel.worker import FromWorker
from elasticd.records.ids import JobName
from elasticd_agent.liveness.hang_detector import HangDetector, ProcessSample, Verdict
from elasticd_agent.liveness.proc_sample import read_sample
from elasticd_agent.loop.clock import now_s

__all__ = ["HeartbeatWatch"]

PAUSE_S = 0.2
LATE_PAUSE_S = 0.1
"""The pause between looks while a heartbeat is overdue: a verdict needs at least four samples."""


class HeartbeatWatch:
    """`post` gets each verdict once, from the thread that calls `tick`."""

    def __init__(
        self,
        post: Callable[[Verdict], None],
        *,
        clock: Callable[[], float] = now_s,
        read: Callable[[int], ProcessSample | None] = read_sample,
    ) -> None:
        self._post, self._clock, self._read = post, clock, read
        self._lock = Lock()
        self._detector = HangDetector()
        self._pause_s = PAUSE_S

    def watch(self, pid: int, *, job: JobName, limit_s: float) -> None:
        """Begin to watch a worker, from any thread; `limit_s` is the job's `progress_timeout_s`."""
        with self._lock:
            self._detector.watch(pid, job=job, limit_s=limit_s)

    def forget(self, pid: int) -> None:
        """Stop watching it, from any thread, because the worker is being stopped, has raised, or
        has ended.
        """
        with self._lock:
            self._detector.forget(pid)

    def take_message(self, pid: int, message: FromWorker | None) -> None:
        """Take in a message at the moment when it was heard; None means that the
        connection ended.
        """
        with self._lock:
            self._detector.receive(pid, message, now_s=self._clock())

    def tick(self) -> float | None:
        """Look once; return the seconds until the next look, None for not before the
        next message.
        """
        with self._lock:
            if not self._detector.is_needed:
                self._detector.rest()
                return None
            late = self._detector.late(now_s=self._clock())
        # Outside the lock: the owner must not wait for /proc.
        samples = {pid: self._read(pid) for pid in late}
        with self._lock:
            verdicts = self._detector.look(samples, now_s=self._clock(), pause_s=self._pause_s)
            self._pause_s = LATE_PAUSE_S if late else PAUSE_S
        for verdict in verdicts:
            self._post(verdict)
        return self._pause_s

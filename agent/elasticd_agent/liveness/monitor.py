"""Collects an agent's observations of workers that called `elasticd.run`, for all its jobs.

It feeds the hang detector and passes its verdicts on. It has no thread of its own: its `tick` is
that of `WorkerSockets` and runs on that thread, after all unread messages were handled. A thread of
its own could run while the reading one does not. It would then take unread heartbeats for the
silence of all workers, which wait in a collective most of the time and then look dead in /proc.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from elasticd.channel.worker import Attached, FromWorker, Stacks, ToWorker
from elasticd.records.ids import JobName, Life
from elasticd_agent.liveness.hang_detector import HangDetector, Verdict
from elasticd_agent.liveness.proc_sample import read_sample
from elasticd_agent.liveness.stack_dump import StackCollector, SuspectWorker
from elasticd_agent.liveness.stopped_start import StoppedStarts
from elasticd_agent.liveness.worker_sockets import WorkerSockets
from elasticd_agent.loop.clock import now_s

__all__ = ["WorkerMonitor"]

PAUSE_S = 0.2
LATE_PAUSE_S = 0.1
"""The pause between looks while a heartbeat is overdue: a verdict needs at least four samples."""


class WorkerMonitor:
    """Listen to the workers and judge them. `on_message` and `judged` are called from its thread,
    with each verdict once.
    """

    def __init__(
        self,
        life: Life,
        on_message: Callable[[int, FromWorker], None],
        judged: Callable[[Verdict], None],
        search_path: str,
    ) -> None:
        """`search_path` is the agent's PATH, on which py-spy is looked for."""
        self._on_message, self._on_judged = on_message, judged
        self._jobs: dict[int, JobName] = {}
        self._lock = Lock()
        """Guards the detector and the starts alone."""
        self._detector = HangDetector()
        self._starts = StoppedStarts()
        self._pause_s = PAUSE_S
        self._is_resting = False
        """True if no worker sends heartbeats, and those that start are looked at now and then."""
        self._attachments = WorkerSockets(life, self._take_message, tick=self._tick)
        self._stacks = StackCollector(self._attachments.send, search_path=search_path)

    @property
    def name(self) -> str:
        """Return where workers find it: the value of `ELASTICD_AGENT`."""
        return self._attachments.name

    def expect(self, pid: int, *, job: JobName, limit_s: float, is_prepared: bool = False) -> None:
        """Expect a worker that this agent started: it may attach, and is watched from then on.

        `limit_s` is the job's `progress_timeout_s`; 0 means none. One that `is_prepared` is to
        attach, and is watched until then too: it may have been stopped by a signal.
        """
        self._jobs[pid] = job
        with self._lock:
            self._detector.watch(pid, job=job, limit_s=limit_s or math.inf)
            if is_prepared:
                self._starts.watch(pid)
        self._attachments.allow(pid)
        if is_prepared:
            self._attachments.request_tick()

    def ignore(self, pid: int) -> None:
        """Stop judging a worker that is being stopped, has raised, or has ended: its silence means
        nothing any more.
        """
        with self._lock:
            self._detector.forget(pid)
            self._starts.forget(pid)

    def job_of(self, pid: int) -> JobName | None:
        """Return the job that a process was started for; None if it is no worker any more."""
        return self._jobs.get(pid)

    def forget(self, pid: int) -> None:
        self._jobs.pop(pid, None)
        self.ignore(pid)
        self._attachments.forget(pid)

    def send(self, pid: int, message: ToWorker) -> None:
        self._attachments.send(pid, message)

    def write_stacks(
        self, path: Path, workers: Sequence[SuspectWorker], done: Callable[[], None]
    ) -> None:
        """Write down the stacks of these workers; `done` is called within half a second."""
        self._stacks.collect(path, workers, done)

    def close(self) -> None:
        self._attachments.close()

    # --- the thread of the sockets ------------------------------------------------------------

    def _take_message(self, pid: int, message: FromWorker | None) -> None:
        """Take in a message at the moment when it was heard; None says that the worker's
        connection ended.
        """
        with self._lock:
            self._detector.receive(pid, message, now_s=now_s())
            if isinstance(message, Attached):
                self._starts.forget(pid)
        if self._is_resting:
            self._attachments.request_tick()
        if isinstance(message, Stacks):
            self._stacks.take_answer(pid, message.text)
        elif message is not None:
            # Its end is told by the pool as well.
            self._on_message(pid, message)

    def _tick(self) -> float | None:
        """Look once; return the seconds until the next look, None for not before the next
        message.
        """
        with self._lock:
            at_s, is_needed = now_s(), self._detector.is_needed
            if not is_needed:
                self._detector.pause()
            late, starting = self._detector.late(now_s=at_s), self._starts.due(now_s=at_s)
        # Outside the lock: the owner must not wait for /proc.
        samples = {pid: read_sample(pid) for pid in (*late, *starting)}
        verdicts: list[Verdict] = []
        with self._lock:
            if is_needed:
                of_late = {pid: samples[pid] for pid in late}
                verdicts += self._detector.judge(of_late, now_s=now_s(), pause_s=self._pause_s)
                self._pause_s = LATE_PAUSE_S if late else PAUSE_S
            if starting:
                verdicts += self._starts.judge(
                    {pid: samples[pid] for pid in starting}, now_s=now_s()
                )
            rest_s = self._starts.rest_s(now_s=now_s())
        for verdict in verdicts:
            self._on_judged(verdict)
        self._is_resting = not is_needed and rest_s is not None
        return self._pause_s if is_needed else rest_s

"""Delivers a worker's messages, and the findings about the worker, to the worker's job.

The monitor knows of each process for which job it was started. So a heartbeat costs the same on a
node with one job and on a node with fifty.
"""

from collections.abc import Callable
from functools import partial

from elasticd.channel.worker import FromWorker
from elasticd.records.ids import JobName, Life
from elasticd_agent.job.job_guard import JobGuard
from elasticd_agent.liveness.hang_detector import Verdict
from elasticd_agent.liveness.monitor import WorkerMonitor
from elasticd_agent.loop.inbox import Item
from elasticd_agent.workers.workers import Workers

__all__ = ["WorkerDispatch"]


class WorkerDispatch:
    """The dispatch of one agent: it owns the monitor of all workers, and calls jobs on the owner's
    thread.
    """

    def __init__(
        self,
        life: Life,
        post: Callable[[Item], None],
        guard: JobGuard,
        workers_of: Callable[[JobName], Workers | None],
        search_path: str,
    ) -> None:
        """`workers_of` returns the workers of a job that is served here or may come back;
        `search_path` is the agent's PATH.
        """
        self._post, self._guard, self._workers_of = post, guard, workers_of
        self.monitor = WorkerMonitor(life, self._spoke, self._judged, search_path)

    def _spoke(self, pid: int, message: FromWorker) -> None:
        """Take in a worker's message; the monitor's thread calls this."""
        self._post(partial(self._dispatch, pid, message))

    def _judged(self, verdict: Verdict) -> None:
        """Take in a verdict about a worker; the monitor's thread calls this."""
        self._post(partial(self._judge, verdict))

    def _dispatch(self, pid: int, message: FromWorker) -> None:
        if (workers := self._of(pid)) is not None:
            self._guard.run(workers.spec.name, partial(workers.attached.receive, pid, message))

    def _judge(self, verdict: Verdict) -> None:
        if (workers := self._of(verdict.pid)) is not None:
            self._guard.run(workers.spec.name, partial(workers.judge, verdict))

    def _of(self, pid: int) -> Workers | None:
        job = self.monitor.job_of(pid)
        return self._workers_of(job) if job is not None else None

"""What an agent hears and sees of the workers that called `elasticd.run`, for all its jobs."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from elasticd.channel.worker import FromWorker, Stacks, ToWorker
from elasticd.records.ids import JobName, Life
from elasticd_agent.liveness.hang_detector import Verdict
from elasticd_agent.liveness.heartbeat_watch import HeartbeatWatch
from elasticd_agent.liveness.stack_dump import StackCollector, SuspectWorker
from elasticd_agent.liveness.worker_sockets import WorkerSockets

__all__ = ["WorkerMonitor"]


class WorkerMonitor:
    """Listen to the workers and judge them. `heard` and `judged` are called from its thread."""

    def __init__(
        self,
        life: Life,
        heard: Callable[[int, FromWorker], None],
        judged: Callable[[Verdict], None],
        search_path: str,
    ) -> None:
        """`search_path` is the agent's PATH, on which py-spy is looked for."""
        self._on_heard = heard
        self._heartbeat_watch = HeartbeatWatch(judged)
        self._attachments = WorkerSockets(life, self._take_message, tick=self._heartbeat_watch.tick)
        self._stacks = StackCollector(self._attachments.tell, search_path=search_path)
        self._jobs: dict[int, JobName] = {}

    @property
    def name(self) -> str:
        """Return where workers find it: the value of `ELASTICD_AGENT`."""
        return self._attachments.name

    def expect(self, pid: int, *, job: JobName, limit_s: float) -> None:
        """Expect a process of ours: it may attach, and is watched from then on; a limit of 0 means
        none.
        """
        self._jobs[pid] = job
        self._heartbeat_watch.watch(pid, job=job, limit_s=limit_s or math.inf)
        self._attachments.allow(pid)

    def overlook(self, pid: int) -> None:
        """Stop judging a worker that ends for a known reason: its silence means nothing
        any more.
        """
        self._heartbeat_watch.forget(pid)

    def job_of(self, pid: int) -> JobName | None:
        """Return the job that a process was started for; None if it is none of ours any more."""
        return self._jobs.get(pid)

    def forget(self, pid: int) -> None:
        self._jobs.pop(pid, None)
        self._heartbeat_watch.forget(pid)
        self._attachments.forget(pid)

    def tell(self, pid: int, message: ToWorker) -> None:
        self._attachments.tell(pid, message)

    def write_stacks(
        self, path: Path, workers: Sequence[SuspectWorker], done: Callable[[], None]
    ) -> None:
        """Write down the stacks of these workers; `done` is called within half a second."""
        self._stacks.collect(path, workers, done)

    def close(self) -> None:
        self._attachments.close()

    def _take_message(self, pid: int, message: FromWorker | None) -> None:
        self._heartbeat_watch.take_message(pid, message)
        if isinstance(message, Stacks):
            self._stacks.take_answer(pid, message.text)
        elif message is not None:
            # Its end is told by the pool as well.
            self._on_heard(pid, message)

"""Copies the output of ranks of this node to the agent's stdout, which `kubectl logs` shows.

Workers write into files, and into nothing else: a pipe that nobody reads would stop them. The
lines are read from these files, on a thread for each job (its folder may hang), and written to
stdout with job and rank before each. If the reader of stdout stops, nobody but such a thread waits
for it. It keeps nothing meanwhile, since the files do; what it is too late for is told as missing.
"""

import os
import select
import sys
from dataclasses import dataclass, field
from itertools import chain
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from elasticd.records.ids import JobName
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.clock import now_s
from elasticd_agent.output_monitor.followed_log import FollowedLog
from elasticd_agent.settings import ForwardedRanks

if TYPE_CHECKING:  # An agent is up before it knows of jobs.
    from elasticd_agent.worker_setup.worker_env import WorkerFiles

__all__ = ["StdoutCopy", "JobForwarding"]

LOOK_S = 0.5
LINGER_S = 5.0
"""A worker that goes on in another world, or a child of one that ended, may write so long into the
file of before."""
CLOSE_TIMEOUT_S = 2.0
WRITABLE_S = 1.0
BATCH_BYTES = select.PIPE_BUF
"""Whole lines of together so many bytes are one write, which no other writer's lines split."""

log = get_logger()


class StdoutCopy:
    """The one way to stdout, for all jobs of an agent; any thread may call it."""

    def __init__(self, ranks: ForwardedRanks, fd: int | None = None) -> None:
        """`fd` gets the lines, and stays open; None: the lines go to stdout, if there is one."""
        self._ranks, self._fd = ranks, fd
        if fd is None and sys.stdout is not None:
            self._fd = sys.__stdout__.fileno() if sys.__stdout__ is not None else None
        self._lock = Lock()
        self._jobs: list[JobForwarding] = []
        self.is_closed = self._fd is None

    def of(self, job: JobName) -> "JobForwarding | None":
        """Return what forwards one job's output; None: nothing of it is wanted."""
        if self._ranks is ForwardedRanks.NONE:
            return None
        made = JobForwarding(self, job, has_all=self._ranks is ForwardedRanks.ALL)
        with self._lock:
            self._jobs = [each for each in self._jobs if each.is_running] + [made]
        return made

    def write(self, lines: bytes) -> bool:
        """Write whole lines; False: they are lost. Waits for the reader as long as it takes."""
        try:
            while lines and not self.is_closed:
                lines = lines[self._write(lines) :]
        except BrokenPipeError:
            self._give_up("its reader has gone")
        except OSError as exc:  # A full disk: the next ones may find room.
            log.debug("output.not_forwarded", why=exc.strerror)
        except ValueError:
            self._give_up("it is closed")
        return not lines

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Write what is there already, but wait no longer than that."""
        deadline_s = now_s() + timeout_s
        with self._lock:
            jobs = list(self._jobs)
        for each in jobs:
            each.close()
        for each in jobs:
            each.join(max(0.0, deadline_s - now_s()))
        self.is_closed = True

    def _write(self, lines: bytes) -> int:
        assert self._fd is not None
        try:
            return os.write(self._fd, lines)
        except BlockingIOError:  # Somebody who shares it does not want to wait for it.
            select.select((), (self._fd,), (), WRITABLE_S)
            return 0

    def _give_up(self, why: str) -> None:
        with self._lock:
            is_new, self.is_closed = not self.is_closed, True
        if is_new:
            log.warning("output.not_forwarded", why=f"stdout takes no more: {why}")


@dataclass(slots=True, eq=False)
class _Followed:
    """A worker's two streams in one world."""

    files: "WorkerFiles"
    prefix: bytes
    logs: tuple[FollowedLog, FollowedLog]
    left_s: float | None = field(default=None)
    """When the worker was done with them."""


class JobForwarding:
    """The copy of one job; its thread begins with the first wanted rank, and ends with `close`."""

    def __init__(self, target: StdoutCopy, job: JobName, *, has_all: bool) -> None:
        self._target, self._job, self._has_all = target, job, has_all
        self._lock = Lock()
        self._current: dict[int, _Followed] = {}
        self._followed: list[_Followed] = []
        self._is_closing = Event()
        self._thread: Thread | None = None

    @property
    def is_running(self) -> bool:
        """Return True until its thread has ended; also before that begins."""
        return not self._is_closing.is_set() or (
            self._thread is not None and self._thread.is_alive()
        )

    def follow(self, pid: int, files: "WorkerFiles") -> None:
        """Take the files to which a process writes from now on; ignore ranks that are not wanted.

        A process that was started for a world is named at its start, and again as it enters it.
        """
        with self._lock:
            current = self._current.get(pid)
        if current is not None and current.files == files:
            return
        self.forget(pid)
        rank = files.rank
        if rank is None or self._target.is_closed or not (self._has_all or rank == 0):
            return
        prefix = f"[{self._job} rank{rank}] ".encode()
        made = _Followed(files, prefix, (FollowedLog(files.out), FollowedLog(files.err)))
        with self._lock:
            self._current[pid] = made
            self._followed.append(made)
        if self._thread is None:
            thread = Thread(target=self._run, name="output-forwarding", daemon=True)
            try:
                thread.start()
            except RuntimeError as exc:  # No more threads: tried again with the next process.
                log.warning("output.not_forwarded", job=self._job, why=str(exc))
            else:
                self._thread = thread

    def forget(self, pid: int) -> None:
        """It has ended, or writes elsewhere; what it left is read for a while."""
        with self._lock:
            before = self._current.pop(pid, None)
            if before is not None:
                before.left_s = now_s()

    def close(self) -> None:
        """Have the thread end after one more look; it is not waited for."""
        self._is_closing.set()

    def join(self, timeout_s: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout_s)

    def poll(self, *, is_last: bool = False) -> None:
        """Forward what has come; `is_last`: also a line that has no end."""
        with self._lock:
            followed = list(self._followed)
        at_s = now_s()
        for each in followed:
            is_over = is_last or (each.left_s is not None and at_s >= each.left_s + LINGER_S)
            for source in each.logs:
                self._forward(each.prefix, source, is_over=is_over)
            if is_over:
                with self._lock:
                    self._followed.remove(each)

    def _forward(self, prefix: bytes, source: FollowedLog, *, is_over: bool) -> None:
        batch = b""
        for line in chain(source.read(), source.end() if is_over else ()):
            whole = prefix + line + b"\n"
            if batch and len(batch) + len(whole) > BATCH_BYTES:
                self._pass_on(batch, source)
                batch = b""
            batch += whole
        if batch:
            self._pass_on(batch, source)

    def _pass_on(self, batch: bytes, source: FollowedLog) -> None:
        if not self._target.write(batch):
            source.lose(len(batch))

    def _run(self) -> None:
        while not (self._is_closing.wait(LOOK_S) or self._target.is_closed):
            self.poll()
        self.poll(is_last=True)

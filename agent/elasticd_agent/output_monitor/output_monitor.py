"""Looks at the files of one job's workers on this node once a second, on a thread of its own.

It notes the files' sizes with their times, keeps their room below the job's limit, and reports when
no worker writes any more. The run folder may be on a file system that hangs: then only this thread
hangs, and no worker is reported as silent meanwhile.
"""

import errno
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread

from elasticd.control.logs.log_times import times_line
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.clock import now_s
from elasticd_agent.output_monitor.disk_limit import keep_below
from elasticd_agent.output_monitor.silence import News, OutputSilence
from elasticd_agent.output_monitor.stdout_copy import JobForwarding
from elasticd_agent.worker_setup.worker_env import WorkerFiles

__all__ = ["OutputLimits", "OutputMonitor"]

LOOK_S = 1.0
NOTE_S = 2.0
"""Between two notes of when how much stood there; `logs --timestamps` is as exact as that."""
_NOTHING = (0, 0)
_NOT_POSSIBLE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLimits:
    """The limits that a job sets for its output."""

    silence_s: float = 0.0
    """How long its workers may write nothing; 0: for ever."""
    room_bytes: int = 0
    """What each stream of a rank may take of the disk, in each generation; 0: anything."""


@dataclass(slots=True, eq=False)
class _Watched:
    """Where a process writes; another object for each place it writes to."""

    files: WorkerFiles
    noted: tuple[int, int] = _NOTHING
    noted_s: float = -NOTE_S


class OutputMonitor:
    """Watches one job's output. Its thread calls `on_news`, begins with the first process, and ends
    with `close`.
    """

    def __init__(
        self,
        limits: OutputLimits,
        on_news: Callable[[News], None],
        steps_told: Callable[[int], int] = lambda pid: 0,
        forwarding: JobForwarding | None = None,
    ) -> None:
        """`steps_told` gives how many steps a process reported; these count as output too.

        `forwarding` copies output elsewhere; it gets the same processes.
        """
        self._forwarding = forwarding
        self._limits, self._on_news, self._steps_told = limits, on_news, steps_told
        self._has_room_limit = limits.room_bytes > 0
        self._lock = Lock()
        self._watched: dict[int, _Watched] = {}
        self._left: list[_Watched] = []
        """Where nobody writes any more, and the last note is missing."""
        self._silence = OutputSilence(limits.silence_s, LOOK_S)
        self._is_closing = Event()
        self._thread: Thread | None = None

    def watch(self, pid: int, files: WorkerFiles) -> None:
        """Look at where a process writes, or writes from now on."""
        with self._lock:
            self._unwatch(pid)
            self._watched[pid] = _Watched(files)
        if self._forwarding is not None:
            self._forwarding.follow(pid, files)
        if self._thread is None:
            self._thread = Thread(target=self._run, name="output-watch", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as exc:  # No more threads: tried again with the next process.
                self._thread = None
                log.warning("output.not_watched", why=str(exc))

    def forget(self, pid: int) -> None:
        """It has ended; what it wrote last is noted at the next look."""
        with self._lock:
            self._unwatch(pid)
        if self._forwarding is not None:
            self._forwarding.forget(pid)

    def _unwatch(self, pid: int) -> None:
        before = self._watched.pop(pid, None)
        if before is not None:
            self._left.append(before)

    def close(self) -> None:
        """End the thread; one that hangs on a file is not waited for."""
        self._is_closing.set()
        if self._forwarding is not None:
            self._forwarding.close()

    def poll(self, at_s: float) -> None:
        """Read once how much each worker has written."""
        with self._lock:
            watched = dict(self._watched)
            left, self._left = self._left, []
        for each in left:
            self._look_at(each, math.inf)
        sizes = {
            pid: self._look_at(each, at_s) + self._steps_told(pid) for pid, each in watched.items()
        }
        with self._lock:
            # Who was forgotten, or writes elsewhere by now, is not judged by what it wrote before.
            current = {pid: n for pid, n in sizes.items() if self._watched.get(pid) is watched[pid]}
        for news in self._silence.poll(current, at_s):
            self._on_news(news)

    def _look_at(self, watched: _Watched, at_s: float) -> int:
        """Return how much a process has written, of both streams."""
        out, err = watched.files.out, watched.files.err
        found = (_size(out), _size(err))
        if found != watched.noted and at_s - watched.noted_s >= NOTE_S:
            _note(watched.files.times, found)
            watched.noted, watched.noted_s = found, at_s
        if self._has_room_limit:
            for path, size in zip((out, err), found, strict=True):
                if size > self._limits.room_bytes:
                    self._make_room(path)
        return sum(found)

    def _make_room(self, path: Path) -> None:
        try:
            keep_below(path, self._limits.room_bytes)
        except OSError as exc:
            if exc.errno not in _NOT_POSSIBLE:
                return  # It was removed or replaced just now.
            self._has_room_limit = False
            log.warning(
                "output.not_limited",
                path=str(path),
                why=exc.strerror,
                hint="this file system cannot give back the room of a part of a file",
            )

    def _run(self) -> None:
        while not self._is_closing.wait(LOOK_S):
            self.poll(now_s())
        self.poll(now_s())


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _note(path: Path, sizes: tuple[int, int]) -> None:
    """A disk that is full or read-only costs the times of lines, and nothing else."""
    with suppress(OSError), path.open("ab") as file:
        file.write(times_line(time.time(), *sizes))

"""Looks at the files of one job's workers on this node once a second, on a thread of its own.

The run folder may be on a file system that hangs: then this thread does, and nobody else. While it
does nobody is told silent.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread

from elasticd_agent.clock import now_s
from elasticd_agent.output_watch.silence import News, Silence
from elasticd_agent.worker_env import WorkerFiles

__all__ = ["OutputWatch"]

LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class _Watched:
    """Where a process writes; another object for each place it writes to."""

    files: WorkerFiles

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.files.out, self.files.err


class OutputWatch:
    """`told` is called on the thread; it begins with the first process, and ends with `close`."""

    def __init__(self, limit_s: float, told: Callable[[News], None]) -> None:
        """`limit_s`: how long a process may write nothing; 0: for ever."""
        self._limit_s, self._told = limit_s, told
        self._lock = Lock()
        self._watched: dict[int, _Watched] = {}
        self._silence = Silence(limit_s, LOOK_S)
        self._is_closing = Event()
        self._thread: Thread | None = None

    def watch(self, pid: int, files: WorkerFiles) -> None:
        """Look at where a process writes, or writes from now on."""
        if not self._limit_s:
            return
        with self._lock:
            self._watched[pid] = _Watched(files)
        if self._thread is None:
            self._thread = Thread(target=self._run, name="output-watch", daemon=True)
            self._thread.start()

    def forget(self, pid: int) -> None:
        """It has ended, or its silence means nothing (any more)."""
        with self._lock:
            self._watched.pop(pid, None)

    def close(self) -> None:
        """End the thread; one that hangs on a file is not waited for."""
        self._is_closing.set()

    def look(self, at_s: float) -> None:
        """Look once."""
        with self._lock:
            watched = dict(self._watched)
        sizes = {pid: sum(map(_size, each.paths)) for pid, each in watched.items()}
        with self._lock:
            # Who was forgotten, or writes elsewhere by now, is not judged by what it wrote before.
            current = {pid: n for pid, n in sizes.items() if self._watched.get(pid) is watched[pid]}
        news = self._silence.look(current, at_s)
        for each in news:
            self._told(each)

    def _run(self) -> None:
        while not self._is_closing.wait(LOOK_S):
            self.look(now_s())


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0

"""Writes the stacks of a node's workers to a file before one of the workers is killed.

A worker that still answers reports its own stacks. A frozen one cannot, and must be examined from
outside while it exists: /proc first, which takes a millisecond, then py-spy, if there is one. All
of it together gets half a second, then the kill goes ahead with whatever there is; the file is
written after that, because a run folder on a network may hang.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Lock, Thread, Timer

from elasticd.channel.worker import Dump, ToWorker
from elasticd.records.ids import Generation, JobName, NodeId, Rank
from elasticd.telemetry.log import get_logger
from elasticd_agent.pool.process.effective_user import child_gid, child_uid

__all__ = ["StackCollector", "SuspectWorker", "stacks_path"]

BUDGET_S = 0.5
"""The longest time that a recovery waits for stacks."""
ANSWER_S = 0.4
"""The part of it for workers that are asked; the rest is for examining those that did not
answer."""
SPIES_LIMIT = 8
PY_SPY_TIMEOUT_S = 3.0
"""How long py-spy has to end after it was killed; it may hang in the kernel on the process that it
reads."""
TEXT_LIMIT_BYTES = 262_144
"""The size limit for the stacks of one worker."""
THREADS_LIMIT = 64
COLLECTIONS_LIMIT = 4
"""How many collections run at once, one for each job with a hung worker; more are answered without
stacks."""
_FACT_LIMIT_BYTES = 4096
_MARGIN_S = 0.05
_CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), 127) if code not in (9, 10)}
"""Control characters are removed, since a worker's text may be shown on a terminal."""

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectWorker:
    """A worker whose stacks are wanted."""

    pid: int
    rank: Rank
    is_frozen: bool = False
    """True if it is not asked but examined from outside."""
    note: str = ""
    """Why it is suspected, if it is."""


def stacks_path(run_folder: Path, job: JobName, generation: Generation, node: NodeId) -> Path:
    return run_folder / job / "incidents" / f"gen-{generation}.{node}.stacks.txt"


class StackCollector:
    """Collect stacks in threads of its own.

    `tell` is that of `WorkerSockets`, `search_path` the agent's PATH, with which py-spy runs.
    `py_spy` is a path, or empty for none; if it is left out, py-spy is looked for.
    """

    def __init__(
        self,
        tell: Callable[[int, ToWorker], None],
        *,
        search_path: str,
        py_spy: str | None = None,
    ) -> None:
        self._tell, self._search_path = tell, search_path
        self.py_spy = _find_py_spy(search_path) if py_spy is None else py_spy
        self._changed = Condition()
        self._wanted: dict[int, int] = {}
        """How many collections wait for a worker's word."""
        self._said: dict[int, str] = {}
        self._running = 0

    def take_answer(self, pid: int, text: str) -> None:
        """Take in a worker's Stacks, from any thread; unexpected ones are dropped."""
        with self._changed:
            if pid in self._wanted:
                self._said[pid] = text[:TEXT_LIMIT_BYTES]
                self._changed.notify_all()

    def collect(
        self, path: Path, workers: Sequence[SuspectWorker], done: Callable[[], None]
    ) -> None:
        """Ask and examine, call `done` within half a second from another thread, then write the
        file.

        Workers that can answer are asked before this returns, so they hear an order that is given
        afterwards only after it. The file is appended to: a generation may have more than one hung
        worker.
        """
        with self._changed:
            is_full = self._running >= COLLECTIONS_LIMIT
            self._running += not is_full
        if is_full:
            done()
            return
        asked = [worker.pid for worker in workers if not worker.is_frozen]
        with self._changed:
            for pid in asked:
                self._wanted[pid] = self._wanted.get(pid, 0) + 1
        for pid in asked:
            self._tell(pid, Dump())
        args = (path, tuple(workers), done)
        try:
            Thread(target=self._run, args=args, name="stacks", daemon=True).start()
        except RuntimeError as exc:  # No more threads: the recovery goes on without stacks.
            log.warning("stacks.not_written", path=str(path), why=str(exc))
            self._wait_answers(asked, 0.0)
            with self._changed:
                self._running -= 1
            done()

    def _run(
        self, path: Path, workers: tuple[SuspectWorker, ...], done: Callable[[], None]
    ) -> None:
        once = _Once(done)
        # Even reading /proc can hang, on a process that hangs in its exec.
        timer = Timer(BUDGET_S, once)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # No more threads: the recovery waits for no stacks.
            once()
        try:
            try:
                text = self._gather(workers, time.monotonic())
            finally:
                timer.cancel()
                once()
            _append(path, text)
        except (OSError, RuntimeError) as exc:  # No disk, or no thread is left.
            log.warning("stacks.not_written", path=str(path), why=str(exc))
        finally:
            with self._changed:
                self._running -= 1

    def _gather(self, workers: tuple[SuspectWorker, ...], start_s: float) -> str:
        asked = [worker.pid for worker in workers if not worker.is_frozen]
        frozen = [worker for worker in workers if worker.is_frozen]
        spied = frozen[:SPIES_LIMIT] if self.py_spy else []
        spies = [_Spy(self.py_spy, worker.pid, self._search_path) for worker in spied]
        seen = {worker.pid: _kernel_view(worker.pid) for worker in frozen}
        said = self._wait_answers(asked, start_s + ANSWER_S)
        for spy in spies:
            seen[spy.pid] = spy.take(start_s + BUDGET_S - _MARGIN_S) + seen[spy.pid]
        for pid in asked:
            if pid not in said:
                seen[pid] = "It did not answer.\n" + _kernel_view(pid)
        return "".join(_section(w, said.get(w.pid) or seen.get(w.pid, "")) for w in workers)

    def _wait_answers(self, pids: list[int], until_s: float) -> dict[int, str]:
        with self._changed:
            self._changed.wait_for(
                lambda: all(pid in self._said for pid in pids), until_s - time.monotonic()
            )
            said = {pid: self._said[pid] for pid in pids if pid in self._said}
            for pid in pids:
                self._wanted[pid] -= 1
                if not self._wanted[pid]:
                    del self._wanted[pid]
                    self._said.pop(pid, None)
        return said


class _Once:
    """Call a function once, for the first of several callers."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call, self._lock, self._is_called = call, Lock(), False

    def __call__(self) -> None:
        with self._lock:
            was_called, self._is_called = self._is_called, True
        if not was_called:
            self._call()


class _Spy:
    """One run of py-spy. It does not stop the process that it reads, and its output stays in
    memory.
    """

    def __init__(self, program: str, pid: int, search_path: str) -> None:
        self.pid = pid
        self._out = os.memfd_create("py-spy")
        self._process: subprocess.Popen[bytes] | None = None
        self._why = ""
        try:
            self._process = subprocess.Popen(
                [program, "dump", "--nonblocking", "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._out,
                env={"PATH": search_path},
                cwd="/",
                user=child_uid(),
                group=child_gid(),
            )
        except OSError as exc:
            self._why = str(exc)

    def take(self, until_s: float) -> str:
        """Return py-spy's output at that time, or why there is none."""
        process = self._process
        if process is not None:
            try:
                process.wait(max(0.0, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._why = "it was not done in time"
                process.kill()
                Thread(target=_reap, args=(process,), name="py-spy-end", daemon=True).start()
            else:
                self._why = f"exit code {process.returncode}" if process.returncode else ""
        text = os.pread(self._out, TEXT_LIMIT_BYTES, 0).decode(errors="replace")
        os.close(self._out)
        return (f"py-spy: {self._why}\n" if self._why else "") + text + "\n"


def _find_py_spy(search_path: str) -> str:
    """Return the path of py-spy, beside this interpreter or on PATH; empty if there is none."""
    beside = os.path.dirname(sys.executable)
    return shutil.which("py-spy", path=beside) or shutil.which("py-spy", path=search_path) or ""


def _reap(process: subprocess.Popen[bytes]) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(PY_SPY_TIMEOUT_S)


def _section(worker: SuspectWorker, text: str) -> str:
    head = f"=== rank {worker.rank}, pid {worker.pid}"
    if worker.is_frozen:
        head += ", frozen"
    if worker.note:
        head += f": {worker.note}"
    return f"{head} ===\n{text.rstrip()}\n\n".translate(_CONTROLS)


def _append(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)


def _kernel_view(pid: int) -> str:
    """Return what /proc tells of each thread, as far as this user may read it."""
    try:
        tasks = sorted(os.listdir(f"/proc/{pid}/task"), key=int)
    except OSError:
        return "The process is gone.\n"
    lines = [line for task in tasks[:THREADS_LIMIT] for line in _thread_view(pid, task)]
    if len(tasks) > THREADS_LIMIT:
        lines.append(f"and {len(tasks) - THREADS_LIMIT} threads more")
    return "\n".join(lines) + "\n"


def _thread_view(pid: int, task: str) -> Iterator[str]:
    folder = f"/proc/{pid}/task/{task}"
    stat = _fact(f"{folder}/stat")
    state = stat[stat.rindex(")") + 2 :][:1] if ")" in stat else "?"
    wchan, syscall = _fact(f"{folder}/wchan") or "-", _fact(f"{folder}/syscall") or "-"
    yield f"thread {task} ({_fact(f'{folder}/comm')}): state {state}, in {wchan}, call {syscall}"
    for line in _fact(f"{folder}/stack").splitlines():
        yield f"    {line}"


def _fact(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_FACT_LIMIT_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""

"""Where the workers of a node stand, written down before one of them is killed.

Who still answers says it itself. A frozen one cannot, and must be looked at from outside while it
exists: /proc first, which takes a millisecond, then py-spy, if there is one. All of it together
gets half a second, then the kill goes ahead with whatever there is; the file is written after
that, because a run folder on a network may hang.
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

__all__ = ["StackCollector", "Standing", "stacks_path"]

BUDGET_S = 0.5
"""What a recovery waits for it at most."""
ANSWER_S = 0.4
"""Of it, for those that are asked; the rest is for looking at who did not answer."""
SPIES_LIMIT = 8
PY_SPY_TIMEOUT_S = 3.0
"""To be gone after it was killed; it may hang in the kernel on what it looks at."""
TEXT_LIMIT_BYTES = 262_144
"""Of one worker."""
THREADS_LIMIT = 64
COLLECTIONS_LIMIT = 4
"""At once, one for each job that has a hung worker; more are answered without stacks."""
_FACT_LIMIT_BYTES = 4096
_MARGIN_S = 0.05
_CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), 127) if code not in (9, 10)}
"""A worker's text may end on a terminal."""

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A worker whose stacks are wanted."""

    pid: int
    rank: Rank
    is_frozen: bool = False
    """It is not asked but looked at."""
    note: str = ""
    """Why it is suspected, if it is."""


def stacks_path(run_folder: Path, job: JobName, generation: Generation, node: NodeId) -> Path:
    return run_folder / job / "incidents" / f"gen-{generation}.{node}.stacks.txt"


class StackCollector:
    """Collects in threads of its own.

    `tell` is that of `Attachments`; `py_spy` is a path, empty for none; left out, it is looked for.
    """

    def __init__(self, tell: Callable[[int, ToWorker], None], *, py_spy: str | None = None) -> None:
        self._tell = tell
        self.py_spy = _find_py_spy() if py_spy is None else py_spy
        self._changed = Condition()
        self._wanted: dict[int, int] = {}
        """How many collections wait for a worker's word."""
        self._said: dict[int, str] = {}
        self._running = 0

    def heard(self, pid: int, text: str) -> None:
        """Take in a worker's Stacks, from any thread; what nobody waits for is dropped."""
        with self._changed:
            if pid in self._wanted:
                self._said[pid] = text[:TEXT_LIMIT_BYTES]
                self._changed.notify_all()

    def collect(self, path: Path, workers: Sequence[Standing], done: Callable[[], None]) -> None:
        """Ask and look, call `done` within half a second from another thread, then write.

        Who can answer is asked before this returns: an order that is given afterwards is heard
        afterwards. What stood in the file stays: a generation may have more than one hung worker.
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
        Thread(target=self._run, args=args, name="stacks", daemon=True).start()

    def _run(self, path: Path, workers: tuple[Standing, ...], done: Callable[[], None]) -> None:
        once = _Once(done)
        # Even reading /proc can hang, on a process that hangs in its exec.
        timer = Timer(BUDGET_S, once)
        timer.daemon = True
        timer.start()
        try:
            try:
                text = self._gather(workers, time.monotonic())
            finally:
                timer.cancel()
                once()
            _append(path, text)
        except OSError as exc:
            log.warning("stacks.not_written", path=str(path), why=str(exc))
        finally:
            with self._changed:
                self._running -= 1

    def _gather(self, workers: tuple[Standing, ...], start_s: float) -> str:
        asked = [worker.pid for worker in workers if not worker.is_frozen]
        frozen = [worker for worker in workers if worker.is_frozen]
        spied = frozen[:SPIES_LIMIT] if self.py_spy else []
        spies = [_Spy(self.py_spy, worker.pid) for worker in spied]
        seen = {worker.pid: _kernel_view(worker.pid) for worker in frozen}
        said = self._wait_said(asked, start_s + ANSWER_S)
        for spy in spies:
            seen[spy.pid] = spy.take(start_s + BUDGET_S - _MARGIN_S) + seen[spy.pid]
        for pid in asked:
            if pid not in said:
                seen[pid] = "It did not answer.\n" + _kernel_view(pid)
        return "".join(_section(w, said.get(w.pid) or seen.get(w.pid, "")) for w in workers)

    def _wait_said(self, pids: list[int], until_s: float) -> dict[int, str]:
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
    """Calls it for whoever comes first."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call, self._lock, self._is_called = call, Lock(), False

    def __call__(self) -> None:
        with self._lock:
            was_called, self._is_called = self._is_called, True
        if not was_called:
            self._call()


class _Spy:
    """One run of py-spy; it does not stop what it looks at, and its output stays in memory."""

    def __init__(self, program: str, pid: int) -> None:
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
                env={"PATH": os.environ.get("PATH", os.defpath)},
                cwd="/",
            )
        except OSError as exc:
            self._why = str(exc)

    def take(self, until_s: float) -> str:
        """What it found by then, or why there is nothing."""
        process = self._process
        if process is not None:
            try:
                process.wait(max(0.0, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._why = "it was not done in time"
                process.kill()
                Thread(target=_bury, args=(process,), name="py-spy-end", daemon=True).start()
            else:
                self._why = f"exit code {process.returncode}" if process.returncode else ""
        text = os.pread(self._out, TEXT_LIMIT_BYTES, 0).decode(errors="replace")
        os.close(self._out)
        return (f"py-spy: {self._why}\n" if self._why else "") + text + "\n"


def _find_py_spy() -> str:
    """Its path: beside this interpreter or on PATH; empty if there is none."""
    folder = os.path.dirname(sys.executable)
    return shutil.which("py-spy", path=folder) or shutil.which("py-spy") or ""


def _bury(process: subprocess.Popen[bytes]) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(PY_SPY_TIMEOUT_S)


def _section(worker: Standing, text: str) -> str:
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
    """What /proc tells of each thread; as much as this user may read."""
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

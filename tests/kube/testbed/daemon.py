"""A process of the cluster: started once, found again by a later command, ended for certain.

`make kube-up` ends and its processes go on, so each is known by a file with its pid and with the
moment at which the kernel says that it began: a pid alone may be somebody else's by now.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from elasticd.store.private_etcd.embedded import bound_to_us
from tests.fixtures.patience import patience_s

__all__ = ["Daemon", "child_of", "process_start", "wait_until"]

_STOP_LIMIT_S = 10.0
_POLL_S = 0.05


class Daemon:
    """One program with its log and the record of its process, `NAME.log` and `NAME.pid`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        is_wrapped: bool = False,
        dies_with_us: bool = False,
        cwd: Path = Path("/"),
    ) -> None:
        """Describe it; nothing starts yet.

        `is_wrapped`: the command forks once and waits, as `nsenter --pid` does; its child is the
        process that counts.
        `dies_with_us`: the kernel kills it when the thread ends that started it.
        """
        self.name = name
        self.log_path = folder / f"{name}.log"
        self._record = folder / f"{name}.pid"
        self._folder = folder
        self._is_wrapped = is_wrapped
        self._dies_with_us = dies_with_us
        # What binds a process to us does not search PATH.
        self._command = [shutil.which(command[0]) or command[0], *command[1:]]
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The running process, also one that an earlier command started; None if there is none."""
        try:
            pid, began, _ = self._record.read_text().split()
        except (OSError, ValueError):
            return None
        if self._process is not None:
            self._process.poll()  # Else it would stay a zombie.
        return int(pid) if process_start(int(pid)) == began else None

    def start(self) -> None:
        """Start it unless it runs."""
        if self.pid is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                bound_to_us(self._command) if self._dies_with_us else self._command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self._cwd,
                start_new_session=True,
            )
        outer = self._process.pid
        pid = child_of(outer, self.log) if self._is_wrapped else outer
        self._record.write_text(f"{pid} {process_start(pid)} {outer}\n")

    def stop(self, *, limit_s: float = _STOP_LIMIT_S) -> None:
        """End it, by force after `limit_s`; without effect if it does not run."""
        self._end(signal.SIGTERM, patience_s(limit_s))

    def kill(self) -> None:
        """End it by force; without effect if it does not run."""
        self._end(signal.SIGKILL, 0.0)

    def pause(self) -> None:
        """Let it stand still, with its connections open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def check_alive(self) -> None:
        """Raise an assertion with the end of its log if it has ended."""
        assert self.pid is not None, f"{self.name} has ended: {self.log()}"

    def log(self) -> str:
        """Return the last 4,000 characters of what it wrote."""
        try:
            return self.log_path.read_text(errors="replace")[-4000:]
        except FileNotFoundError:
            return ""

    def _signal(self, number: int) -> None:
        pid = self.pid
        assert pid is not None, f"{self.name} does not run"
        os.kill(pid, number)
        if number == signal.SIGCONT:
            self._continue_wrapper()

    def _end(self, number: int, limit_s: float) -> None:
        pid = self.pid
        if pid is not None:
            # Once it has the first signal it may be gone, and reaped, before the second.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)
            self._continue_wrapper()
            until_s = time.monotonic() + limit_s
            while self.pid is not None and time.monotonic() < until_s:
                time.sleep(_POLL_S)
            if self.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                wait_until(lambda: self.pid is None, f"{self.name} ends", 30.0)
        self._record.unlink(missing_ok=True)

    def _continue_wrapper(self) -> None:
        """Wake the wrapper, which stops with its child but is not woken with it."""
        if self._is_wrapped:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(self._record.read_text().split()[2]), signal.SIGCONT)


def wait_until(
    is_so: Callable[[], bool], what: str, limit_s: float, *, alive: Sequence[Daemon] = ()
) -> None:
    """Wait for a fact; an assertion says what did not come true in `limit_s`, or who died of it."""
    until_s = time.monotonic() + patience_s(limit_s)
    while not is_so():
        for daemon in alive:
            daemon.check_alive()
        if time.monotonic() > until_s:
            logs = "\n".join(f"--- {daemon.name}\n{daemon.log()}" for daemon in alive)
            raise AssertionError(f"waited {limit_s} s in vain: {what}\n{logs}")
        time.sleep(_POLL_S)


def child_of(pid: int, log: Callable[[], str]) -> int:
    """Return the first child of a process, and wait for it if need be; `log` tells why not."""
    found: list[str] = []

    def is_there() -> bool:
        with contextlib.suppress(OSError):
            found[:] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not found and process_start(pid) is None:
            raise AssertionError(f"process {pid} ended before it forked: {log()}")
        return bool(found)

    wait_until(is_there, f"process {pid} forks", 10.0)
    return int(found[0])


def process_start(pid: int) -> str | None:
    """Return when a process began, in ticks since the boot; None for one that is gone or dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]

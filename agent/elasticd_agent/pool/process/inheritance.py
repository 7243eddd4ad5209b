"""Sheds what a forked child has from the pool and must not keep."""

import os
import resource
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from elasticd_agent.pool.process.prctl import ask_for_signal_at_parents_end

__all__ = [
    "inherited",
    "open_fds",
    "restore_signals",
    "set_soft_limit",
    "drop_inherited",
    "wait_for_adoption",
]

_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_KERNELS_OWN = (signal.SIGKILL, signal.SIGSTOP)
_ADOPTION_LIMIT_S = 5.0
_ADOPTION_TICK_S = 0.0001
_INHERITED = (
    *("Umask", "Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed"),
    *("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"),
)
"""The lines of /proc/PID/status that a child has from its parent."""


def drop_inherited(kept_fds: Collection[int], pool_pid: int) -> None:
    """Leave the pool's signals, session and descriptors; end when the pool ends.

    All signals must be blocked, so that a signal sent right after the fork waits until the default
    action is set and not the pool's handler.
    """
    ask_for_signal_at_parents_end(signal.SIGKILL)
    if os.getppid() != pool_pid:
        os._exit(1)  # The pool was gone before we asked: nobody guards us.
    if os.getsid(0) != os.getpid():
        os.setsid()
    for fd in open_fds() - set(kept_fds) - {0, 1, 2}:
        os.close(fd)
    restore_signals()


def wait_for_adoption(pool_pid: int) -> None:
    """Return once this process is the pool's child; end the process if it never becomes so."""
    until_s = time.monotonic() + _ADOPTION_LIMIT_S
    while os.getppid() != pool_pid:
        if time.monotonic() > until_s:
            os._exit(1)
        time.sleep(_ADOPTION_TICK_S)


def inherited(pid: int) -> tuple[object, ...]:
    """Read what a child has from its parent as it is forked, and keeps when the parent's changes:
    user, privileges, umask, limits, niceness, cores, cgroup, oom_score_adj.

    Raises: OSError: the process is gone.
    """
    folder = Path(f"/proc/{pid}")
    found: list[object] = [os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid)]
    for name in ("limits", "cgroup", "oom_score_adj"):
        with suppress(FileNotFoundError):  # A kernel without it; a process that is gone has none.
            found.append((folder / name).read_bytes())
    lines = (folder / "status").read_text(errors="replace").splitlines()
    found += [line for line in lines if line.partition(":")[0] in _INHERITED]
    return tuple(found)


def restore_signals() -> None:
    """Set every signal to its action at the start of a Python process, and unblock all signals."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - set(_KERNELS_OWN):
        if signal.getsignal(number) != signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def set_soft_limit(open_files: int) -> None:
    """Allow this process so many open files; 0: leave the limit as it was at the start."""
    if open_files:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, hard))


def open_fds() -> set[int]:
    """Return every open descriptor but the one that this function needs itself."""
    names = os.listdir("/proc/self/fd")
    return {int(name) for name in names if _is_open(int(name))}


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True

"""The conditions for a process whose forks become workers, and which of them an import broke.

A fork copies one thread and every descriptor. A lock of another thread stays held for ever, several
workers would talk over one connection, and a CUDA context does not survive.
"""

import locale
import os
import resource
import select
import signal
import stat
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass

from elasticd_agent.pool.launch import fork
from elasticd_agent.pool.process.inheritance import open_fds
from elasticd_agent.pool.process.process_table import children_of

__all__ = ["CANARY_S", "ProcessFacts", "answers", "facts", "what_changed"]

CANARY_S = 5.0
"""A forked process that has not answered within this time is taken not to work."""
_SHARED_BADLY = ("socket:", "pipe:", "anon_inode:", "/dev/nvidia", "/dev/kfd", "/dev/dri/")
"""Kinds of descriptors that several workers cannot share: one that uses it (an epoll, an eventfd, a
socket) takes it from the others, and a GPU belongs to the process that opened it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """The properties of a process that an import must not change."""

    threads: int
    has_cuda: bool
    channels: frozenset[int]
    children: frozenset[int]
    cwd: str
    umask: int
    signals: tuple[object, ...]
    blocked: frozenset[int]
    limits: tuple[tuple[int, int], ...]
    locale: str
    arguments: tuple[str, ...]
    hooks: tuple[object, ...]
    streams: tuple[int, ...]


def facts() -> ProcessFacts:
    """Read these properties of this process."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    umask = os.umask(0o77)
    os.umask(umask)
    kinds = (resource.RLIMIT_NOFILE, resource.RLIMIT_STACK, resource.RLIMIT_CORE)
    return ProcessFacts(
        threads=len(os.listdir("/proc/self/task")),
        has_cuda=cuda is not None and bool(cuda.is_initialized()),
        channels=frozenset(fd for fd in open_fds() if _is_channel(fd)),
        children=frozenset(children_of(os.getpid())),
        cwd=os.getcwd(),
        umask=umask,
        signals=tuple(signal.getsignal(number) for number in sorted(signal.valid_signals())),
        blocked=frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        limits=tuple(resource.getrlimit(kind) for kind in kinds),
        locale=locale.setlocale(locale.LC_ALL),
        arguments=tuple(sys.argv),
        hooks=(sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook),
        streams=tuple(id(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)),
    )


def what_changed(before: ProcessFacts, now: ProcessFacts) -> str:
    """Return in a few words what an import did that a fork, or another worker, would
    suffer from.
    """
    changes = (
        (now.threads > before.threads, "it starts a thread"),
        (now.has_cuda and not before.has_cuda, "it makes a CUDA context"),
        (not now.children <= before.children, "it starts a process"),
        (not now.channels <= before.channels, "it opens a socket, a pipe, an event queue or a GPU"),
        (now.cwd != before.cwd, "it changes the working folder"),
        (now.umask != before.umask, "it changes the umask"),
        (now.signals != before.signals, "it handles a signal"),
        (now.blocked != before.blocked, "it blocks a signal"),
        (now.limits != before.limits, "it changes a limit of the process"),
        (now.locale != before.locale, "it sets the locale"),
        (now.arguments != before.arguments, "it changes sys.argv"),
        (now.hooks != before.hooks, "it replaces a hook of the interpreter"),
        (now.streams != before.streams, "it replaces a standard stream"),
    )
    return next((words for is_so, words in changes if is_so), "")


def answers(priority: int = 0, limit_s: float = CANARY_S) -> bool:
    """Fork a process that starts a thread and computes; return whether it succeeds in time."""
    read_fd, write_fd = os.pipe()
    pid = fork()
    if pid == 0:
        code = 1
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            with suppress(OSError):  # It answers as the worker that it stands for would.
                os.setpriority(os.PRIO_PROCESS, 0, priority)
            _work()
            os.write(write_fd, b"1")
            code = 0
        finally:
            os._exit(code)
    os.close(write_fd)
    try:
        poll = select.poll()
        poll.register(read_fd, select.POLLIN)
        return bool(poll.poll(1000 * limit_s)) and os.read(read_fd, 1) == b"1"
    finally:
        os.close(read_fd)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _work() -> None:
    """Take the locks that a worker takes in its first second."""
    thread = threading.Thread(target=sum, args=((1, 2),))
    thread.start()
    thread.join()
    if torch := sys.modules.get("torch"):
        # To count GPUs is enough: no fork of a process that did it can use one.
        is_cut_off_from_gpus = getattr(torch.cuda, "_is_in_bad_fork", None)
        assert is_cut_off_from_gpus is None or not is_cut_off_from_gpus()
        torch.set_num_threads(2)
        a = torch.ones(256, 256)
        assert float((a @ a).sum()) > 0


def _is_channel(fd: int) -> bool:
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            return True
        return os.readlink(f"/proc/self/fd/{fd}").startswith(_SHARED_BADLY)
    except OSError:
        return False

"""What a zygote does where the system gives it no process."""

import errno
import os
import signal
import socket
from contextlib import suppress

import pytest

from elasticd.channel.pool import Start
from elasticd.records.job import EntryKind
from elasticd_agent.pool.launch import fork
from elasticd_agent.pool.zygote import zygote, zygote_supervisor
from elasticd_agent.pool.zygote.import_trial import Loaded
from elasticd_agent.pool.zygote.learned_set import Script
from tests.fixtures.patience import patience_s

START = Start(
    worker="w",
    entry_kind=EntryKind.SCRIPT,
    entry="s.py",
    args=(),
    cwd="/",
    env={},
    out_path="/dev/null",
    err_path="/dev/null",
    error_file="",
)


class RareProcesses:
    """A fork that fails for the first worker to be parked, and once for the next to stand by."""

    def __init__(self) -> None:
        self.zygote_pid = 0
        self.forks = 0
        """Those that the zygote has tried; a process that stands by has its own copy."""

    def fork(self) -> int:
        is_zygote = os.getpid() == self.zygote_pid
        self.forks += is_zygote
        if (is_zygote and self.forks == 2) or (not is_zygote and self.forks == 1):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return fork()


def test_zygote_that_cannot_fork_a_parked_worker_forks_the_next_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does it end if it has no process to stand by for a moment; the pool sees that none is
    parked.
    """
    rare = RareProcesses()
    monkeypatch.setattr(zygote, "fork", rare.fork)
    ours, theirs = socket.socketpair()
    pool_pid = os.getpid()
    zygote_pid = fork()
    if zygote_pid == 0:
        with suppress(BaseException):
            rare.zygote_pid = os.getpid()
            loaded = Loaded(modules=0, import_s=0.0, reads=frozenset(), environment={})
            script = Script(entry="s.py", kind=EntryKind.SCRIPT, folder="/nowhere")
            zygote._serve(script, loaded, frozenset(), theirs.fileno(), pool_pid=pool_pid)
        os._exit(1)
    try:
        theirs.close()
        parked_ours, parked_theirs = socket.socketpair()
        socket.send_fds(ours, [zygote.PARK], [parked_theirs.fileno()])
        parked_theirs.close()
        parked_ours.settimeout(patience_s(60.0))
        assert parked_ours.recv(1) == b"", "the pool waits for one that is not there"
        child = zygote_supervisor._ask(ours.fileno(), START, patience_s(60.0))
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)  # It would wait for us to adopt it.
        child.report.close()
        parked_ours.close()
        assert os.waitpid(zygote_pid, os.WNOHANG) == (0, 0), "the zygote has ended"
    finally:
        os.kill(zygote_pid, signal.SIGKILL)
        os.waitpid(zygote_pid, 0)
        ours.close()

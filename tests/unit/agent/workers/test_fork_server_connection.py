"""A connection to a fork server is over with the first question that is not answered."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from elasticd.channel.fork_server import REAP, Buried, ServerReady
from elasticd.channel.wire import pack
from elasticd_agent.workers import fork_server_connection
from elasticd_agent.workers.fork_server_connection import ForkServerConnection

Ends = tuple[socket.socket, socket.socket]
"""The agent's end and the server's; the test is the server."""


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    monkeypatch.setattr(fork_server_connection, "ANSWER_LIMIT_S", 0.2)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.send(pack(ServerReady(import_s=0.0)))
        yield ours, theirs


def connected(
    ours: socket.socket, process: subprocess.Popen[bytes] | None = None
) -> ForkServerConnection:
    connection = ForkServerConnection(lambda: (ours, process), lambda _pid: None)
    assert connection.wait_ready(lambda: True)
    return connection


def test_late_answer_is_nobodys(ends: Ends) -> None:
    """Whoever asks after the one that got none would take it for its own."""
    ours, theirs = ends
    connection = connected(ours)
    with pytest.raises(TimeoutError):
        connection.ask(REAP + b"1")
    with suppress(BrokenPipeError):
        theirs.send(pack(Buried(pid=1)), socket.MSG_NOSIGNAL)
    with pytest.raises(OSError):  # noqa: PT011  # of the system's words, whichever comes first
        connection.ask(REAP + b"2")


def test_server_that_is_given_up_is_killed_at_once(ends: Ends) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    os.kill(process.pid, signal.SIGSTOP)
    connection = connected(ends[0], process)
    connection.close()
    assert process.returncode == -signal.SIGKILL


def test_failing_start_is_told() -> None:
    def reach() -> tuple[socket.socket, None]:
        raise FileNotFoundError(2, "no such file", "s")

    connection = ForkServerConnection(reach, lambda _pid: None)
    assert not connection.wait_ready(lambda: True)
    assert "no such file" in connection.why

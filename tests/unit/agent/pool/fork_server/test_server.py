"""The fork server's loop, where connections come that it has no descriptor for."""

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from elasticd.channel.fork_server import (
    PACKET_BYTES,
    REAP,
    Buried,
    ServerReady,
    unpack_from_server,
)
from elasticd_agent.pool.fork_server import server as server_module
from elasticd_agent.pool.fork_server.server import ForkServer
from tests.fixtures.pool import PATIENCE_S


class ShortListener:
    """A listening socket whose first connections find no descriptor."""

    def __init__(self, listener: socket.socket, refusals: int) -> None:
        self._listener, self.refusals = listener, refusals
        self.tries = 0

    def fileno(self) -> int:
        return self._listener.fileno()

    def accept(self) -> Any:
        self.tries += 1
        if self.tries <= self.refusals:
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listener.accept()


class Site:
    """A server on a thread, its owner, and a client that waits at its listening socket."""

    def __init__(self, listener: ShortListener, client: socket.socket) -> None:
        self.listener, self.client = listener, client
        self.owner, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.owner.settimeout(PATIENCE_S)
        server = ForkServer(theirs, cast(Any, listener), cast(Any, None), 0.0)
        self._thread = threading.Thread(target=server.run, daemon=True)
        self._thread.start()
        assert unpack_from_server(self.owner.recv(PACKET_BYTES)) == ServerReady(import_s=0.0)

    def ask(self) -> None:
        """Let the owner ask for something, so that the loop goes round once."""
        self.owner.send(REAP + b"1")
        assert unpack_from_server(self.owner.recv(PACKET_BYTES)) == Buried(pid=1)

    def close(self) -> None:
        self.owner.close()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def _stand_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests' process has children and signals of its own, which are none of the server's."""
    wake_fd, other_fd = os.pipe()
    monkeypatch.setattr(server_module, "_wake_at_end_of_child", lambda: wake_fd)
    monkeypatch.setattr(server_module, "_reap", lambda _: None)
    yield
    os.close(wake_fd)
    os.close(other_fd)


@contextmanager
def serving(folder: Path, refusals: int) -> Iterator[Site]:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client,
    ):
        listener.bind(str(folder / "s"))
        listener.listen()
        client.settimeout(PATIENCE_S)
        client.connect(str(folder / "s"))
        site = Site(ShortListener(listener, refusals), client)
        try:
            yield site
        finally:
            site.close()


@pytest.mark.usefixtures("_stand_alone")
def test_connection_without_a_descriptor_is_not_tried_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wake the loop for ever; the owner is served meanwhile."""
    monkeypatch.setattr(server_module, "ACCEPT_PAUSE_S", 10 * PATIENCE_S)
    with serving(tmp_path, refusals=10**6) as site:
        for _ in range(10):
            site.ask()
        assert site.listener.tries == 1


@pytest.mark.usefixtures("_stand_alone")
def test_connection_is_accepted_when_there_is_a_descriptor_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the want of one is said once, in the server's log."""
    monkeypatch.setattr(server_module, "ACCEPT_PAUSE_S", 0.01)
    with serving(tmp_path, refusals=3) as site:
        assert unpack_from_server(site.client.recv(PACKET_BYTES)) == ServerReady(import_s=0.0)
        assert site.listener.tries == 4
    said = capsys.readouterr().err
    assert said.count("no other agent can be accepted (Too many open files)") == 1

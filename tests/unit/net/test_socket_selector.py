"""One thread that serves a listening socket and connections, and can be woken."""

import socket
from collections.abc import Iterator
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from elasticd.net import socket_selector
from elasticd.net.socket_selector import SocketSelector
from tests.fixtures.patience import patience_s

WAIT_S = patience_s(10.0)


class Server:
    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self.selector: SocketSelector[socket.socket] = SocketSelector(self.listener)
        self.came: list[socket.socket] = []
        self.heard: list[bytes] = []

    def serve(self, timeout_s: float | None = WAIT_S) -> None:
        self.selector.serve(timeout_s, self._accepted, self._ready)

    def _accepted(self, sock: socket.socket) -> None:
        assert sock.getblocking() is False
        self.came.append(sock)
        self.selector.register(sock, sock)

    def _ready(self, sock: socket.socket, _: int) -> None:
        self.heard.append(sock.recv(100))


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.selector.close()
    assert server.listener.fileno() == -1
    assert all(sock.fileno() == -1 for sock in server.came)


def test_connections_are_taken_and_heard(server: Server) -> None:
    with socket.create_connection(server.address) as client:
        server.serve()
        assert len(server.came) == len(server.selector) == 1
        client.sendall(b"hello")
        server.serve()
        assert server.heard == [b"hello"]


def test_another_thread_wakes_it(server: Server) -> None:
    waiting = Thread(target=server.serve, args=(None,))
    waiting.start()
    server.selector.wake()
    waiting.join(WAIT_S)
    assert not waiting.is_alive()


def test_who_comes_where_no_descriptor_is_left_is_taken_after_a_pause(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = socket.socket.accept
    refused: list[socket.socket] = []

    def full(listener: socket.socket) -> Any:
        if len(refused) < 2:
            refused.append(listener)
            raise OSError(24, "Too many open files")
        return accept(listener)

    clock = [0.0]
    monkeypatch.setattr(socket_selector, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(socket.socket, "accept", full)
    with socket.create_connection(server.address):
        server.serve()
        server.serve(0.0)  # It does not look at the listening socket meanwhile.
        assert len(refused) == 1 and server.came == [] and len(server.selector) == 0
        for _ in range(2):
            clock[0] += 1.0
            server.serve()
    assert len(refused) == 2 and len(server.selector) == 1


def test_writing_is_told_while_it_is_wanted(server: Server) -> None:
    with socket.create_connection(server.address):
        server.serve()
        (sock,) = server.came
        masks: list[int] = []
        for is_wanted in (True, False):
            server.selector.watch_writing(sock, sock, is_wanted=is_wanted)
            server.selector.serve(0.0, lambda _: None, lambda _, mask: masks.append(mask))
        assert len(masks) == 1
        server.selector.unregister(sock)
        assert len(server.selector) == 0
        sock.close()

"""A server that no client can hold up: silent ones, too many, those that hang up."""

import errno
import http.client
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import trustme

from elasticd.net import http_server
from elasticd.net.http_server import BoundedServer, Handler
from elasticd.net.listener import listen
from tests.fixtures.patience import patience_s
from tests.fixtures.ports import free_port

PATIENCE_S = patience_s(30.0)
BIG = 4 << 20

T = TypeVar("T")


class Served(BoundedServer):
    """Answers `/`, something big, and `/wait` and `/stream`, which has no end, once it may."""

    def __init__(
        self,
        connections: int,
        silence_s: float,
        context: ssl.SSLContext | None = None,
        cpu_share: float | None = None,
        port: int = 0,
    ) -> None:
        self.is_served, self.may_answer = threading.Event(), threading.Event()
        super().__init__(
            listen("127.0.0.1", port),
            Answers,
            connections=connections,
            silence_s=silence_s,
            context=context,
            cpu_share=cpu_share,
        )


class Answers(Handler):
    server: Served

    def do_GET(self) -> None:  # noqa: N802 (its caller looks for this name)
        if self.path == "/stream":
            self.server.is_kept()
        if self.path in ("/wait", "/stream"):
            self.server.is_served.set()
            assert self.server.may_answer.wait(PATIENCE_S)
        body = b"x" * (BIG if self.path == "/big" else 2)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def served(
    *,
    connections: int = 4,
    silence_s: float = PATIENCE_S,
    context: ssl.SSLContext | None = None,
    cpu_share: float | None = None,
    port: int = 0,
) -> Iterator[Served]:
    server = Served(connections, silence_s, context, cpu_share, port)
    server.start()
    try:
        yield server
    finally:
        server.may_answer.set()
        server.close()


def connected(server: BoundedServer) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(*server.where, timeout=PATIENCE_S)
    connection.connect()
    return connection


def asked(connection: http.client.HTTPConnection, path: str = "/") -> bytes:
    connection.request("GET", path)
    return connection.getresponse().read()


def test_connection_is_kept_and_answered_again() -> None:
    """A scrape every few seconds makes one."""
    with served() as server:
        connection = connected(server)
        assert [asked(connection) for _ in range(3)] == [b"xx"] * 3
        connection.close()


def test_client_that_sends_nothing_is_cut_off() -> None:
    """No thread waits for ever; nor for one whose request drips in."""
    with served(silence_s=0.2) as server:
        for told in (b"", b"GET / HTT"):
            client = socket.create_connection(server.where, timeout=PATIENCE_S)
            with client, suppress(ConnectionError):  # It may be cut off before it has begun.
                client.sendall(told)
                assert client.recv(1) == b""


def test_thread_that_cannot_be_started_costs_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client is refused, and the next one has the place."""
    begin = socketserver.ThreadingMixIn.process_request
    refusals = [RuntimeError("can't start new thread")] * 3

    def process_request(self: Any, request: Any, client_address: Any) -> None:
        if refusals:
            raise refusals.pop()
        begin(self, request, client_address)

    monkeypatch.setattr(socketserver.ThreadingMixIn, "process_request", process_request)
    with served(connections=1) as server:
        for _ in range(3):
            with socket.create_connection(server.where, timeout=PATIENCE_S) as client:
                assert client.recv(1) == b""
        assert asked_when_there_is_room(server) == b"xx"


def test_server_without_descriptors_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client still waits, so the loop would be woken at once, for ever."""

    def get_request(_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    pauses: list[float] = []
    monkeypatch.setattr(socketserver.TCPServer, "get_request", get_request)
    monkeypatch.setattr(http_server, "time", SimpleNamespace(sleep=pauses.append))
    with closing(listen("127.0.0.1", 0)) as listener:
        server = BoundedServer.__new__(BoundedServer)
        server.socket = listener
        with pytest.raises(OSError, match="Too many open files"):
            server.get_request()
    assert pauses == [http_server.ACCEPT_PAUSE_S]


def test_client_that_takes_nothing_is_cut_off() -> None:
    """Its answer does not fit into what the kernel holds for it."""
    with served(connections=1, silence_s=0.2) as server:
        client = when_there_is_room(partial(asking_for_much, server))
        assert asked_when_there_is_room(server) == b"xx"
        client.close()


def test_silent_connections_give_way_to_one_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens all places and says nothing keeps nobody out, nor do those that are kept."""
    monkeypatch.setattr(http_server, "IDLE_LEAST_S", 0.0)
    with served(connections=2) as server:
        kept = connected(server)
        assert asked(kept) == b"xx"
        until_one_waits(server)  # Its answer is here before its thread notes that it asks no more.
        silent = connected(server)
        assert asked_when_there_is_room(server) == b"xx"
        for each in (kept, silent):
            assert each.sock is not None
        assert kept.sock.recv(1) == b"", "it had been silent for the longest"
        kept.close()
        silent.close()


def test_who_does_not_shake_hands_gives_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port scan of a server with TLS keeps no scrape out."""
    monkeypatch.setattr(http_server, "IDLE_LEAST_S", 0.0)
    authority = trustme.CA()
    context, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(trusting)

    def scraped() -> bytes:
        host, port = server.where
        client = http.client.HTTPSConnection(host, port, timeout=PATIENCE_S, context=trusting)
        with closing(client):
            return asked(client)

    with served(connections=1, context=context) as server:
        silent = connected(server)
        assert when_there_is_room(scraped) == b"xx"
        assert silent.sock is not None and silent.sock.recv(1) == b""
        silent.close()


def test_who_is_being_served_gives_way_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is hung up on, and served when it asks again later."""
    monkeypatch.setattr(http_server, "IDLE_LEAST_S", 0.0)
    with served(connections=1) as server:
        first = connected(server)
        first.request("GET", "/wait")
        assert server.is_served.wait(PATIENCE_S)
        with pytest.raises((OSError, http.client.HTTPException)):
            asked(connected(server))
        server.may_answer.set()
        assert first.getresponse().read() == b"xx"
        first.close()
        assert asked_when_there_is_room(server) == b"xx"


def test_clients_that_hang_up_leave_their_places(capfd: pytest.CaptureFixture[str]) -> None:
    """Many times as many as there are places, in the middle of what they asked for; not a word."""
    with served(connections=2) as server:
        for _ in range(20):
            with socket.create_connection(server.where, timeout=PATIENCE_S) as client:
                client.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked_when_there_is_room(server) == b"xx"
    assert capfd.readouterr() == ("", "")


def test_server_that_was_closed_has_freed_its_port() -> None:
    """At once, also for one that was never started. It is a port that nobody else is given."""
    where = ("127.0.0.1", free_port())
    with served(port=where[1]) as server:
        assert server.where == where
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where, timeout=PATIENCE_S)
    again = BoundedServer(listen(*where), Answers, connections=1, silence_s=1.0)
    again.close()


def until_one_waits(server: BoundedServer) -> None:
    """Return when a connection is known to ask for nothing."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        with server._lock:
            if server._waiting:
                return
        time.sleep(0.01)
    raise AssertionError("it was served for ever")


def asked_when_there_is_room(server: BoundedServer, path: str = "/") -> bytes:
    """Ask as a client does that comes again when it was hung up on."""

    def ask() -> bytes:
        with closing(connected(server)) as connection:
            return asked(connection, path)

    return when_there_is_room(ask)


def asking_for_much(server: BoundedServer) -> socket.socket:
    """Ask for something big, take a byte of it, and nothing more."""
    client = socket.create_connection(server.where, timeout=PATIENCE_S)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
    if not client.recv(1):
        client.close()
        raise ConnectionAbortedError("It was silent for too long before it asked.")
    return client


def when_there_is_room(ask: Callable[[], T]) -> T:
    """Call it, and again for as long as it is hung up on."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            return ask()
        except (OSError, http.client.HTTPException):
            time.sleep(0.01)
    raise AssertionError("there never was room")

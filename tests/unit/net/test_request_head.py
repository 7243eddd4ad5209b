"""What a stranger sends: heads without an end, bodies that nobody asked for, methods, nonsense."""

import socket

import pytest

from elasticd.net import http_server
from elasticd.net.request_head import HEAD_LIMIT_BYTES
from tests.unit.net.test_http_server import PATIENCE_S, asked_when_there_is_room, served

GET = b"GET / HTTP/1.1\r\nHost: x\r\n"


def said(where: tuple[str, int], request: bytes) -> bytes:
    """Send something on a connection of its own, and return all that comes until it ends."""
    with socket.create_connection(where, timeout=PATIENCE_S) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while part := client.recv(1 << 16):
            answer += part
        return answer


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_head_without_an_end_is_refused_at_its_limit() -> None:
    """However it is made up: the standard library would hold 6 MB of it for each connection."""
    many = b"".join(b"x%d: %s\r\n" % (number, b"y" * 1000) for number in range(90))
    heads = (
        b"GET /" + b"x" * HEAD_LIMIT_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        GET + b"x: " + b"y" * HEAD_LIMIT_BYTES + b"\r\n\r\n",
        GET + many + b"\r\n",
    )
    with served() as server:
        for head in heads:
            answer = said(server.where, head)
            assert status(answer) == 431
            assert b"at most 16384 bytes" in answer
            assert b"<html" not in answer.lower()
        assert asked_when_there_is_room(server) == b"xx"


def test_limit_is_that_of_one_head_and_not_of_a_connection() -> None:
    """A scrape every few seconds comes on one connection for weeks."""
    head = GET + b"x: " + b"y" * (HEAD_LIMIT_BYTES // 2) + b"\r\n\r\n"
    with served() as server:
        assert said(server.where, head * 4).count(b"HTTP/1.1 200") == 4


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 40\r\n",
        b"Content-Length: 0\r\nContent-Length: 40\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: identity\r\nContent-Length: 0\r\n",
        b"Content-Length : 40\r\n",
        b"Content-Length: +40\r\n",
        b"Content-Length: -1\r\n",
    ],
)
def test_body_that_nobody_reads_is_not_the_next_request(lines: bytes) -> None:
    """Else a proxy gives the answer to it to whoever it serves next."""
    with served() as server:
        answer = said(server.where, GET + lines + b"\r\n" + GET + b"\r\n")
        assert answer.count(b"HTTP/1.1 ") == 1
        assert status(answer) == 400
        assert b"Connection: close" in answer


def test_length_of_nothing_is_no_body() -> None:
    """Some clients say so with each request."""
    with served() as server:
        answer = said(server.where, (GET + b"Content-Length: 0\r\n\r\n") * 2)
        assert answer.count(b"HTTP/1.1 200") == 2


def test_refusal_is_read_by_who_still_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection closed with something unread is reset, and the client never sees why."""
    monkeypatch.setattr(http_server, "LINGER_S", PATIENCE_S)
    with served() as server, socket.create_connection(server.where, timeout=PATIENCE_S) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 400000\r\n\r\n")
        assert client.recv(1, socket.MSG_PEEK)
        for _ in range(40):
            client.sendall(b"y" * 10_000)
        client.shutdown(socket.SHUT_WR)
        assert status(client.recv(1 << 16)) == 405


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "x" * 5000])
def test_method_that_is_not_there_is_refused_with_those_that_are(method: str) -> None:
    """And what was sent is not said back: TRACE would show a script what its browser sends."""
    request = f"{method} / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer word\r\n\r\n".encode()
    with served() as server:
        answer = said(server.where, request * 2)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert status(answer) == 405
        assert b"\r\nAllow: GET\r\n" in answer
        assert b"word" not in answer
        assert answer.endswith(b"\r\n\r\n") == (method == "HEAD")


@pytest.mark.parametrize(
    "request_", [b"\x16\x03\x01\x02\x00\x01\x00\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / x y\r\n"]
)
def test_what_is_no_request_is_refused_or_hung_up_on(request_: bytes) -> None:
    """As by a client that speaks TLS to a plain port."""
    with served() as server:
        answer = said(server.where, request_)
        assert len(answer) < 600
        assert b"200" not in answer[:20]
        assert asked_when_there_is_room(server) == b"xx"


def test_who_takes_an_answer_for_too_long_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes now and then keep a connection from being silent, but not its place."""
    monkeypatch.setattr(http_server, "SERVED_MOST_S", 0.0)
    with served(connections=1) as server:
        slow = socket.create_connection(server.where, timeout=PATIENCE_S)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        assert slow.recv(1)
        assert asked_when_there_is_room(server) == b"xx"
        slow.close()


def test_answer_without_an_end_gives_way_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that shows what changes listens for hours."""
    monkeypatch.setattr(http_server, "SERVED_MOST_S", 0.0)
    with served(connections=1) as server:
        listening = socket.create_connection(server.where, timeout=PATIENCE_S)
        listening.sendall(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        assert server.is_served.wait(PATIENCE_S)
        other = socket.create_connection(server.where, timeout=PATIENCE_S)
        assert other.recv(1) == b""
        server.may_answer.set()
        assert listening.recv(1 << 16).startswith(b"HTTP/1.1 200")
        listening.close()
        other.close()

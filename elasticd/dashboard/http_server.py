"""What a browser is served: the page, what is known now, and what changes, as it changes.

`/` is the page, without anything that is secret. `/api/state?job=NAME` answers with all that is
known of the lists and of that job, as JSON; `/api/events?job=NAME` with the same and then, for as
long as the browser listens, with what changed (server-sent events). With a token both want it as
`Authorization: Bearer TOKEN`. Nothing can be changed through any of them.
"""

import hmac
import json
import math
import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import parse_qs, urlsplit

from elasticd.dashboard.board import Board, delta
from elasticd.dashboard.collector import Collector
from elasticd.dashboard.page import page
from elasticd.errors import EnvironmentProblem
from elasticd.net.http_server import BoundedServer, Handler

__all__ = ["DashboardServer", "is_loopback"]

STREAMS_LIMIT = 256
CONNECTIONS_LIMIT = 320
QUIET_S = 10.0
"""A stream that has nothing to tell says so, and finds out whether anybody listens."""
REQUEST_TIMEOUT_S = 20.0
STACK_BYTES = 512 * 1024
"""Of a thread: hundreds of browsers must not take much more than one."""


def is_loopback(host: str) -> bool:
    """True if only this machine can reach an address, or a name that is known to mean one."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class DashboardServer:
    """Serves in threads of its own until it is closed."""

    def __init__(self, host: str, port: int, collector: Collector, token: str = "") -> None:
        """Bind and serve; port 0: a free one.

        Raises:
            EnvironmentProblem: the address is not one of this machine, or the port is taken.
        """
        try:
            family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._server = _Server(family, (str(where[0]), port), collector, token)
        except (OSError, OverflowError) as exc:
            why = getattr(exc, "strerror", None) or exc
            raise EnvironmentProblem(
                f"The dashboard cannot listen on {host} port {port} ({why}): give an address of "
                "this machine with --host, and a free port with --port."
            ) from exc
        self._collector = collector
        threading.stack_size(STACK_BYTES)
        self._server.start()

    @property
    def url(self) -> str:
        host, port = self._server.where
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def close(self) -> None:
        self._server.close()


class _Server(BoundedServer):
    def __init__(
        self,
        family: socket.AddressFamily,
        where: tuple[str, int],
        collector: Collector,
        token: str,
    ) -> None:
        super().__init__(
            where,
            _Handler,
            connections=CONNECTIONS_LIMIT,
            silence_s=REQUEST_TIMEOUT_S,
            family=family,
            backlog=128,
        )
        self.collector, self.token = collector, token
        self.streams = threading.BoundedSemaphore(STREAMS_LIMIT)


class _Handler(Handler):
    server: _Server

    def do_GET(self) -> None:  # noqa: N802 (its caller looks for this name)
        parts = urlsplit(self.path)
        if not self._is_ours():
            self._answer(HTTPStatus.FORBIDDEN, b"This name is not one of this machine.\n")
            return
        if parts.path == "/":
            found = page()
            policy = {"Content-Security-Policy": found.policy}
            self._answer(HTTPStatus.OK, found.body, "text/html; charset=utf-8", policy)
            return
        if parts.path not in ("/api/state", "/api/events"):
            self._answer(HTTPStatus.NOT_FOUND, b"There is nothing here.\n")
            return
        if not self._is_known():
            asks = {"WWW-Authenticate": "Bearer"}
            self._answer(HTTPStatus.UNAUTHORIZED, b"The token is wanted.\n", more=asks)
            return
        job = parse_qs(parts.query).get("job", [""])[0]
        if parts.path == "/api/state":
            board = self.server.collector.newer_than(-1, 0.0)
            assert board is not None
            self._answer(HTTPStatus.OK, _packed(delta(None, board, job)), "application/json")
        elif self.server.streams.acquire(blocking=False):
            try:
                self._stream(job)
            finally:
                self.server.streams.release()
        else:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, b"Too many pages are open.\n")

    def _stream(self, job: str) -> None:
        """Tell what changes until the browser hangs up."""
        self.close_connection = True
        self._head(HTTPStatus.OK, "text/event-stream", {})
        self.end_headers()
        seen: Board | None = None
        collector = self.server.collector
        with suppress(OSError):
            while not collector.is_closing:
                version = seen.version if seen is not None else -1
                board = collector.newer_than(version, QUIET_S)
                if board is None:
                    self.wfile.write(b": nothing new\n\n")
                elif told := delta(seen, board, job):
                    self.wfile.write(b"data: " + _packed(told) + b"\n\n")
                self.wfile.flush()
                seen = board or seen

    def _is_ours(self) -> bool:
        """On loopback: no page of another name may ask through the browser (DNS rebinding)."""
        if self.server.token:
            return True
        name = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        return name is not None and is_loopback(name)

    def _is_known(self) -> bool:
        token = self.server.token
        given = self.headers.get("Authorization", "")
        return not token or hmac.compare_digest(given.encode(), f"Bearer {token}".encode())

    def _head(self, status: HTTPStatus, kind: str, more: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        for name, value in more.items():
            self.send_header(name, value)

    def _answer(
        self,
        status: HTTPStatus,
        body: bytes,
        kind: str = "text/plain; charset=utf-8",
        more: dict[str, str] | None = None,
    ) -> None:
        self._head(status, kind, more or {})
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _packed(value: object) -> bytes:
    """JSON on one line; a number that is none, as a loss may be, is null."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":")).encode()


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value

"""The HTTP answers to a browser: the page, the present data, and changes as they come.

`/` is the page, which contains no secrets. `/api/state?job=NAME` answers with all data of the lists
and of that job, as JSON. `/api/events?job=NAME` answers with the same data and then, while the
browser listens, with changes (server-sent events). `/api/stacks?job=NAME&generation=N&node=NODE`
answers with the stacks that a node wrote. With a token, all three require
`Authorization: Bearer TOKEN`. A POST to `/api/actions` changes something, if changes are allowed.
"""

import json
import math
import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from elasticd.dashboard.access import action_refusal, read_refusal
from elasticd.dashboard.action import ActionRequest, read_action
from elasticd.dashboard.board import Board, delta
from elasticd.dashboard.collector import Collector
from elasticd.dashboard.job_view import Plain
from elasticd.dashboard.page import page
from elasticd.errors import (
    CallError,
    ElasticdError,
    EnvironmentProblem,
    NotFound,
    NotSupported,
    Refused,
    Unavailable,
)
from elasticd.net.http_server import BoundedServer, Handler
from elasticd.net.listener import host_port, listen

__all__ = ["DashboardServer"]

STATE, EVENTS, STACKS = "/api/state", "/api/events", "/api/stacks"
ACTIONS = "/api/actions"
JSON = "application/json"
_GENERATION = re.compile(r"[0-9]{1,9}")

STREAMS_LIMIT = 256
CONNECTIONS_LIMIT = 320
QUIET_S = 10.0
"""A stream without changes sends a comment this often, to find out whether the browser listens."""
REQUEST_TIMEOUT_S = 20.0
STACK_BYTES = 512 * 1024
"""The stack size of a thread: hundreds of browsers must not need much more memory than one."""


class DashboardServer:
    """Serves in its own threads until `close`."""

    def __init__(
        self,
        host: str,
        port: int,
        collector: Collector,
        token: str = "",
        act: Callable[[ActionRequest], str] | None = None,
    ) -> None:
        """Bind and serve; port 0 takes a free port.

        `act` carries out an action of a page, on any thread, and returns a sentence about its
        result. With None, nothing can be changed. Without a token `act` is never called.

        Raises:
            EnvironmentProblem: the address is not one of this machine, or the port is taken.
        """
        try:
            listener = listen(host, port, backlog=128)
        except OSError as exc:
            why = exc.strerror or exc
            raise EnvironmentProblem(
                f"The dashboard cannot listen on {host} port {port} ({why}): give an address of "
                "this machine with --host, and a free port with --port."
            ) from exc
        self._collector = collector
        self._server = _Server(listener, collector, token, act)
        threading.stack_size(STACK_BYTES)
        self._server.start()

    @property
    def url(self) -> str:
        return f"http://{host_port(*self._server.where)}/"

    def close(self) -> None:
        self._server.close()


class _Server(BoundedServer):
    def __init__(
        self,
        listener: socket.socket,
        collector: Collector,
        token: str,
        act: Callable[[ActionRequest], str] | None,
    ) -> None:
        super().__init__(
            listener, _Handler, connections=CONNECTIONS_LIMIT, silence_s=REQUEST_TIMEOUT_S
        )
        self.collector, self.token, self.act = collector, token, act
        self.streams = threading.BoundedSemaphore(STREAMS_LIMIT)


class _Handler(Handler):
    server: _Server

    def do_GET(self) -> None:  # noqa: N802 (its caller looks for this name)
        parts = urlsplit(self.path)
        is_open = parts.path not in (STATE, EVENTS, STACKS)
        if refusal := read_refusal(self._given, self.server.token, is_open=is_open):
            self._refuse(*refusal)
            return
        query = parse_qs(parts.query)
        job = query.get("job", [""])[0]
        if parts.path == "/":
            found = page()
            policy = {"Content-Security-Policy": found.policy}
            self._answer(HTTPStatus.OK, found.body, "text/html; charset=utf-8", policy)
        elif parts.path == STATE:
            board = self.server.collector.newer_than(-1, 0.0)
            assert board is not None
            self._answer(HTTPStatus.OK, _packed(self._first(board, job)), JSON)
        elif parts.path == STACKS:
            self._stacks(job, query.get("generation", [""])[0], query.get("node", [""])[0])
        elif parts.path != EVENTS:
            self._refuse(HTTPStatus.NOT_FOUND, "There is nothing here.")
        elif self.server.streams.acquire(blocking=False):
            try:
                self._stream(job)
            finally:
                self.server.streams.release()
        else:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "Too many pages are open.")

    def _stacks(self, job: str, generation: str, node: str) -> None:
        """Answer with stacks, or with a sentence that says why they cannot be read now."""
        if not _GENERATION.fullmatch(generation):
            self._tell(HTTPStatus.BAD_REQUEST, "A generation is a number, as in generation=3.")
            return
        try:
            found = self.server.collector.stacks(job, int(generation), node)
        except ElasticdError as exc:
            self._tell(_status(exc), str(exc))
        else:
            told = {"text": found.text, "message": found.missing}
            self._answer(HTTPStatus.OK, _packed(told), JSON)

    def do_POST(self) -> None:  # noqa: N802 (its caller looks for this name)
        """Carry out an action.

        The body of a refused request is not read, so the connection is closed after the answer.
        """
        act, self.close_connection = self.server.act, True
        if urlsplit(self.path).path != ACTIONS:
            self._refuse(HTTPStatus.NOT_FOUND, "There is nothing here.")
        elif refusal := action_refusal(self._given, self.server.token, is_allowed=act is not None):
            self._refuse(*refusal)
        elif act is not None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                sentence = act(read_action(body))
            except ElasticdError as exc:
                self._tell(_status(exc), str(exc))
            except Exception as exc:  # Else the page would report a fault of the network.
                told = f"This is a bug of elasticd: {type(exc).__name__}: {exc}"
                self._tell(HTTPStatus.INTERNAL_SERVER_ERROR, told)
            else:
                self._tell(HTTPStatus.OK, sentence)

    @property
    def _given(self) -> dict[str, str]:
        """Return the headers by their standard names."""
        return {name.title(): value for name, value in self.headers.items()}

    def _first(self, board: Board, job: str) -> Plain:
        """Return the data for a page that has no data yet."""
        return {**delta(None, board, job), "can_act": self.server.act is not None}

    def _stream(self, job: str) -> None:
        """Send changes until the browser closes the connection."""
        self.close_connection = True
        self.server.is_kept()
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
                elif told := delta(seen, board, job) if seen else self._first(board, job):
                    self.wfile.write(b"data: " + _packed(told) + b"\n\n")
                self.wfile.flush()
                seen = board or seen

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        asks = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}
        self._answer(status, f"{sentence}\n".encode("utf-8", "backslashreplace"), more=asks)

    def _tell(self, status: HTTPStatus, sentence: str) -> None:
        self._answer(status, _packed({"message": sentence}), JSON)

    def _head(self, status: HTTPStatus, kind: str, more: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        if self.close_connection:
            self.send_header("Connection", "close")
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


def _status(error: ElasticdError) -> HTTPStatus:
    match error:
        case NotFound():
            return HTTPStatus.NOT_FOUND
        case Refused() | NotSupported() | EnvironmentProblem():
            return HTTPStatus.CONFLICT
        case CallError():
            return HTTPStatus.BAD_REQUEST
        case Unavailable():
            return HTTPStatus.SERVICE_UNAVAILABLE
        case _:
            return HTTPStatus.INTERNAL_SERVER_ERROR


def _packed(value: object) -> bytes:
    """Return JSON on one line; a NaN or infinite number, such as a loss, becomes null."""
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

"""An HTTP server with a thread for each connection, and limits on all that a client can hold up.

It knows nothing of what it serves; a handler class does. A client that sends or takes nothing is
disconnected after a while. If all places are taken, the connection that has been idle for the
longest is closed for a new one, or else one that takes its answer a few bytes at a time; if all are
being served, the new one is closed. The head of a request has a limit, and an unexpected body is
refused. A client that disconnects is no error. Nothing here asks DNS, and a server without requests
never wakes up.
"""

import select
import socket
import ssl
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from elasticd.net.cpu_share import CpuShare
from elasticd.net.listener import address_of
from elasticd.net.request_head import HeadTooLarge, RequestReader, body_refusal

__all__ = ["BoundedServer", "Handler"]

ACCEPT_PAUSE_S = 0.1
"""The pause after a failed accept: the client still waits, and would wake the loop at once."""
CLOSE_S = 1.0
SENTENCE_LIMIT = 200
"""How many characters a refusal may have, since it may repeat what was sent."""
IDLE_LEAST_S = 1.0
"""A connection that has been idle for so long is closed for a new one, which is about to ask."""
SERVED_MOST_S = 60.0
"""A connection that has taken one answer for so long is closed if all places are taken. An answer
has a few MiB at most, so a client that takes it so slowly wants the place, not the answer."""
PLACE_S = 0.2
"""How long to wait for the place of a connection that was closed."""
LINGER_S = 1.0
"""How long a refused client has to close its connection, which most do as they read the refusal."""
LINGER_BYTES = 1 << 20


class Handler(BaseHTTPRequestHandler):
    """One connection. A subclass has `do_GET` and the like, and knows its server's class."""

    protocol_version = "HTTP/1.1"
    server_version = "elasticd"
    sys_version = ""
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    """Head and body are sent together, and the rest of a large body at once. On a kept connection
    Nagle's algorithm would delay it by 40 ms, until the client acknowledged what came before."""

    server: "BoundedServer"
    is_refused = False
    urgent_paths: frozenset[str] = frozenset()
    """Paths that are answered at once, whatever the other answers cost: a supervisor's probes."""

    def setup(self) -> None:
        super().setup()
        self.rfile: RequestReader = RequestReader(self.rfile)

    def finish(self) -> None:
        super().finish()
        if self.is_refused:
            self._linger()

    def _linger(self) -> None:
        """Read and drop what the client still sends, for a while.

        The kernel resets a connection that is closed with unread data, and the client then may
        never see the refusal.
        """
        self.server.waits(self.connection)
        ends_s, left = time.monotonic() + LINGER_S, LINGER_BYTES
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and (left_s := ends_s - time.monotonic()) > 0:
                self.connection.settimeout(left_s)
                dropped = len(self.connection.recv(min(left, 1 << 16)))
                left -= dropped
                if not dropped:
                    return

    def handle_one_request(self) -> None:
        began_s = time.thread_time()
        self._answer_one()
        self.server.spend(time.thread_time() - began_s)

    def _has_waited(self) -> bool:
        """Wait until the CPU time of earlier answers is paid; return False if the connection was
        closed meanwhile.

        It waits before the answer, and not after it: so a client that opens a connection for each
        request waits too, a finished answer is sent at once, and no connection keeps a place that
        it does not need. A new connection, which may be a probe, gets the place of one that waits
        here.
        """
        wait_s = self.server.owed_s()
        if not wait_s or urlsplit(self.path).path in self.urgent_paths:
            return True
        self.server.holds(self.connection)
        poll = select.poll()
        poll.register(self.connection, 0)  # Only that we hung up: a client that does keeps waiting.
        if poll.poll(wait_s * 1000):
            self.close_connection = True
            return False
        self.server.is_asked()
        return True

    def _answer_one(self) -> None:
        self.server.waits(self.connection)
        self.rfile.begin()
        try:
            super().handle_one_request()
        except HeadTooLarge as exc:
            self.requestline = self.command = self.request_version = ""
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, str(exc))

    def parse_request(self) -> bool:
        """Parse the head; this is called with its first line, and the rest may come slowly."""
        is_whole = super().parse_request()
        self.server.is_asked()
        if not is_whole:
            return False
        if not hasattr(self, f"do_{self.command}"):
            self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)
            return False
        if refusal := body_refusal(self.command, self.headers):
            self.send_error(HTTPStatus.BAD_REQUEST, refusal)
            return False
        try:
            urlsplit(self.path)
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST, "The address cannot be read.")
            return False
        return self._has_waited()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse in one sentence, as text, and end the connection: what follows is not read."""
        status = HTTPStatus(code)
        sentence = (message or status.description or status.phrase)[:SENTENCE_LIMIT]
        body = f"{sentence}\n".encode("utf-8", "backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            methods = sorted(name[3:] for name in dir(self) if name.startswith("do_"))
            self.send_header("Allow", ", ".join(methods))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.is_refused = True

    def log_message(self, format: str, *args: object) -> None:
        """Write no line for each request."""


class BoundedServer(ThreadingHTTPServer):
    """Takes over a listening socket and serves it from `start` to `close`."""

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        listener: socket.socket,
        handler: type[Handler],
        *,
        connections: int,
        silence_s: float,
        context: ssl.SSLContext | None = None,
        cpu_share: float | None = None,
    ) -> None:
        """Prepare to serve at most `connections` at once.

        `silence_s` is how long a client may send or take nothing. With a `context` the server
        speaks TLS. `cpu_share` is the part of one CPU that all answers together may take; None for
        any.
        """
        self._cpu_share = CpuShare(cpu_share) if cpu_share is not None else None
        self._context, self._silence_s = context, silence_s
        self._places = threading.BoundedSemaphore(connections)
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[float, socket.socket]] = {}
        """By thread: since when its connection has asked for nothing. The longest comes first."""
        self._served: dict[int, tuple[float, socket.socket]] = {}
        """By thread: since when its connection is being answered. The longest comes first."""
        self._held: dict[int, tuple[float, socket.socket]] = {}
        """By thread: since when its connection waits until answers are paid for."""
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="http-server", daemon=True)
        self.where = address_of(listener)
        """Address and port that it listens on."""
        super().__init__(self.where, handler, bind_and_activate=False)
        self.socket.close()  # HTTPServer's own way to bind asks DNS, which may take seconds.
        self.socket = listener

    def start(self) -> None:
        """Serve, in threads of its own."""
        self._thread.start()

    def close(self) -> None:
        """Accept no new connections, and free the port; those that are being served may go on for a
        moment.
        """
        self._is_closing.set()
        if self._thread.ident is not None:
            # It waits for a connection without a timeout, so as not to wake up for nothing.
            with suppress(OSError):
                socket.create_connection(self.where, timeout=CLOSE_S).close()
            self._thread.join(CLOSE_S)
        self.server_close()

    def spend(self, cpu_s: float) -> None:
        """Note what an answer cost."""
        if self._cpu_share is not None:
            self._cpu_share.spend(cpu_s)

    def owed_s(self) -> float:
        """Return how long an answer that is not urgent has to wait."""
        return self._cpu_share.owed_s() if self._cpu_share is not None else 0.0

    def waits(self, connection: socket.socket) -> None:
        """Note that the connection of this thread is idle from now on."""
        self._note(self._waiting, connection)

    def holds(self, connection: socket.socket) -> None:
        """Note that the connection of this thread has to wait for its answer."""
        self._note(self._held, connection)

    def _note(
        self, among: dict[int, tuple[float, socket.socket]], connection: socket.socket
    ) -> None:
        thread = threading.get_ident()
        with self._lock:
            self._forget(thread)
            among[thread] = (time.monotonic(), connection)

    def _forget(self, thread: int) -> socket.socket | None:
        found = [each.pop(thread, None) for each in (self._waiting, self._served, self._held)]
        return next((entry[1] for entry in found if entry is not None), None)

    def is_asked(self) -> None:
        """Note that the connection of this thread has sent a request and is answered
        from now on.
        """
        thread = threading.get_ident()
        with self._lock:
            connection = self._forget(thread)
            if connection is not None:
                self._served[thread] = (time.monotonic(), connection)

    def is_kept(self) -> None:
        """Note that its answer has no end and must not be cut off; or that the
        connection is gone.
        """
        with self._lock:
            self._forget(threading.get_ident())

    def _serve(self) -> None:
        while not self._is_closing.is_set():
            self.handle_request()

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError:  # Out of descriptors.
            time.sleep(ACCEPT_PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False) and not self._make_place():
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # No thread can be started.
            self._places.release()
            self.shutdown_request(request)

    def _make_place(self) -> bool:
        connection = self._take_longest(self._held, 0.0)
        connection = connection or self._take_longest(self._waiting, IDLE_LEAST_S)
        connection = connection or self._take_longest(self._served, SERVED_MOST_S)
        if connection is None:
            return False
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        return self._places.acquire(timeout=PLACE_S)

    def _take_longest(
        self, among: dict[int, tuple[float, socket.socket]], least_s: float
    ) -> socket.socket | None:
        with self._lock:
            thread, (since_s, connection) = next(iter(among.items()), (0, (0.0, None)))
            if connection is None or time.monotonic() < since_s + least_s:
                return None
            del among[thread]
            return connection

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(self._silence_s)
            if self._context is not None:
                # Not in the accepting thread: a client that does not shake hands stops nobody, and
                # gives way like any other that says nothing.
                request = self._context.wrap_socket(
                    request, server_side=True, do_handshake_on_connect=False
                )
            self.waits(request)
            if isinstance(request, ssl.SSLSocket):
                request.do_handshake()
            super().process_request_thread(request, client_address)
        except OSError:
            self.shutdown_request(request)
        finally:
            self.is_kept()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a client that disconnects is not our error."""

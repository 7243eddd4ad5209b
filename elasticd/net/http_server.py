"""An HTTP server with a thread for each connection, and bounds on all that a client can hold up.

It knows nothing of what it serves: a handler class does. A client that sends or takes nothing is
cut off after a while. Where all places are taken, the connection that has asked for nothing for the
longest gives way to a new one; where all are being served, the new one is hung up on. Who hangs up
is no error. Nothing here asks DNS, and a server that nobody asks wakes up for nothing.
"""

import socket
import ssl
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from elasticd.net.listener import address_of

__all__ = ["BoundedServer", "Handler"]

ACCEPT_PAUSE_S = 0.1
"""After an accept that failed: who wants to come in still does, and would wake it at once."""
CLOSE_S = 1.0
IDLE_LEAST_S = 1.0
"""A connection that has asked for nothing for so long gives way; a new one is about to ask."""
PLACE_S = 0.2
"""For a connection that was hung up on to make room."""


class Handler(BaseHTTPRequestHandler):
    """One connection. A subclass has `do_GET` and the like, and knows its server's class."""

    protocol_version = "HTTP/1.1"
    server_version = "elasticd"
    sys_version = ""
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    """Head and body go out together, and the rest of a large body at once: on a connection that is
    kept, Nagle's algorithm holds it back for 40 ms, until the client acknowledged what came before.
    """

    server: "BoundedServer"

    def handle_one_request(self) -> None:
        self.server.waits(self.connection)
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Called with the first line; returns when the head is there, and may be dripping in."""
        is_whole = super().parse_request()
        self.server.is_asked()
        if is_whole:
            try:
                urlsplit(self.path)
            except ValueError:
                self.send_error(HTTPStatus.BAD_REQUEST)
                return False
        return is_whole

    def log_message(self, format: str, *args: object) -> None:
        """Write no line for each request."""


class BoundedServer(ThreadingHTTPServer):
    """Takes over a socket that listens; serves it from `start` to `close`."""

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
    ) -> None:
        """Serve nobody yet; then at most `connections` at once.

        `silence_s`: so long may a client send or take nothing. `context`: serve TLS with it.
        """
        self._context, self._silence_s = context, silence_s
        self._places = threading.BoundedSemaphore(connections)
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[float, socket.socket]] = {}
        """By thread: since when its connection has asked for nothing. The longest comes first."""
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
        """Accept nobody any more, and free the port; who is being served may go on for a moment."""
        self._is_closing.set()
        if self._thread.ident is not None:
            # It waits for a connection without a timeout, so as not to wake up for nothing.
            with suppress(OSError):
                socket.create_connection(self.where, timeout=CLOSE_S).close()
            self._thread.join(CLOSE_S)
        self.server_close()

    def waits(self, connection: socket.socket) -> None:
        """Note that the connection of this thread asks for nothing, from now on."""
        with self._lock:
            self._waiting.pop(threading.get_ident(), None)
            self._waiting[threading.get_ident()] = (time.monotonic(), connection)

    def is_asked(self) -> None:
        """Note that it has asked for something, or is gone."""
        with self._lock:
            self._waiting.pop(threading.get_ident(), None)

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
        with self._lock:
            thread, (since_s, connection) = next(iter(self._waiting.items()), (0, (0.0, None)))
            if connection is None or time.monotonic() < since_s + IDLE_LEAST_S:
                return False
            del self._waiting[thread]
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        return self._places.acquire(timeout=PLACE_S)

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
            self.is_asked()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that breaks off is not an event of ours."""

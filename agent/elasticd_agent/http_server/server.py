"""The server: threads of its own, a bound on their number, and a time-out on each.

It knows nothing of what it serves: each route is asked in turn, the first answer counts, and what
nobody answers is not there.
"""

import errno
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from elasticd.errors import EnvironmentProblem
from elasticd.store.api import StoreSettings
from elasticd.telemetry.log import get_logger
from elasticd_agent.http_server.answer import Answer, Route, told

__all__ = ["HttpServer"]

REQUEST_TIMEOUT_S = 30.0
"""A reader that sends or takes nothing for this long is cut off: no thread waits for ever."""
CONNECTIONS_LIMIT = 64
ACCEPT_PAUSE_S = 0.1

log = get_logger()


class HttpServer:
    """Serves in threads of its own until it is closed."""

    def __init__(
        self,
        address: str,
        routes: Sequence[Route],
        tls: StoreSettings | None = None,
        *,
        port: int = 0,
        flag: str = "--http-port",
    ) -> None:
        """Bind to a port of the address and serve; 0: a free one. `flag` is what chose the port.

        Raises:
            EnvironmentProblem: the address is not one of this machine, the port is taken, or a
                certificate is bad.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            context = _context(tls)
        except OSError as exc:
            raise EnvironmentProblem(
                f"The certificates for etcd cannot serve the agent's own HTTP server: {exc}."
            ) from exc
        try:
            self._server = _Server((address, port), tuple(routes), context, family)
        except OSError as exc:
            why = exc.strerror or exc
            if exc.errno in (errno.EADDRINUSE, errno.EACCES):
                raise EnvironmentProblem(
                    f"Port {port} of {address} cannot be served ({why}): choose another {flag}."
                ) from exc
            raise EnvironmentProblem(
                f"No HTTP server can listen on {address} ({why}): give this machine's own address "
                "with --local-addr."
            ) from exc
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="http-server", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.where[1]

    def close(self) -> None:
        self._is_closing.set()
        # It waits for a connection without a timeout, so as not to wake up for nothing: give one.
        with suppress(OSError):
            socket.create_connection(self._server.where, timeout=1.0).close()
        self._thread.join(1.0)
        self._server.server_close()

    def _serve(self) -> None:
        while not self._is_closing.is_set():
            self._server.handle_request()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(
        self,
        where: tuple[str, int],
        routes: tuple[Route, ...],
        context: ssl.SSLContext | None,
        family: socket.AddressFamily,
    ) -> None:
        self.address_family = family
        self.routes, self.context = routes, context
        self._places = threading.BoundedSemaphore(CONNECTIONS_LIMIT)
        super().__init__(where, _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own asks DNS for the machine's name, which may take seconds.
        # A port that was chosen by hand is the same after a restart of the agent.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.where: tuple[str, int] = self.socket.getsockname()[:2]
        self.server_name, self.server_port = self.where

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError:
            # Out of descriptors: who wants to come in stays there, and would wake us at once.
            time.sleep(ACCEPT_PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # No thread can be started.
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(REQUEST_TIMEOUT_S)
            if self.context is not None:
                # Not in the accepting thread: a client that does not shake hands stops nobody.
                request = self.context.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        except OSError:
            self.shutdown_request(request)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a reader that breaks off is not an event of this node."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    """Head and body go out together, and the rest of a large body at once: on a connection that is
    kept, Nagle's algorithm holds it back for 40 ms, until the client acknowledged what came before.
    """
    server: _Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        try:
            answers = (route(parts.path, parts.query) for route in self.server.routes)
            answer = next((each for each in answers if each is not None), None)
        except Exception:  # Of a route: a bug of ours, which must not look like a dead network.
            log.exception("request.crashed", path=parts.path)
            answer = told(HTTPStatus.INTERNAL_SERVER_ERROR, "This is a bug: see the agent's log.")
        self._send(answer or told(HTTPStatus.NOT_FOUND, "There is no such thing here."))

    def log_message(self, format: str, *args: object) -> None:
        """Write no line for each request."""

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)


def _context(tls: StoreSettings | None) -> ssl.SSLContext | None:
    if tls is None or not (tls.ca_file and tls.cert_file and tls.key_file):
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls.ca_file)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(tls.cert_file, tls.key_file)
    return context

"""The port of a process that may lead: `/metrics`, and the probes of whatever keeps it running.

`/healthz` says whether its thread finishes its rounds, `/readyz` whether it can do its work: an
etcd or an API server that is away is no reason to start the process again.
"""

import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlsplit

from elasticd.errors import EnvironmentProblem
from elasticd.net.http_server import BoundedServer, Handler
from elasticd.net.listener import listen
from elasticd.store.api import always
from elasticd.telemetry.metrics.exposition import CONTENT_TYPE

__all__ = ["MetricsServer"]

CONNECTIONS_LIMIT = 16
SILENCE_S = 20.0
PLAIN = "text/plain; charset=utf-8"


class Counts(Protocol):
    """The counters of a process."""

    def exposition(self, *, is_alive: bool = True) -> bytes:
        """Return all counts in Prometheus' text format; a process that is not alive
        does not lead.
        """


def _ready() -> str:
    return ""


class MetricsServer:
    """Serves in threads of its own until it is closed."""

    def __init__(
        self,
        host: str,
        port: int,
        counts: Counts,
        context: ssl.SSLContext | None = None,
        *,
        whose: str = "autoscaler",
        is_alive: Callable[[], bool] = always,
        why_unready: Callable[[], str] = _ready,
    ) -> None:
        """Bind and serve; port 0 takes a free one. `context`: serve TLS with it.

        `is_alive` is asked for `/healthz`: a process whose work stands still is not healthy.
        `why_unready` is asked for `/readyz`, and answers with a sentence, or empty if it is ready.

        Raises: EnvironmentProblem: the address is not one of this machine, or the port is taken.
        """
        try:
            listener = listen(host, port)
        except OSError as exc:
            raise EnvironmentProblem(
                f"The {whose}'s metrics cannot be served on {host} port {port} "
                f"({exc.strerror or exc}): give an address of this machine and a free port."
            ) from exc
        self._server = _Server(listener, counts, context, is_alive, why_unready)
        self._server.start()

    @property
    def port(self) -> int:
        return self._server.where[1]

    def close(self) -> None:
        self._server.close()


class _Server(BoundedServer):
    def __init__(
        self,
        listener: socket.socket,
        counts: Counts,
        context: ssl.SSLContext | None,
        is_alive: Callable[[], bool],
        why_unready: Callable[[], str],
    ) -> None:
        super().__init__(
            listener,
            _Handler,
            connections=CONNECTIONS_LIMIT,
            silence_s=SILENCE_S,
            context=context,
        )
        self.counts, self.is_alive, self.why_unready = counts, is_alive, why_unready


class _Handler(Handler):
    server: _Server

    def do_GET(self) -> None:  # noqa: N802 (its caller looks for this name)
        match urlsplit(self.path).path:
            case "/metrics":
                body = self.server.counts.exposition(is_alive=self.server.is_alive())
                self._answer(HTTPStatus.OK, body, CONTENT_TYPE)
            case "/healthz" if self.server.is_alive():
                self._answer(HTTPStatus.OK, b"ok\n")
            case "/healthz":
                text = b"The thread that evaluates jobs stands still: restart this process.\n"
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, text)
            case "/readyz" if why := self.server.why_unready():
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{why}\n".encode())
            case "/readyz":
                self._answer(HTTPStatus.OK, b"ok\n")
            case _:
                self._answer(HTTPStatus.NOT_FOUND, b"There are /metrics, /healthz and /readyz.\n")

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str = PLAIN) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

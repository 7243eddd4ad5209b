"""The agent's HTTP server: a table of routes.

It knows nothing of what it serves: each route is asked in turn, the first answer counts, and what
nobody answers is not there.
"""

from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

from elasticd.net.http_server import BoundedServer, Handler
from elasticd.telemetry.log import get_logger
from elasticd_agent.http_server.answer import HttpAnswer, Route, text_answer
from elasticd_agent.http_server.listener import HttpListener
from elasticd_agent.http_server.probes import PATHS

__all__ = ["HttpServer"]

REQUEST_TIMEOUT_S = 30.0
"""A client that sends or reads nothing for this long is disconnected, so that no thread waits for
ever."""
CONNECTIONS_LIMIT = 64
CPU_SHARE = 0.2
"""The share of one CPU that answers may use, since their threads share the interpreter with the one
that decides."""
NOTHING = "There is no such thing here: docs/metrics.md says what an agent of elasticd answers."

log = get_logger()


class HttpServer:
    """Serves in threads of its own until it is closed."""

    def __init__(self, listener: HttpListener, routes: Sequence[Route]) -> None:
        self._server = _Server(
            listener.socket,
            _Handler,
            connections=CONNECTIONS_LIMIT,
            silence_s=REQUEST_TIMEOUT_S,
            context=listener.context,
            cpu_share=CPU_SHARE,
        )
        self._server.routes = tuple(routes)
        self._server.start()

    @property
    def port(self) -> int:
        return self._server.where[1]

    def close(self) -> None:
        self._server.close()


class _Server(BoundedServer):
    routes: tuple[Route, ...] = ()


class _Handler(Handler):
    server: _Server
    urgent_paths = PATHS

    def do_GET(self) -> None:  # noqa: N802 (its caller looks for this name)
        parts = urlsplit(self.path)
        try:
            answers = (route(parts.path, parts.query) for route in self.server.routes)
            answer = next((each for each in answers if each is not None), None)
        except Exception:  # Of a route: a bug of ours, which must not look like a dead network.
            log.exception("request.crashed", path=parts.path)
            answer = text_answer(
                HTTPStatus.INTERNAL_SERVER_ERROR, "This is a bug: see the agent's log."
            )
        self._send(answer or text_answer(HTTPStatus.NOT_FOUND, NOTHING))

    def _send(self, answer: HttpAnswer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

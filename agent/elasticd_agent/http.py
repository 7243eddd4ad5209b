"""Serve this node's worker logs to whoever follows a job from elsewhere.

`GET /v1/logs/<job>/<generation>/<rank>/<out|err>?offset=N` answers with bytes from there on, at
most 1 MiB, and the file's size in `X-Elasticd-Size`; `GET /v1/progress/<job>` with where the ranks
of this node stand, as JSON; `/healthz` answers ok, and in a second line what etcd refuses to take
from this node. Nothing else: no listing, no other file, no way to write. A name is checked and a
number is a number before a path is made of them. Where etcd needs client certificates, so does
this, of the same CA; without, who reaches the port can read the logs.
"""

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from elasticd.control.output import TROUBLE
from elasticd.errors import CallError, EnvironmentProblem
from elasticd.records.ids import JobName, checked_name
from elasticd.store.api import StoreSettings

__all__ = ["ANSWER_LIMIT_BYTES", "LogServer"]

ANSWER_LIMIT_BYTES = 1 << 20
REQUEST_TIMEOUT_S = 30.0
"""A reader that sends or takes nothing for this long is cut off: no thread waits for ever."""
CONNECTIONS_LIMIT = 64
_PROGRESS = "/v1/progress/"
ACCEPT_PAUSE_S = 0.1
_NUMBER = re.compile(r"[0-9]{1,15}")

Progress = Callable[[JobName], bytes | None]
"""Answers where a job's ranks on this node stand; None: it has none, or nobody answers in time."""


class LogServer:
    """Serves in threads of its own until it is closed."""

    def __init__(
        self,
        address: str,
        run_folder: Path,
        tls: StoreSettings | None = None,
        progress: Progress = lambda job: None,
        trouble: Callable[[], str] = str,
        folders: Mapping[JobName, Path] | None = None,
    ) -> None:
        """Bind to a free port of the address and serve; `trouble`: a sentence for `/healthz`.

        `folders` has the run folders of jobs that asked for another one than `run_folder`; it may
        grow meanwhile.

        Raises:
            EnvironmentProblem: the address is not one of this machine, or a certificate is bad.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._server = _Server(
                (address, 0), run_folder, progress, trouble, _context(tls), family
            )
            self._server.folders = {} if folders is None else folders
        except OSError as exc:
            raise EnvironmentProblem(
                f"No log server can listen on {address} ({exc.strerror or exc}): give this "
                "machine's own address with --local-addr."
            ) from exc
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="log-server", daemon=True)
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
    folders: Mapping[JobName, Path]

    def __init__(
        self,
        where: tuple[str, int],
        run_folder: Path,
        progress: Progress,
        trouble: Callable[[], str],
        context: ssl.SSLContext | None,
        family: socket.AddressFamily,
    ) -> None:
        self.address_family = family
        self.run_folder, self.context = run_folder, context
        self.progress, self.trouble = progress, trouble
        self._places = threading.BoundedSemaphore(CONNECTIONS_LIMIT)
        super().__init__(where, _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own asks DNS for the machine's name, which may take seconds.
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

    def log_of(self, path: str, query: str) -> tuple[Path, int]:
        """Find the file that a request names, and from where on it is wanted.

        Raises:
            CallError: it names none that could be a log of ours.
        """
        match path.split("/"):
            case ["", "v1", "logs", job, generation, rank, ("out" | "err") as stream]:
                name = JobName(checked_name("job", job))
                numbers = [generation, rank, *parse_qs(query).get("offset", ["0"])[:1]]
                if all(_NUMBER.fullmatch(number) for number in numbers):
                    run_folder = self.folders.get(name, self.run_folder)
                    folder = run_folder / name / f"gen-{int(generation)}"
                    found = (folder / f"rank-{int(rank)}.{stream}").resolve()
                    # A worker may have put a link there: its log server leads out of the folder.
                    if found.is_relative_to(run_folder.resolve()):
                        return found, int(numbers[2])
        raise CallError(f"{path} is not the path of a log.")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a reader that breaks off is not an event of this node."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/healthz":
            # Still ok: a supervisor that restarted the agent for it would end its workers.
            trouble = self.server.trouble()
            text = f"ok\n{TROUBLE}{trouble}\n" if trouble else "ok\n"
            self._answer(HTTPStatus.OK, text.encode("utf-8", "backslashreplace"))
            return
        if parts.path.startswith(_PROGRESS):
            found = self.server.progress(JobName(parts.path.removeprefix(_PROGRESS)))
            if found is None:
                self._answer(HTTPStatus.NOT_FOUND, b"There is no such job here.\n")
            else:
                self._answer(HTTPStatus.OK, found)
            return
        try:
            path, offset = self.server.log_of(parts.path, parts.query)
            with path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(min(offset, size))
                body = file.read(ANSWER_LIMIT_BYTES)
        except (CallError, OSError):
            self._answer(HTTPStatus.NOT_FOUND, b"There is no such log.\n")
            return
        self._answer(HTTPStatus.OK, body, size)

    def log_message(self, format: str, *args: object) -> None:
        """Write no line for each request."""

    def _answer(self, status: HTTPStatus, body: bytes, size: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if size is not None:
            self.send_header("X-Elasticd-Size", str(size))
        self.end_headers()
        self.wfile.write(body)


def _context(tls: StoreSettings | None) -> ssl.SSLContext | None:
    if tls is None or not (tls.ca_file and tls.cert_file and tls.key_file):
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls.ca_file)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(tls.cert_file, tls.key_file)
    return context

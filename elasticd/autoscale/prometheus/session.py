"""Sends one request over kept connections: it returns bytes or a sentence, within a time limit.

urllib3 provides the pool of kept connections, TLS and the time limits of one socket. Those limits
apply to each single wait, and a server that sends one byte a second never exceeds them. So the
thread that waits for an evaluation aborts the remaining requests when the time is over
(`Call.abort`).

No redirect is followed: the next address might belong to another host, which must not get the
token, or be http after https. No proxy of the environment is used. An answer is never decompressed,
so that a kilobyte cannot become a gigabyte.
"""

import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from threading import local
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, SSLError
from urllib3.response import BaseHTTPResponse

from elasticd import __version__
from elasticd.autoscale.prometheus.answer import QueryAnswer, QueryFailure, answered, words
from elasticd.autoscale.prometheus.credentials import Shown
from elasticd.autoscale.prometheus.settings import Endpoint
from elasticd.records.autoscale.held import HoldReason

__all__ = ["Call", "HttpSession"]

ANSWER_LIMIT_BYTES = 4 << 20
CONNECT_LIMIT_S = 5.0
CHUNK_BYTES = 1 << 16


class Call:
    """One request that was sent; another thread may abort it."""

    def __init__(self, deadline_s: float) -> None:
        """`deadline_s` is a time of the monotonic clock."""
        self.deadline_s = deadline_s
        self.is_aborted = False
        self._socket: socket.socket | None = None

    def left_s(self) -> float:
        return self.deadline_s - time.monotonic()

    def uses(self, opened: socket.socket | None) -> None:
        self._socket = opened
        if self.is_aborted:
            self.abort()

    def abort(self) -> None:
        """Make the call's thread stop waiting."""
        self.is_aborted = True
        if self._socket is not None:
            with suppress(OSError, ValueError):
                # The socket's own method: the state of TLS belongs to the thread that reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


_here = local()
"""The call of this thread, for the connection that the thread takes from the pool."""


class _Plain(HTTPConnection):
    def connect(self) -> None:
        super().connect()
        _here.call.uses(self.sock)

    def request(self, *args: Any, **given: Any) -> None:
        _here.call.uses(self.sock)
        super().request(*args, **given)


class _Tls(_Plain, HTTPSConnection):
    """A TLS connection, which `HTTPSConnection` opens, the next one in the order of the classes."""


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Plain


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Tls


class HttpSession:
    """Connections to one endpoint with one set of credentials; safe for several threads."""

    def __init__(self, endpoint: Endpoint, shown: Shown, connections: int) -> None:
        """Keep at most this many connections; make none yet."""
        self._endpoint, self.shown = endpoint, shown
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/x-www-form-urlencoded",
            "User-Agent": f"elasticd/{__version__}",
        }
        if shown.authorization:
            self._headers["Authorization"] = shown.authorization
        given: dict[str, Any] = {"maxsize": connections, "block": False, "retries": False}
        self._pool: urllib3.HTTPConnectionPool
        if endpoint.is_tls:
            self._pool = _TlsPool(endpoint.host, endpoint.port, ssl_context=shown.context, **given)
        else:
            self._pool = _PlainPool(endpoint.host, endpoint.port, **given)

    def ask(
        self,
        path: str,
        fields: Mapping[str, str],
        call: Call,
        limit_bytes: int = ANSWER_LIMIT_BYTES,
    ) -> QueryAnswer | QueryFailure:
        """Post a form to the API, and return its answer; the method raises nothing.

        The request tells Prometheus the time limit, so that it does not work for longer.
        """
        found = self._tried(path, fields, call, limit_bytes)
        answer = found if isinstance(found, QueryFailure) else answered(*found)
        if isinstance(answer, QueryFailure):
            return QueryFailure(why=answer.why, detail=self._without_secrets(answer.detail))
        return answer

    def get(self, path: str, call: Call) -> bytes | None:
        """Return the body of an answer to a plain GET; None if there is none."""
        found = self._tried(path, None, call, ANSWER_LIMIT_BYTES)
        return (
            found[1] if not isinstance(found, QueryFailure) and found[0] == HTTPStatus.OK else None
        )

    def close(self) -> None:
        self._pool.close()

    def _tried(
        self, path: str, fields: Mapping[str, str] | None, call: Call, limit_bytes: int
    ) -> tuple[int, bytes] | QueryFailure:
        _here.call = call
        for is_last in (False, True):
            left_s = call.left_s()
            if left_s <= 0 or call.is_aborted:
                break
            try:
                return self._asked(path, fields, left_s, limit_bytes)
            except ProtocolError as exc:
                # The server may have closed a kept connection at the moment of its use.
                if is_last:
                    return self._away(f"The answer broke off ({_reason(exc)})", call)
            except (HTTPError, OSError, ValueError) as exc:
                return self._away(_reason(exc), call)
        return self._away("", call)

    def _asked(
        self, path: str, fields: Mapping[str, str] | None, left_s: float, limit_bytes: int
    ) -> tuple[int, bytes] | QueryFailure:
        body = None
        if fields is not None:
            body = urlencode({**fields, "timeout": f"{left_s:.3f}"})
        response = self._pool.urlopen(
            "GET" if body is None else "POST",
            f"{self._endpoint.prefix}{path}",
            body=body,
            headers=self._headers,
            redirect=False,
            timeout=urllib3.Timeout(connect=min(left_s, CONNECT_LIMIT_S), read=left_s),
            preload_content=False,
            decode_content=False,
        )
        is_whole = False
        try:
            if failure := self._refusal(response):
                return failure
            content = _read(response, limit_bytes)
            is_whole = content is not None
        finally:
            _here.call.uses(None)  # The next user of the connection is another call.
            if is_whole:
                response.release_conn()
            else:
                response.close()
        if content is None:
            return QueryFailure(
                why=HoldReason.MANY_SERIES,
                detail=f"The answer has more than {limit_bytes >> 20} MiB: ask for fewer series.",
            )
        return response.status, content

    def _refusal(self, response: BaseHTTPResponse) -> QueryFailure | None:
        """Return the failure that the head of an answer shows; None if its body must be read."""
        if 300 <= response.status < 400:
            to = urlsplit(response.headers.get("Location", ""))
            where = words(
                f"{to.scheme}://{to.netloc.rpartition('@')[2]}{to.path}" if to.netloc else to.path
            )
            return QueryFailure(
                why=HoldReason.REFUSED,
                detail=f"{self._endpoint.url} redirects to {where or 'nowhere'}: give the address "
                "that answers itself, as credentials are shown to no other one.",
            )
        if response.status in (401, 403):
            return QueryFailure(
                why=HoldReason.REFUSED,
                detail=f"{self._endpoint.url} answers with HTTP {response.status}: it does not "
                "take what it was shown (token, password or certificate).",
            )
        if response.headers.get("Content-Encoding", "identity") != "identity":
            return QueryFailure(
                why=HoldReason.UNREACHABLE,
                detail=f"{self._endpoint.url} packs its answers, which it was asked not to do.",
            )
        return None

    def _away(self, reason: str, call: Call) -> QueryFailure:
        if call.is_aborted or call.left_s() <= 0:
            reason = "no answer in time"
        return QueryFailure(
            why=HoldReason.UNREACHABLE,
            detail=f"{self._endpoint.url} does not answer: {words(reason)}.",
        )

    def _without_secrets(self, text: str) -> str:
        for secret in self.shown.secrets:
            text = text.replace(secret, "***")
        return text


def _read(response: BaseHTTPResponse, limit_bytes: int) -> bytes | None:
    """Return the body; None if it is longer than the limit."""
    parts: list[bytes] = []
    size = 0
    while part := response.read(CHUNK_BYTES):
        size += len(part)
        if size > limit_bytes:
            return None
        parts.append(part)
    return b"".join(parts)


_OBJECT = re.compile(r"^<[^>]*>: |^\w*(Connection|Pool)\(.*?\): ")


def _reason(exc: Exception) -> str:
    """Return the cause of an error, without the objects and ports that urllib3 names."""
    cause: BaseException = exc
    while not isinstance(cause, OSError) and (inner := _inner(cause)) is not None:
        cause = inner
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return _OBJECT.sub("", str(cause)) or type(cause).__name__


def _inner(exc: BaseException) -> BaseException | None:
    if isinstance(exc, SSLError | NewConnectionError) and exc.__cause__ is None and exc.args:
        return exc.args[0] if isinstance(exc.args[0], BaseException) else None
    return exc.__cause__

"""Reads the requests of a connection: limits the head, and refuses unexpected bodies.

The head of a request (its first line and its headers) is read before anything is known of its
sender. The standard library takes 100 headers of 64 KiB each, so every connection could make a
process hold 6 MB. Here all of it together has one limit.

A body that nobody reads would be taken for the next request on a kept connection. Behind a proxy
that shares its connections among clients, one client's body would then be answered to another
("request smuggling"). So an unexpected body is refused, and ends its connection.
"""

import io
from email.message import Message
from typing import Protocol

__all__ = ["HEAD_LIMIT_BYTES", "HeadTooLarge", "RequestReader", "body_refusal"]

HEAD_LIMIT_BYTES = 16 << 10
"""The limit of one request's first line and all headers. Browsers send 1 KiB, those with cookies
8."""

_METHODS_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")


class HeadTooLarge(Exception):
    """The head of a request is larger than anybody needs."""


class Readable(Protocol):
    """The methods of a buffered connection that `RequestReader` uses."""

    def readline(self, size: int = -1, /) -> bytes: ...
    def read(self, size: int = -1, /) -> bytes: ...
    def close(self) -> None: ...


class RequestReader(io.BufferedIOBase):
    """Reads lines of a head up to one limit for all of them together, and bodies as they are."""

    def __init__(self, raw: Readable) -> None:
        super().__init__()
        self._raw = raw
        self._left = 0

    def begin(self) -> None:
        """Begin with another head, and reset the limit."""
        self._left = HEAD_LIMIT_BYTES

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line of a head; `size` has no effect below the limit.

        Raises: HeadTooLarge: the head has more bytes than that.
        """
        line = self._raw.readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise HeadTooLarge(f"The head of a request has at most {HEAD_LIMIT_BYTES} bytes.")
        return line

    def read(self, size: int | None = -1, /) -> bytes:
        return self._raw.read(-1 if size is None else size)

    def close(self) -> None:
        self._raw.close()
        super().close()


def body_refusal(method: str, headers: Message) -> str:
    """Return why this request is not answered; empty if it may be.

    A line that is no header hides those behind it from us, but perhaps not from a proxy.
    """
    if headers.defects:
        return "A line of the request's head is no header."
    if headers.get("Transfer-Encoding") is not None:
        return "A body comes whole, with a Content-Length: no Transfer-Encoding is understood."
    lengths = headers.get_all("Content-Length", [])
    if len(set(lengths)) > 1:
        return "The request has several lengths."
    if method not in _METHODS_WITH_BODY and lengths and lengths[0].strip() != "0":
        return f"A {method} has no body."
    return ""

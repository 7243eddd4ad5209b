"""Whole messages out of a stream of bytes: exact reads, a length before each message, or lines.

Each protocol above decides the content of messages, and who may send them.
"""

import socket
import struct
import time
from collections.abc import Iterator

from elasticd.errors import InvariantBroken

__all__ = ["LENGTH", "LineReader", "read_exactly", "read_into", "read_message", "send_message"]

LENGTH = struct.Struct("<Q")
"""The length in bytes before a message, little-endian."""


class LineReader:
    """Collects what was received, and gives the lines that are complete."""

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` is the longest line that a peer has a reason to send."""
        self._limit_bytes = limit_bytes
        self._received = bytearray()
        self._searched = 0
        """Bytes from the front that are known to hold no end of a line."""

    @property
    def is_too_long(self) -> bool:
        """Return whether the line that is not complete yet is longer than the limit."""
        return len(self._received) > self._limit_bytes

    def feed(self, data: bytes) -> None:
        self._received += data

    def lines(self) -> Iterator[bytes]:
        """Take the complete lines, without their newlines; the others stay if the caller stops."""
        while (end := self._received.find(b"\n", self._searched)) >= 0:
            line = bytes(self._received[:end])
            del self._received[: end + 1]
            self._searched = 0
            yield line
        self._searched = len(self._received)


def send_message(sock: socket.socket, data: bytes) -> None:
    """Send a message with its length before it."""
    sock.sendall(LENGTH.pack(len(data)))
    sock.sendall(data)


def read_message(sock: socket.socket, limit_bytes: int, deadline_s: float | None = None) -> bytes:
    """Return the next message; no memory is allocated for one that is longer than the limit.

    Raises:
        InvariantBroken: a longer one is announced.
        EOFError, OSError: as `read_into` says.
    """
    (length,) = LENGTH.unpack(read_exactly(sock, LENGTH.size, deadline_s))
    if length > limit_bytes:
        raise InvariantBroken(f"A message of {length} bytes is announced, more than {limit_bytes}.")
    return bytes(read_exactly(sock, length, deadline_s))


def read_exactly(sock: socket.socket, length: int, deadline_s: float | None = None) -> bytearray:
    """Return the next `length` bytes; raises as `read_into` says."""
    data = bytearray(length)
    read_into(sock, memoryview(data), deadline_s)
    return data


def read_into(sock: socket.socket, place: memoryview, deadline_s: float | None = None) -> None:
    """Fill `place` with the next bytes.

    `deadline_s`: when all must have come, on the monotonic clock; None for the socket's own limit
    of each read.

    Raises:
        EOFError: the other side hung up before.
        OSError: the connection broke, or the time is over.
    """
    while place:
        if deadline_s is not None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the other side is too slow")
            sock.settimeout(left_s)
        count = sock.recv_into(place)
        if count == 0:
            raise EOFError("the other side hung up")
        place = place[count:]

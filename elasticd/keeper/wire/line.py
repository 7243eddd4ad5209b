"""Messages with open files over a unix socket: a length, JSON, and descriptors (SCM_RIGHTS)."""

import array
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from elasticd.channel.wire import pack, unpack
from elasticd.errors import InvariantBroken
from elasticd.net.framing import LENGTH, read_exactly

__all__ = ["KeeperConnection"]

MESSAGE_LIMIT_BYTES = 256 << 20
FILES_LIMIT = 8
_INT_BYTES = array.array("i").itemsize


class KeeperConnection:
    """One connection, used by one thread at a time."""

    def __init__(self, sock: socket.socket, kinds: Mapping[str, type]) -> None:
        """`kinds` are the messages that may be received, by name."""
        self._sock = sock
        self._kinds = kinds

    @property
    def socket(self) -> socket.socket:
        return self._sock

    def send(self, message: object, files: Sequence[int] = ()) -> None:
        """Send a message, and copies of these descriptors.

        Raises: OSError: nobody is at the other end.
        """
        data = pack(message)
        head = LENGTH.pack(len(data))
        ancillary = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        )
        # The descriptors belong to the first byte, so the length goes alone and whole.
        self._sock.sendmsg([head], ancillary)
        self._sock.sendall(data)

    def receive(self) -> tuple[Any, list[int]]:
        """Return the next message and the descriptors that came with it, which belong to the
        caller.

        Raises: EOFError: the other side hung up. OSError: nothing came within the socket's time
        limit. InvariantBroken: what came is no message.
        """
        size = socket.CMSG_SPACE(FILES_LIMIT * _INT_BYTES)
        head, ancillary, _, _ = self._sock.recvmsg(LENGTH.size, size, socket.MSG_CMSG_CLOEXEC)
        files = array.array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                files.frombytes(data[: len(data) - len(data) % _INT_BYTES])
        try:
            head += read_exactly(self._sock, LENGTH.size - len(head)) if head else b""
            if not head:
                raise EOFError("the other side hung up")
            (length,) = LENGTH.unpack(head)
            if length > MESSAGE_LIMIT_BYTES:
                raise InvariantBroken(f"a message of {length} bytes is announced")
            return unpack(bytes(read_exactly(self._sock, length)), self._kinds), list(files)
        except BaseException:
            for each in files:
                with suppress(OSError):
                    os.close(each)
            raise

    def close(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

"""A selector for one thread that serves a listening socket and connections, and can be woken.

Both of an agent's servers for short messages are made of it: the one for its workers, and the one
for the agents of other nodes.
"""

import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

__all__ = ["SocketSelector"]

_FULL_PAUSE_S = 0.05
"""The pause where no descriptor is left for one who connects: the listening socket would stay
readable, and the thread busy."""
_WAKE_BYTES = 4096

T = TypeVar("T")


class SocketSelector(Generic[T]):
    """The sockets of one server; only `wake` may be called by other threads than its own.

    `T` is what the server keeps of a connection.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._wake_out, self._wake_in = socket.socketpair()
        for sock in (listener, self._wake_out, self._wake_in):
            sock.setblocking(False)
        self._full_until_s: float | None = None
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wake_out, selectors.EVENT_READ)

    def __len__(self) -> int:
        """Return how many connections are registered."""
        return len(self._selector.get_map()) - 1 - (self._full_until_s is None)

    def wake(self) -> None:
        """Let a `serve` that waits return."""
        with suppress(OSError):  # A full pipe wakes it as well, a closed one has nobody to wake.
            self._wake_in.send(b"w")

    def serve(
        self,
        timeout_s: float | None,
        accepted: Callable[[socket.socket], None],
        ready: Callable[[T, int], None],
    ) -> None:
        """Wait for what comes next, and hand it over: a connection that is new and does not block,
        or one that is ready, with the mask of its events. An earlier one of the same call may have
        ended it.
        """
        for key, mask in self._selector.select(self._until_heard_s(timeout_s)):
            if key.fileobj is self._listener:
                self._accept(accepted)
            elif key.fileobj is self._wake_out:
                self._wake_out.recv(_WAKE_BYTES)
            else:
                ready(key.data, mask)

    def register(self, sock: socket.socket, kept: T) -> None:
        """Serve this connection from now on, for reading."""
        self._selector.register(sock, selectors.EVENT_READ, kept)

    def watch_writing(self, sock: socket.socket, kept: T, *, is_wanted: bool) -> None:
        """Also report when the connection takes more bytes; without `is_wanted` stop reporting."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_wanted else 0)
        self._selector.modify(sock, events, kept)

    def unregister(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)

    def close(self) -> None:
        """Close the listening socket and all connections."""
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()
        for sock in (self._listener, self._wake_in):
            sock.close()

    def _accept(self, accepted: Callable[[socket.socket], None]) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            self._selector.unregister(self._listener)
            self._full_until_s = time.monotonic() + _FULL_PAUSE_S
            return
        sock.setblocking(False)
        accepted(sock)

    def _until_heard_s(self, timeout_s: float | None) -> float | None:
        """Listen again if the pause is over; otherwise wait at most until its end."""
        if self._full_until_s is None:
            return timeout_s
        left_s = self._full_until_s - time.monotonic()
        if left_s <= 0.0:
            self._full_until_s = None
            self._selector.register(self._listener, selectors.EVENT_READ)
            return timeout_s
        return left_s if timeout_s is None else min(timeout_s, left_s)

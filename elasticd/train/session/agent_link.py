"""The worker's end of the agent's socket: lines in, lines out.

It is an abstract unix socket, so no file is left behind, and a changed root or user does not
matter. A line that the agent does not take at once is kept and goes first next time, so a stream is
never cut in the middle of a message. A message that is only news (a heartbeat) is dropped instead.
"""

import os
import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock

from elasticd.channel.wire import LINE_LIMIT_BYTES, pack
from elasticd.channel.worker import FromWorker, ToWorker, unpack_to_worker
from elasticd.errors import EnvironmentProblem, InvariantBroken

__all__ = ["AgentLink"]

SEND_TIMEOUT_S = 1.0
"""How long a message waits for an agent that reads nothing; then it stays in the backlog."""

BACKLOG_LIMIT_BYTES = 1 << 20
"""The most that may wait for an agent; beyond that it is given up, and the pool ends the worker."""


class AgentLink:
    """One connection; any thread may call `send`, and only one `messages`."""

    def __init__(self, name: str) -> None:
        """Connect to the agent's socket of this name.

        Raises:
            EnvironmentProblem: nobody listens there.
        """
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect("\0" + name)
        except OSError as exc:
            self._socket.close()
            raise EnvironmentProblem(
                f"The agent that started this worker does not answer ({exc.strerror}): a script "
                "that calls elasticd.run is started with `elasticd run`, or with plain python "
                "and without ELASTICD_AGENT in its environment."
            ) from exc
        self._lock = Lock()
        self._backlog = b""
        self._is_broken = False
        # The processes that a data loader forks must not hold the connection open.
        os.register_at_fork(after_in_child=self._forget)

    def send(self, message: FromWorker, *, is_news: bool = False) -> None:
        """Send a message; one that is only news is dropped if it would have to wait.

        It does not raise when the agent has ended: `messages` ends then.
        """
        if not self._lock.acquire(blocking=not is_news):
            return
        try:
            if is_news and not self._flush(0):
                return
            self._backlog += pack(message)
            self._flush(0 if is_news else SEND_TIMEOUT_S)
        finally:
            self._lock.release()

    def messages(self) -> Iterator[ToWorker]:
        """Yield the agent's messages until the connection ends."""
        # An agent that was killed in the middle of a line leaves half a message.
        with suppress(OSError, ValueError, InvariantBroken), self._socket.makefile("rb") as lines:
            while line := lines.readline(LINE_LIMIT_BYTES):
                yield unpack_to_worker(line)

    def close(self) -> None:
        """End the connection, which also ends `messages`."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _forget(self) -> None:
        # Detached, not closed: the reader's file would keep a closed one open.
        with suppress(OSError):
            os.close(self._socket.detach())

    def _flush(self, timeout_s: float) -> bool:
        """Send the messages that were kept; return whether none is left."""
        deadline_s = time.monotonic() + timeout_s
        while self._backlog and not self._is_broken:
            try:
                sent = self._socket.send(self._backlog, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    break
                poll = select.poll()
                poll.register(self._socket, select.POLLOUT)
                poll.poll(left_s * 1000)
            except OSError:
                self._is_broken = True
            else:
                self._backlog = self._backlog[sent:]
        if len(self._backlog) > BACKLOG_LIMIT_BYTES:
            self._is_broken = True
        if self._is_broken:
            self._backlog = b""
        return not self._backlog

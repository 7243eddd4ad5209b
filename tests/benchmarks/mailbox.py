"""The socket to which the script under test sends, read by a thread so that no worker waits."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Thread
from types import TracebackType
from typing import Self, TypeVar

__all__ = ["Mailbox"]

RECEIVE_BYTES = 4 * 1024 * 1024
MESSAGE_BYTES = 512

T = TypeVar("T")


class Mailbox:
    """`take` gets the words of each message, with the lock held; use it in a `with`."""

    def __init__(self, folder: Path, take: Callable[[list[str]], None]) -> None:
        self.path = folder / "feed"
        self.news = Condition()
        """Held by `take`, and to be held by whoever reads what it keeps."""
        self._take = take
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self._sock.bind(str(self.path))
        self._thread = Thread(target=self._read, name="mailbox", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.path.unlink(missing_ok=True)
        self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(2.0)
        self._sock.close()

    def env(self) -> dict[str, str]:
        """What the workers need in their environment."""
        return {"BENCH_FEED": str(self.path)}

    def wait(self, found: Callable[[], T | None], timeout_s: float) -> T | None:
        """Wait until something is found after a message; None if it was not in time."""
        deadline_s = time.monotonic() + timeout_s
        with self.news:
            while (result := found()) is None:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return None
                self.news.wait(left_s)
            return result

    def _read(self) -> None:
        while self.path.exists():
            try:
                text = self._sock.recv(MESSAGE_BYTES)
            except OSError:
                return
            if text:
                with self.news:
                    self._take(text.decode().split())
                    self.news.notify_all()

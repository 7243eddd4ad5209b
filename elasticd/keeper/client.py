"""A worker's client of its keeper: it asks, and maps the memory that comes back."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TypeVar
from weakref import WeakSet

from elasticd import errors
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.errors import ElasticdError, InvariantBroken, Unavailable
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.wire import message as ms
from elasticd.keeper.wire.line import KeeperConnection

__all__ = ["Client", "KeeperGone"]

A = TypeVar("A")

CONNECT_LIMIT_S = 30.0
"""How long to try to connect: a keeper that is being started imports a driver first."""


class KeeperGone(Unavailable):
    """The keeper itself does not answer; this says nothing of the storage."""


class Client:
    """One connection; any thread may ask, one at a time."""

    def __init__(self, name: str, *, limit_s: float = CONNECT_LIMIT_S) -> None:
        """Connect to the keeper of this name.

        Raises:
            KeeperGone: nobody listens under this name.
        """
        self._lock = Lock()
        deadline_s = time.monotonic() + limit_s
        pause_s = 0.01
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect("\0" + name)
                break
            except OSError as exc:
                sock.close()
                if time.monotonic() + pause_s > deadline_s:
                    raise KeeperGone(
                        f"The process that keeps this node's checkpoints does not answer "
                        f"({exc.strerror}): see agents/*.keeper.log in the run folder."
                    ) from exc
            time.sleep(pause_s)
            pause_s = min(0.5, pause_s * 2)
        self._line = KeeperConnection(sock, ms.ANSWERS)
        self._owed = 0
        """Answers to what was told, which nobody has waited for."""
        _CLIENTS.add(self)

    def ask(self, question: object, kind: type[A], *, timeout_s: float | None = None) -> A:
        """Return the answer, which is of this kind; close any file that comes with the answer.

        Raises: KeeperGone: the keeper is gone, or silent for too long. ElasticdError: the error
        that the keeper answered.
        """
        answer, memory = self._ask(question, kind, timeout_s)
        if memory is not None:
            os.close(memory)
        return answer

    def send(self, question: object, *, timeout_s: float | None = None) -> None:
        """Ask a question whose answer is Done, without waiting for the answer.

        If the answer is an error, the next question raises it instead of being asked.

        Raises: KeeperGone: the keeper is gone.
        """
        with self._lock, self._guarded(timeout_s):
            self._line.send(question)
            self._owed += 1

    def ask_memory(
        self, question: object, kind: type[A], *, timeout_s: float | None = None
    ) -> tuple[A, SharedMemory | None]:
        """Return the answer, and the memory whose file came with it."""
        answer, file = self._ask(question, kind, timeout_s)
        return answer, None if file is None else SharedMemory(file)

    def close(self) -> None:
        self._line.close()

    def _ask(
        self, question: object, kind: type[A], timeout_s: float | None
    ) -> tuple[A, int | None]:
        with self._lock, self._guarded(timeout_s):
            files: list[int] = []
            answer = self._read_pending()
            if answer is None:
                self._line.send(question)
                answer, files = self._line.receive()
        for extra in files[1:]:
            os.close(extra)
        file = files[0] if files else None
        if isinstance(answer, kind):
            return answer, file
        if file is not None:
            os.close(file)
        if isinstance(answer, ms.Failed):
            raise _error_of(answer)
        raise InvariantBroken(f"the keeper answered {type(answer).__name__}")

    def _read_pending(self) -> ms.Failed | None:
        """Read the pending answers; return the first error among them."""
        failed = None
        while self._owed:
            answer, files = self._line.receive()
            self._owed -= 1
            for each in files:
                os.close(each)
            if isinstance(answer, ms.Failed):
                failed = failed or answer
        return failed

    @contextmanager
    def _guarded(self, timeout_s: float | None) -> Iterator[None]:
        """Translate errors of the connection, which cannot be used after one."""
        try:
            self._line.socket.settimeout(timeout_s)
            yield
        except (OSError, EOFError, InvariantBroken) as exc:
            self._line.close()  # An answer that comes late must not be taken for another's.
            raise KeeperGone(
                f"The process that keeps this node's checkpoints has gone ({exc})."
            ) from exc

    def _forget(self) -> None:
        with suppress(OSError):
            os.close(self._line.socket.detach())


_CLIENTS: WeakSet[Client] = WeakSet()
"""All clients of this process: a fork must not share their connections."""


def _forget_all() -> None:
    for client in list(_CLIENTS):
        client._forget()


# Once for all: what is registered for a fork stays for ever, and would keep each client that was
# made for a new keeper.
os.register_at_fork(after_in_child=_forget_all)


def _error_of(failed: ms.Failed) -> ElasticdError:
    """Return the error that an answer describes."""
    kinds: dict[str, type[ElasticdError]] = {
        "Damaged": Damaged,
        "Missing": errors.NotFound,
        "Throttled": errors.Unavailable,
    }
    return kinds.get(failed.kind, getattr(errors, failed.kind, ElasticdError))(failed.why)

"""The port to a keeper, for code that asks about states."""

from typing import Protocol, TypeVar

from elasticd.errors import InvariantBroken
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.wire import message as ms

__all__ = ["KeeperMemoryPort", "KeeperPort", "NoKeeper"]

A = TypeVar("A")


class KeeperPort(Protocol):
    """The methods of a keeper's client by which a worker asks questions."""

    def ask(self, question: object, kind: type[A], *, timeout_s: float | None = None) -> A: ...


class KeeperMemoryPort(KeeperPort, Protocol):
    """The same, and the method by which a worker gets memory."""

    def ask_memory(
        self, question: object, kind: type[A], *, timeout_s: float | None = None
    ) -> tuple[A, SharedMemory | None]: ...


class NoKeeper:
    """The keeper of a job without checkpoints: nothing is held, nothing is stored."""

    _ANSWERS: tuple[object, ...] = (ms.Listed(held=()), ms.Found(number=0), ms.Opened(run=0))

    def ask(self, question: object, kind: type[A], *, timeout_s: float | None = None) -> A:
        """Return the answer of this kind."""
        return next(each for each in self._ANSWERS if isinstance(each, kind))

    def ask_memory(
        self, question: object, kind: type[A], *, timeout_s: float | None = None
    ) -> tuple[A, SharedMemory | None]:
        """Raise InvariantBroken: this keeper lists no snapshot, so nobody may ask for memory."""
        raise InvariantBroken("Memory was asked for where nothing is held.")

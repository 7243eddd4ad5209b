"""What is used of a keeper's client by code that asks about states."""

from typing import Protocol, TypeVar

from elasticd.keeper.memory.memfd import SharedMemory

__all__ = ["KeeperPort", "KeeperMemoryPort"]

A = TypeVar("A")


class KeeperPort(Protocol):
    """It answers questions."""

    def ask(self, question: object, kind: type[A], *, timeout_s: float | None = None) -> A: ...


class KeeperMemoryPort(KeeperPort, Protocol):
    """It also hands over memory."""

    def ask_memory(
        self, question: object, kind: type[A], *, timeout_s: float | None = None
    ) -> tuple[A, SharedMemory | None]: ...

"""The exchange of words between ranks over a generation's store while a state is restored.

It is no collective: a rank that is lost meanwhile ends the generation, and the ranks that wait here
for its word notice that between two looks.
"""

import json
from collections.abc import Callable
from typing import Any, Protocol

from elasticd.train.interrupt import Interrupted
from elasticd.train.tcp_store.key_wait import await_keys

__all__ = ["ExchangeGroup", "StoreExchange"]


class ExchangeGroup(Protocol):
    """The methods of a process group that the exchange needs."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def store(self) -> Any: ...


class StoreExchange:
    """One exchange; the keys of its words begin with `topic`."""

    def __init__(self, group: ExchangeGroup, topic: str, is_stale: Callable[[], bool]) -> None:
        self._group, self._topic, self._is_stale = group, topic, is_stale

    def exchange(self, what: str, word: str) -> list[str]:
        """Write a word, as each rank does; return those of all.

        Raises: Interrupted: the generation ended meanwhile. It is raised on the other waiting ranks
        too.
        """
        size, store = self._group.size, self._group.store
        if size == 1:
            return [word]
        self.send(f"{what}/{self._group.rank}", word)
        if self._group.rank == 0:
            keys = [self._key(f"{what}/{rank}") for rank in range(size)]
            self._wait(keys)
            self.send(what, json.dumps([each.decode() for each in store.multi_get(keys)]))
        return list(json.loads(self.receive(what)))

    def send(self, what: str, text: str) -> None:
        self._group.store.set(self._key(what), text)

    def receive(self, what: str) -> str:
        """Wait until some rank has written this word."""
        key = self._key(what)
        self._wait([key])
        text: bytes = self._group.store.get(key)
        return text.decode()

    def _wait(self, keys: list[str]) -> None:
        if not await_keys(self._group.store, keys, self._is_stale):
            raise Interrupted

    def _key(self, what: str) -> str:
        return f"{self._topic}/{what}"

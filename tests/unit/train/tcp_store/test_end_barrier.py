"""The end barrier: every rank of a generation is told the same, also where one leaves just then."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
import torch.distributed as dist

from elasticd.train.tcp_store.end_barrier import wait_for_all
from tests.fixtures.patience import patience_s

RANKS = 3


@pytest.fixture
def store() -> Any:
    return dist.HashStore()  # type: ignore[attr-defined]


def test_all_ranks_finish_together(store: Any) -> None:
    """Nobody before the last one has come."""
    with ThreadPoolExecutor(RANKS) as threads:
        early = [
            threads.submit(wait_for_all, store, RANKS, lambda: False) for _ in range(RANKS - 1)
        ]
        assert not any(each.done() for each in early)
        assert wait_for_all(store, RANKS, lambda: False)
        assert all(each.result(patience_s(30.0)) for each in early)


def test_rank_that_hears_of_another_world_when_all_have_finished_has_finished(store: Any) -> None:
    """Else it would wait in that world for those that went home."""
    is_next_known = Event()
    with ThreadPoolExecutor(1) as threads:
        # It does not look at the store again before the next world is known.
        late = threads.submit(wait_for_all, _Slow(store, is_next_known), 2, is_next_known.is_set)
        while not store.check(["elasticd/finished"]):
            pass
        assert wait_for_all(store, 2, lambda: False)
        is_next_known.set()
        assert late.result(patience_s(30.0))


def test_nobody_finishes_where_one_has_left(store: Any) -> None:
    """The last one to come is told so, and leaves with the others."""
    assert not wait_for_all(store, 2, lambda: True)
    is_next_known = Event()
    with ThreadPoolExecutor(1) as threads:
        last = threads.submit(wait_for_all, store, 2, is_next_known.is_set)
        is_next_known.set()
        assert not last.result(patience_s(30.0))


class _Slow:
    """A store whose answers to one rank come when the next world is known."""

    def __init__(self, store: Any, is_next_known: Event) -> None:
        self._store, self._is_next_known = store, is_next_known

    def add(self, key: str, amount: int) -> int:
        return int(self._store.add(key, amount))

    def check(self, keys: list[str]) -> bool:
        self._is_next_known.wait()
        return False

    def get(self, key: str) -> bytes:
        return bytes(self._store.get(key))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return bytes(self._store.compare_set(key, expected, desired))

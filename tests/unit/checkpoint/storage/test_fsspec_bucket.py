"""What is our own between fsspec and the port."""

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from elasticd.checkpoint.storage import fsspec_bucket as module
from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket

MEET_S = 0.2
SLOW_PAGE_S = 0.3
"""How long a service may take for 1000 names."""


def test_two_who_create_in_memory_do_not_both_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """fsspec looks whether there is one, and then writes; between the two the other looks too."""
    bucket = FsspecBucket(f"memory://{secrets.token_hex(8)}", {})
    both = threading.Barrier(2)
    real = MemoryFileSystem.exists

    def exists(self: Any, path: str, **more: Any) -> bool:
        found = bool(real(self, path, **more))
        try:
            both.wait(MEET_S)
        except threading.BrokenBarrierError:
            both.reset()  # The other is kept out, as it should be.
        return found

    monkeypatch.setattr(MemoryFileSystem, "exists", exists)
    with ThreadPoolExecutor(2) as pool:
        won = list(pool.map(lambda number: bucket.create("a", b"%d" % number), range(2)))
    assert sorted(won) == [False, True]
    assert bucket.read("a", 1) == b"%d" % won.index(True)


@pytest.mark.parametrize("count", [1000, 1_000_000])
def test_list_of_many_objects_has_the_time_that_its_pages_take(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver asks for all pages in one call: a sweep of 300,000 objects never came to its end."""
    limits_s: list[float] = []

    def sync(loop: object, call: object, *args: object, timeout: float, **more: object) -> Any:
        limits_s.append(timeout)
        return {}

    monkeypatch.setattr(module, "sync", sync)
    bucket = FsspecBucket("s3://bucket/folder", {"key": "k", "secret": "s"})
    assert bucket.list("steps", count, lambda name: True) == []
    assert limits_s[0] >= module.REQUEST_S + SLOW_PAGE_S * count / 1000

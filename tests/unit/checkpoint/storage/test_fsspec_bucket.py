"""What is our own between fsspec and the port."""

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket

MEET_S = 0.2


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

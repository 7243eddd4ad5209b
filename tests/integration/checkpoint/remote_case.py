"""What must hold at every service: one of many creates, and a request that hangs ends."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import pytest

from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket
from elasticd.errors import Unavailable
from tests.fixtures.patience import patience_s
from tests.fixtures.stopped import stopped

__all__ = ["check_hanging_request", "check_one_creates"]

WRITERS = 4
REQUEST_S = max(0.5, patience_s(0.25))


class Place(Protocol):
    """Where to, and with which options."""

    @property
    def url(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


def check_one_creates(place: Place, size: int) -> None:
    """Of several clients, each with connections of its own as nodes have."""
    clients = [FsspecBucket(place.url, place.options) for _ in range(WRITERS)]
    for client in clients:
        client.delete(["warm"])
    for turn in range(5):
        barrier = threading.Barrier(WRITERS)

        def write(number: int, turn: int = turn, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            return clients[number].create(f"log/{turn}", b"%d" % number * size)

        with ThreadPoolExecutor(WRITERS) as pool:
            won = list(pool.map(write, range(WRITERS)))
        assert won.count(True) == 1
        assert clients[0].read(f"log/{turn}", size) == b"%d" % won.index(True) * size


def check_hanging_request(place: Place, pid: int, call: Callable[[Bucket], object]) -> None:
    """The server takes the connection and never answers; afterwards all is as it was."""
    hasty = FsspecBucket(place.url, place.options, request_s=REQUEST_S)
    patient = FsspecBucket(place.url, place.options)
    assert patient.create("b", b"1")
    with stopped(pid):
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"in time|cannot be reached"):
                call(hasty)
    assert patient.read("b", 10) == b"1"

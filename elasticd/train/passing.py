"""Passes what single ranks have on to all: one load of each rank in turn, until none has more.

In turns, so that while one rank's bytes travel the others' keepers read on.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import torch
import torch.distributed as dist

from elasticd.checkpoint.manifest import Piece
from elasticd.errors import ElasticdError, Unavailable

__all__ = ["Load", "Meeting", "NotPassed", "broadcast_text", "pass_on"]

CHUNK_BYTES = 32 << 20
"""Of one broadcast: a group that is aborted gets out of it soon."""
END, FAILED = 0, -1
"""In place of the length of the words of a rank's next load."""

Load = tuple[memoryview, Sequence[Piece], Sequence[int]]
"""Bytes, the pieces in them, and where each of these begins."""


class NotPassed(Unavailable):
    """Another rank could not bring what it has; it says why itself."""


class Meeting(Protocol):
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...


def pass_on(group: Meeting, mine: Iterable[Load]) -> Iterator[Load]:
    """Yield the loads of all ranks, in the same order on each of them; collective.

    A load is good until the next is asked for. Each `mine` is asked for its next load only then.

    Raises:
        ElasticdError: what `mine` raised; NotPassed on the other ranks then.
    """
    if group.size == 1:
        yield from mine
        return
    own = iter(mine)
    left = list(range(group.size))
    while left:
        for rank in list(left):
            load = _broadcast(own if rank == group.rank else None, rank)
            if load is None:
                left.remove(rank)
            else:
                yield load


def broadcast_text(text: bytes, source: int) -> bytes:
    """Return on all ranks what `source` has; collective."""
    words = bytearray(_number(len(text), source))
    words[:] = text or words
    _bytes(memoryview(words), source)
    return bytes(words)


def _broadcast(own: Iterator[Load] | None, source: int) -> Load | None:
    load, error = None, None
    if own is not None:
        try:
            load = next(own, None)
        except ElasticdError as exc:
            error = exc
    text = b""
    if load is not None:
        rows = [[p.tensor, p.offsets, p.shape, s] for p, s in zip(*load[1:], strict=True)]
        text = json.dumps(rows).encode()
    length = _number(FAILED if error is not None else len(text), source)
    if error is not None:
        raise error
    if length == FAILED:
        raise NotPassed(f"Rank {source} could not bring its part.")
    if length == END:
        return None
    words = bytearray(length)
    words[:] = text or words
    _bytes(memoryview(words), source)
    size = _number(len(load[0]) if load is not None else 0, source)
    memory = load[0] if load is not None else memoryview(bytearray(size))
    _bytes(memory, source)
    if load is not None:
        return load
    rows = json.loads(bytes(words))
    pieces = tuple(Piece(t, tuple(offsets), tuple(shape), 0, 0) for t, offsets, shape, _ in rows)
    return memory, pieces, tuple(row[3] for row in rows)


def _number(value: int, source: int) -> int:
    one = torch.tensor([value], dtype=torch.int64)
    dist.broadcast(one, source)
    return int(one.item())


def _bytes(memory: memoryview, source: int) -> None:
    for start in range(0, len(memory), CHUNK_BYTES):
        part = memory[start : start + CHUNK_BYTES]
        dist.broadcast(torch.frombuffer(part, dtype=torch.uint8), source)

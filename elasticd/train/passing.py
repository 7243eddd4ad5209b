"""Passes what single ranks have on to all, one rank after the other."""

import json
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
import torch.distributed as dist

from elasticd.checkpoint.manifest import Piece

__all__ = ["Load", "pass_on"]

CHUNK_BYTES = 32 << 20
"""Of one broadcast: a group that is aborted gets out of it soon."""

Load = tuple[memoryview, tuple[Piece, ...], tuple[int, ...]]
"""Bytes, the pieces in them, and where each of these begins."""


class Meeting(Protocol):
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...


def pass_on(group: Meeting, mine: Sequence[Load]) -> Iterator[Load]:
    """Yield the loads of all ranks, in the order of the ranks, on each of them; collective."""
    if group.size == 1:
        yield from mine
        return
    for rank in range(group.size):
        count = _number(len(mine), rank)
        for index in range(count):
            load = mine[index] if rank == group.rank else None
            yield _broadcast(load, rank)


def _broadcast(load: Load | None, source: int) -> Load:
    text = b""
    if load is not None:
        _, pieces, starts = load
        rows = [[p.tensor, p.offsets, p.shape, s] for p, s in zip(pieces, starts, strict=True)]
        text = json.dumps(rows).encode()
    words = bytearray(_number(len(text), source))
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

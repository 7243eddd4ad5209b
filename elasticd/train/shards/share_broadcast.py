"""Sends the loads of single ranks to all ranks: one load of each rank in turn, until none is left.

The ranks take turns, so that while one rank's bytes travel the other ranks' keepers read on. A rank
sends the checksum after its load. All ranks compute checksums while the next bytes travel: TCP's
own checksum misses one damaged packet in 65,536.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol

import torch
import torch.distributed as dist

from elasticd.checkpoint.format.checksum import block_sum, number_sum
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.manifest import Piece
from elasticd.errors import ElasticdError, Unavailable

__all__ = [
    "Load",
    "BroadcastGroup",
    "BroadcastFailed",
    "broadcast_text",
    "check_all",
    "broadcast_loads",
]

CHUNK_BYTES = 32 << 20
"""The bytes of one broadcast: an aborted group is left soon."""
END, FAILED = 0, -1
"""Special values in place of the length of a rank's next load."""

Load = tuple[memoryview, Sequence[Piece], Sequence[int]]
"""Bytes, the pieces in them, and where each of these begins."""


class BroadcastFailed(Unavailable):
    """Another rank could not send its load, or did not get what was sent; the message says why."""


class _Garbled(Damaged):
    """The bytes that arrived are not those that were sent."""


class BroadcastGroup(Protocol):
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...


def broadcast_loads(group: BroadcastGroup, mine: Iterable[Load]) -> Iterator[Load]:
    """Yield the loads of all ranks, in the same order on each of them; collective.

    A load is valid until the caller takes the next one. Only then is each `mine` asked for its next
    load.

    Raises:
        ElasticdError: what `mine` raised, and Damaged where a load arrived damaged, which is not
            yielded; in both cases the other ranks raise BroadcastFailed.
    """
    if group.size == 1:
        yield from mine
        return
    own = iter(mine)
    left = list(range(group.size))
    why = ""
    with ThreadPoolExecutor(1, thread_name_prefix="passed") as pool:
        while left:
            for rank in list(left):
                try:
                    load = _broadcast(own if rank == group.rank else None, rank, pool)
                except _Garbled as exc:
                    why = str(exc)  # The others know nothing yet, and wait for what is here.
                    continue
                if load is None:
                    left.remove(rank)
                else:
                    yield load
    check_all(why)


def check_all(why: str) -> None:
    """Return if all ranks report no error; collective.

    Raises:
        Damaged: this rank itself reports `why`; BroadcastFailed if only other ranks report an
            error.
    """
    is_bad = torch.tensor(int(bool(why)), dtype=torch.int64)
    dist.all_reduce(is_bad, op=dist.ReduceOp.MAX)
    if why:
        raise Damaged(why)
    if int(is_bad):
        raise BroadcastFailed("Another rank did not get what it was sent.")


def broadcast_text(text: bytes, source: int) -> bytes:
    """Return on all ranks the text that `source` has; collective."""
    words = bytearray(_number(len(text), source))
    words[:] = text or words
    deque(_travelled(memoryview(words), source), maxlen=0)
    return bytes(words)


def _broadcast(own: Iterator[Load] | None, source: int, pool: Executor) -> Load | None:
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
        raise BroadcastFailed(f"Rank {source} could not bring its part.")
    if length == END:
        return None
    words = bytearray(length)
    words[:] = text or words
    deque(_travelled(memoryview(words), source), maxlen=0)
    size = _number(len(load[0]) if load is not None else 0, source)
    memory = load[0] if load is not None else memoryview(bytearray(size))
    sums = [pool.submit(block_sum, part) for part in _travelled(memory, source)]
    whole = words + "".join(each.result() for each in sums).encode()
    found = number_sum(memoryview(whole))
    if _number(found, source) != found:
        raise _Garbled(f"What rank {source} passed on came as something else: a checksum differs.")
    if load is not None:
        return load
    rows = json.loads(bytes(words))
    pieces = tuple(Piece(t, tuple(offsets), tuple(shape), 0, 0) for t, offsets, shape, _ in rows)
    return memory, pieces, tuple(row[3] for row in rows)


def _number(value: int, source: int) -> int:
    one = torch.tensor([value], dtype=torch.int64)
    dist.broadcast(one, source)
    return int(one.item())


def _travelled(memory: memoryview, source: int) -> Iterator[memoryview]:
    """Broadcast this memory, and yield each part once it was received or sent."""
    for start in range(0, len(memory), CHUNK_BYTES):
        part = memory[start : start + CHUNK_BYTES]
        dist.broadcast(torch.frombuffer(part, dtype=torch.uint8), source)
        yield part

"""Copies many tensors within the host's memory, by the caller and a few threads beside it.

torch divides each single copy among its threads, and all of them wait for the slowest before the
next copy begins: hundreds of times in a state of hundreds of tensors, and each time for a whole
slice of the processor where anything else runs. Here each thread takes the next tensors as soon as
it is done with its own, and there is one wait at the end. A tensor of up to 64 MiB is copied by one
call, since the C library writes past the caches where a copy is large, which is half as fast again.
"""

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import torch
from torch.autograd.graph import increment_version

from elasticd.tensors.byte_row import is_in_a_row

__all__ = ["MemoryCopy", "Pair", "copy_threads", "in_threads"]

THREADS = 4
"""How many threads copy: they take what memory gives, and each rank of a node has as many."""
BATCH_BYTES = 4 << 20
"""Small tensors are taken by a thread until they have so many bytes."""

Pair = tuple[torch.Tensor, torch.Tensor]
"""From where, and to where."""
_Move = tuple[int, int, int]
"""The address to write to, the one to read from, and how many bytes."""


def copy_threads() -> int:
    """Return how many threads copy at a time, the caller's among them."""
    return min(THREADS, len(os.sched_getaffinity(0)))


def in_threads(jobs: Iterable[Callable[[], object]]) -> None:
    """Do all these, the caller among the threads; no job goes on when this returns.

    Raises: what a job raised; those that nobody had begun by then are not done.
    """
    left = deque(jobs)

    def work() -> None:
        while True:
            try:
                job = left.popleft()
            except IndexError:
                return
            try:
                job()
            except BaseException:
                left.clear()
                raise

    others = min(copy_threads(), len(left)) - 1
    if others < 1:
        work()
        return
    with ThreadPoolExecutor(others, thread_name_prefix="elasticd-copy") as pool:
        found = [pool.submit(work) for _ in range(others)]
        work()
    for each in found:
        each.result()


class MemoryCopy:
    """The copies of some tensors, worked out once; `run` does them as often as is wanted.

    The tensors must stay where they are in memory meanwhile; they are held.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        """The two tensors of a pair have one shape and type."""
        plain: list[Pair] = []
        others: list[Pair] = []
        for pair in pairs:
            (plain if _is_plain(pair) else others).append(pair)
        moves = [(to.data_ptr(), source.data_ptr(), to.nbytes) for source, to in plain if to.nbytes]
        moves.sort()
        if any(to + size > after for (to, _, size), (after, _, _) in pairwise(moves)):
            plain, others, moves = [], list(pairs), []  # The last of the given order has to win.
        self._plain, self._others = plain, others
        self._batches = _batched(moves)

    def run(self) -> None:
        """Copy; nothing is being copied any more when this returns."""
        if self._others:
            with torch.no_grad():
                torch._foreach_copy_(
                    [to for _, to in self._others], [source for source, _ in self._others]
                )
        in_threads(_mover(batch) for batch in self._batches)
        # As torch does it: whoever watches a tensor's version sees that it was written.
        increment_version([to for _, to in self._plain if not to.is_inference()])


def _is_plain(pair: Pair) -> bool:
    source, to = pair
    return source.dtype == to.dtype and is_in_a_row(source) and is_in_a_row(to)


def _batched(moves: Iterable[_Move]) -> list[list[_Move]]:
    """Put small ones together; the largest come first, so that all threads end at one time."""
    found: list[list[_Move]] = []
    size = BATCH_BYTES
    for move in sorted(moves, key=lambda each: each[2], reverse=True):
        if size >= BATCH_BYTES:
            found.append([])
            size = 0
        found[-1].append(move)
        size += move[2]
    return found


def _mover(batch: Sequence[_Move]) -> Callable[[], object]:
    def move() -> None:
        for to, source, size in batch:
            ctypes.memmove(to, source, size)  # Other threads run meanwhile.

    return move

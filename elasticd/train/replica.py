"""Compares the replicas every so many commits, and names the rank that has drifted off.

Bits that flipped in memory, a kernel that is not deterministic on one card, a script that changes
parameters on one rank: from then on all ranks train on a mean of different models, and nothing
fails. What is compared is what optimizers own, and nothing else: the statistics of BatchNorm, say,
may differ between ranks.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

import torch

from elasticd.errors import ElasticdError
from elasticd.train.await_keys import await_keys
from elasticd.train.interrupt import Interrupted

__all__ = ["ReplicaDiffers", "Replicas", "odd_ones_out", "owned_tensors"]


class ReplicaDiffers(ElasticdError):
    """This rank's parameters are not those of the others: its process must not go on."""


class Board(Protocol):
    """What is used of a generation's store."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...
    def delete_key(self, key: str, /) -> bool: ...


class Replicas:
    """The comparison of one generation; raises on the ranks that differ, and only there."""

    def __init__(
        self,
        board: Board,
        *,
        rank: int,
        size: int,
        every: int,
        fingerprint: Callable[[], str],
        is_stale: Callable[[], bool],
    ) -> None:
        self._board = board
        self._rank = rank
        self._size = size
        self._every = every
        self._fingerprint = fingerprint
        self._is_stale = is_stale
        self._compared = 0

    def compare(self, step: int) -> None:
        """Compare, if this step's turn has come; the end of an epoch is a commit of the same step.

        Raises:
            ReplicaDiffers: this rank is one of the few that differ from the many.
            Interrupted: the generation ended meanwhile.
        """
        if step % self._every or step == self._compared:
            return
        self._compared = step
        mine = f"elasticd/replica/{step}/{self._rank}"
        verdict = f"elasticd/replica/{step}/verdict"
        self._board.set(mine, self._fingerprint())
        if self._rank == 0:
            keys = [f"elasticd/replica/{step}/{rank}" for rank in range(self._size)]
            self._wait(keys)
            prints = [self._board.get(key).decode() for key in keys]
            self._board.set(verdict, json.dumps(odd_ones_out(prints)))
        self._wait([verdict])
        odd = json.loads(self._board.get(verdict))
        self._board.delete_key(mine)
        if self._rank in odd:
            ranks = ", ".join(f"rank {rank}" for rank in odd)
            raise ReplicaDiffers(
                f"At step {step} the parameters of {ranks} differ from those of the other "
                f"{self._size - len(odd)} of {self._size} ranks, which should be equal: look for "
                "code that changes parameters on one rank only, for operations that are not "
                "deterministic, or for faulty memory in that machine."
            )

    def _wait(self, keys: list[str]) -> None:
        if not await_keys(self._board, keys, self._is_stale):
            raise Interrupted


def odd_ones_out(fingerprints: Iterable[str]) -> list[int]:
    """Return the ranks that do not have the most frequent one; in a tie that of rank 0 wins."""
    prints = list(fingerprints)
    counts = Counter(prints)
    most = max(prints, key=lambda one: (counts[one], one == prints[0]))
    return [rank for rank, one in enumerate(prints) if one != most]


def owned_tensors(optimizers: Iterable[torch.optim.Optimizer]) -> tuple[torch.Tensor, ...]:
    """Return the parameters of these optimizers and what they keep for each, in a fixed order."""
    found: list[torch.Tensor] = []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                found.append(parameter.detach())
                kept = optimizer.state.get(parameter, {})
                found += [
                    value for _, value in sorted(kept.items()) if isinstance(value, torch.Tensor)
                ]
    return tuple(found)

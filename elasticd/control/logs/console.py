"""Which workers' output belongs on the console: torchrun's rules, over a whole job. Pure.

torchrun shows all workers of its own node. A job here spans nodes, so by default only the output of
rank 0 is shown, without a prefix. Every stream of every rank is in the run folder in any case.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from elasticd.errors import CallError

__all__ = [
    "Choice",
    "ConsoleChoice",
    "ERR",
    "OUT",
    "RankChoice",
    "TIMES",
    "parse_filter",
    "parse_streams",
]

OUT = 1
ERR = 2
TIMES = 4
"""The third file beside the two streams: the agent's notes on when each part was written."""
ALL = OUT | ERR
EVERY_RANK = -1


class Choice(Protocol):
    """The part of a job's output that is shown."""

    def streams(self, rank: int, local_rank: int) -> int:
        """Return the streams of this rank that are shown: OUT, ERR, both or 0."""

    @property
    def has_prefix(self) -> bool:
        """Return whether lines need `[rankN]:` before them, because several ranks are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankChoice:
    """Both streams of some ranks, counted over the whole job."""

    ranks: frozenset[int]

    def streams(self, rank: int, local_rank: int) -> int:
        return ALL if rank in self.ranks else 0

    @property
    def has_prefix(self) -> bool:
        return len(self.ranks) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleChoice:
    """The choice by torchrun's three flags."""

    redirects: Mapping[int, int] = field(default_factory=dict)
    """The streams by local rank (EVERY_RANK for all) that go to files only."""
    tee: Mapping[int, int] = field(default_factory=dict)
    """The streams by local rank that are shown in any case."""
    local_ranks: frozenset[int] | None = None
    """The only local ranks that are shown; None for all."""

    def streams(self, rank: int, local_rank: int) -> int:
        if self.local_ranks is not None and local_rank not in self.local_ranks:
            return 0
        base = ALL if rank == 0 or self.local_ranks is not None else 0
        return (base & ~_of(self.redirects, local_rank)) | _of(self.tee, local_rank)

    @property
    def has_prefix(self) -> bool:
        return self.local_ranks is not None or any(self.tee.values())


def parse_streams(flag: str, text: str) -> Mapping[int, int]:
    """Read `3` or `0:1,1:2`, the form of torchrun's --redirects and --tee.

    Raises: CallError: the text has another form.
    """
    if re.fullmatch(r"[0-3]", text):
        return {EVERY_RANK: int(text)}
    if re.fullmatch(r"\d+:[0-3](,\d+:[0-3])*", text):
        pairs = (pair.split(":") for pair in text.split(","))
        return {int(rank): int(streams) for rank, streams in pairs}
    raise CallError(
        f"{flag} {text!r} is not 0 (none), 1 (stdout), 2 (stderr), 3 (both), nor a list of "
        "LOCAL_RANK:STREAMS as in 0:3,1:2."
    )


def parse_filter(text: str) -> frozenset[int]:
    """Read a list of local ranks such as `0,1,2`.

    Raises: CallError: the text has another form.
    """
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise CallError(f"--local-ranks-filter {text!r} is not a list of numbers as in 0,1,2.")
    return frozenset(int(part) for part in text.split(","))


def _of(streams: Mapping[int, int], local_rank: int) -> int:
    return streams.get(local_rank, streams.get(EVERY_RANK, 0))

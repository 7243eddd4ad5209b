"""Where a job's checkpoints go, how often, and which stay: what `--checkpoint` and its related
flags say.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.errors import CallError

__all__ = [
    "CheckpointSpec",
    "CopyMode",
    "Every",
    "read_bandwidth",
    "read_every",
    "read_upload_every",
]

CopyMode = str
"""auto, blocking or overlapped."""

_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BANDWIDTH = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([KMGT]?)(i?)B/s")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
LEAST_BANDWIDTH = 1_000_000
"""The least bandwidth, in bytes per second: a block of 4 MiB must arrive within the 20 s for which
the other keeper waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """How often a snapshot is due: by seconds or by steps; the other is 0."""

    seconds: float = 0.0
    steps: int = 0

    def __str__(self) -> str:
        return f"{self.steps}steps" if self.steps else f"{self.seconds:g}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSpec:
    """The checkpoint part of a `JobSpec`.

    It has no secrets; those are in the nodes' environment.
    """

    url: str
    owner: str
    """The owner of the checkpoints over all runs: the job's name if one was given, otherwise the
    script's."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Options for the file system (`--storage-options`); secrets are named, not given."""
    every: Every = field(default_factory=lambda: Every(seconds=60.0))
    upload_every: Every | None = None
    """How often one of the snapshots of each step is uploaded; None: every snapshot is."""
    mirror_bytes_per_s: int = 0
    """How many bytes of snapshots a node sends to the next one in a second at most; 0: any."""
    keep_last: int = 3
    """How many of the newest to keep; 0 for all."""
    keep_every_steps: int = 0
    copy: CopyMode = "auto"
    parallel: int = 8
    """How many requests each node makes at a time."""
    timeout_s: float = 120.0
    """How long a request that fails is tried again before its checkpoint is given up."""


def read_every(flag: str, text: str | None) -> Every:
    """Read `60s`, `5m`, `1h` or `100steps`; a number alone is seconds.

    Raises: CallError: the text is none of these.
    """
    if text is None:
        return Every(seconds=60.0)
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(number) :].strip() or "s"
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if unit in ("step", "steps") and value >= 1 and value.is_integer():
        return Every(steps=int(value))
    seconds = value * _UNITS_S.get(unit, 0.0)
    if 0 < seconds < float("inf"):
        return Every(seconds=seconds)
    raise CallError(
        f"{flag} {text} is neither a time (60s, 5m, 1h) nor a number of steps (100steps)."
    )


def read_upload_every(flag: str, text: str | None, every: Every) -> Every | None:
    """Read how often a snapshot is uploaded where one is taken of each step; None elsewhere.

    Raises: CallError: the text is no time, or snapshots are not taken of each step.
    """
    if every.steps != 1:
        if text is None:
            return None
        raise CallError(
            f"{flag} {text} says which of the snapshots of each step are uploaded, and they are "
            f"taken every {every}: leave it out, or take one of each step (1steps)."
        )
    found = read_every(flag, text)
    if found.steps:
        raise CallError(f"{flag} {text} is no time: give 60s, 5m or 1h.")
    return found


def read_bandwidth(flag: str, text: str | None) -> int:
    """Read `200MB/s` or `1GiB/s` in bytes per second; 0 if it was not given.

    Raises: CallError: the text is something else, or the rate is too small.
    """
    if text is None:
        return 0
    found = _BANDWIDTH.fullmatch(text.strip())
    if found is None or (found[3] and not found[2]):
        raise CallError(
            f"{flag} {text} is no bandwidth: write bytes per second, as in 200MB/s or 1GiB/s."
        )
    base = 1024.0 if found[3] else 1000.0
    rate = round(float(found[1]) * base ** _POWERS[found[2]])
    if rate < LEAST_BANDWIDTH:
        raise CallError(f"{flag} {text} is below 1MB/s, the least that makes sense.")
    return rate

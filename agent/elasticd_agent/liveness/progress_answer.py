"""The agent's answer to the question how far a job's ranks on this node are.

The owner's thread reports the ranks' heartbeats. This module looks up how long ago each rank last
wrote anything, on the thread of the request, because the run folder may be on a file system that
hangs.
"""

import json
import os
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from elasticd.records.account.progress import RankProgress
from elasticd.records.codec import to_plain

__all__ = ["RankState", "free_bytes", "progress_answer"]

_DURABLE = "elasticd_checkpoint_durable_timestamp_seconds"
_HELD_UP = "elasticd_checkpoint_snapshots_held_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """The facts about a rank, and the files to which its output goes."""

    progress: RankProgress
    outputs: tuple[Path, ...]
    keeper_metrics: Path | None = None
    """Where this node's keeper of checkpoints writes its metrics; None: the job saves nothing."""


def progress_answer(ranks: Collection[RankState]) -> bytes:
    """Return the progress of these ranks as JSON, in the order of the ranks."""
    told = {path: _keeper_metrics(path) for path in {rank.keeper_metrics for rank in ranks}}
    found = [
        replace(
            rank.progress,
            output_ago_s=_newest_age_s(rank.outputs),
            output_free_bytes=free_bytes(rank.outputs[0].parent) if rank.outputs else None,
            checkpoint_ago_s=_checkpoint_age_s(told[rank.keeper_metrics]),
            is_held_up=told[rank.keeper_metrics].get(_HELD_UP, 0.0) > 0.0,
        )
        for rank in ranks
    ]
    return json.dumps(to_plain(sorted(found, key=lambda one: one.rank))).encode()


def free_bytes(folder: Path) -> int | None:
    """Return how many bytes a user who is not root can still write there; None: not known."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None  # No worker has written there yet, or the folder was removed.
    return found.f_bavail * found.f_frsize


def _newest_age_s(paths: Iterable[Path]) -> float | None:
    """Return the age of the newest output.

    Both times are of the file system's clock or close to it: this is for people.
    """
    times = []
    for path in paths:
        with suppress(OSError):
            stat = path.stat()
            if stat.st_size:
                times.append(stat.st_mtime)
    return max(0.0, time.time() - max(times)) if times else None


def _checkpoint_age_s(told: Mapping[str, float]) -> float | None:
    """Return the age of the last checkpoint.

    Both times are of this machine's clock; the file lags by some seconds.
    """
    at_s = told.get(_DURABLE, 0.0)
    return max(0.0, time.time() - at_s) if at_s > 0.0 else None


def _keeper_metrics(path: Path | None) -> Mapping[str, float]:
    """Return the keeper's last values of these two metrics; none where it wrote none."""
    found: dict[str, float] = {}
    with suppress(OSError, ValueError):
        for line in path.read_text(encoding="utf-8").splitlines() if path is not None else ():
            name = line.partition("{")[0]
            if name in (_DURABLE, _HELD_UP):
                found[name] = float(line.rpartition(" ")[2])
    return found

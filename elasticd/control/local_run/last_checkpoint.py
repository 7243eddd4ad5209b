"""Waits for the last checkpoint of a job at the end of `elasticd run`, and reports the progress.

In restart mode `elasticd.checkpoint.save` returns when the state is in a keeper's memory. A keeper
outlives its agent until it has uploaded its state. In a local run the keeper is a descendant of
this process, so it would be killed at the end of the run without this wait.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from elasticd.control.local_run.launch import keepers

__all__ = ["CheckpointAwaited", "CheckpointLost", "wait_for_keepers"]

LIMIT_S = 630.0
"""The limit of the wait: a keeper gives up by itself after 600 s."""
SAY_AFTER_S, SAY_EVERY_S = 1.0, 5.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAwaited:
    """The job is over, and the last checkpoint is still on its way to storage."""

    done_bytes: int
    total_bytes: int
    """The size of the whole checkpoint in bytes; 0 if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLost:
    """The last checkpoint did not become durable."""

    is_given_up: bool
    """True if a person ended the wait."""


def wait_for_keepers(
    how_far: Callable[[str], tuple[int, int]],
    tell: Callable[[CheckpointAwaited | CheckpointLost], None],
    is_given_up: Callable[[], bool],
    *,
    now_s: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait until the keepers below this process have ended; return False if one lost its state.

    `how_far` asks a keeper, by the name of its socket, for its uploaded bytes and for all bytes.
    """
    begun_s = now_s()
    say_s = begun_s + SAY_AFTER_S
    known = keepers()
    codes: dict[int, int] = {}
    while known.keys() - codes.keys():
        codes |= _ended(known.keys() - codes.keys())
        left = {pid: name for pid, name in known.items() if pid not in codes}
        if left and (is_given_up() or now_s() > begun_s + LIMIT_S):
            tell(CheckpointLost(is_given_up=is_given_up()))
            return False
        if left and now_s() >= say_s:
            say_s = now_s() + SAY_EVERY_S
            counts = [how_far(name) for name in left.values()]
            done, total = (sum(each) for each in zip(*counts, strict=True))
            tell(CheckpointAwaited(done_bytes=done, total_bytes=total))
        time.sleep(POLL_S)
    if any(codes.values()):
        tell(CheckpointLost(is_given_up=False))
        return False
    return True


def _ended(pids: set[int]) -> dict[int, int]:
    """Reap the processes that have ended, and return their exit codes by process number.

    Their agents are gone, so these processes are our children.
    """
    codes = {}
    for pid in pids:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # Its agent still lives, and has reaped it.
            codes[pid] = 0
            continue
        if found:
            codes[pid] = os.waitstatus_to_exitcode(status)
    return codes

"""Waits for the last event files of a job at the end of `elasticd run`, for some seconds.

A writer of event files outlives its agent until it has written all events that it got. In a local
run the writer is a descendant of this process, so it would be killed at the end of the run without
this wait.
"""

import os
import time
from collections.abc import Callable, Collection

from elasticd.control.local_run.launch import event_writers

__all__ = ["wait_for_event_writers"]

LIMIT_S = 25.0
"""The limit of the wait: a writer gives up by itself after 20 s."""
SAY_AFTER_S = 1.0
POLL_S = 0.02


def wait_for_event_writers(
    say: Callable[[str], object],
    is_given_up: Callable[[], bool],
    *,
    known: Collection[int] = (),
    now_s: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait until the event writers below this process have ended; return False if steps were not
    written.

    `say` gets a sentence if the wait takes long. `known` are the writers that lived at the job's
    end: of a writer that has ended since, and is not reaped, only the process number is left.
    """
    begun_s = now_s()
    say_s, until_s = begun_s + SAY_AFTER_S, begun_s + LIMIT_S
    left = {*known, *event_writers()}
    is_written = True
    while left:
        for pid in tuple(left):
            try:
                found, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # Its agent still lives, and has reaped it.
                left.discard(pid)
                continue
            if found:
                left.discard(pid)
                is_written &= os.waitstatus_to_exitcode(status) == 0
        if left and (is_given_up() or now_s() > until_s):
            return False
        if left and now_s() >= say_s:
            say_s = until_s
            say(f"waiting for the last event file, {LIMIT_S:g} s at most; Ctrl-C twice ends it")
        if left:
            time.sleep(POLL_S)
    return is_written

"""What a pool that was killed leaves behind comes to the agent, and is ended here.

The pool is the guardian of its workers' subtrees. When it is killed itself, its workers die with
it (the kernel's parent-death signal), but what they had started in sessions of their own would be
nobody's; as the subreaper above the pool the agent inherits and kills it.
"""

import os
import time
from collections.abc import Set

from elasticd.telemetry.log import get_logger
from elasticd_agent.pool.prctl import adopt_orphans
from elasticd_agent.pool.process_table import children_of
from elasticd_agent.pool.subtree import Subtree

__all__ = ["adopt_orphans", "end_orphans"]

_ROUNDS = 20
_PAUSE_S = 0.01

log = get_logger()


def end_orphans(pools: Set[int]) -> None:
    """Kill and reap every child of this process that is not one of these living pools.

    Gives up after 0.2 s on a process that no signal ends; it then stays ours and is tried again
    at the next pool's end.
    """
    subtree = Subtree()
    for _ in range(_ROUNDS):
        orphans = [pid for pid in children_of(os.getpid()) if pid not in pools]
        if not orphans:
            return
        for pid in orphans:
            subtree.kill(pid)
            _reap(pid)
        time.sleep(_PAUSE_S)
    log.warning("orphans.left", count=len(orphans))


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return

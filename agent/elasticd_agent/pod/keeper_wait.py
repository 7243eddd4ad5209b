"""Waits for the uploads of keepers before an agent exits whose container ends with it.

A keeper goes on saving for up to a minute after its agent, but not after its container: so an agent
that is process 1, or was told to wait, waits for its keepers, once its node has left the world and
no other node waits for it.
"""

import os
import time

from elasticd.telemetry.log import get_logger
from elasticd_agent.pod.orphans import Children

__all__ = ["KEEPER_WAIT_S", "default_keeper_wait_s", "wait_for_keepers"]

KEEPER_WAIT_S = 65.0
"""A keeper lingers for at most 60 s, and ends within a few more."""
PAUSE_S = 0.05

log = get_logger()


def default_keeper_wait_s() -> float:
    """Say how long to wait for keepers where nobody said: as process 1 for all that they take."""
    return KEEPER_WAIT_S if os.getpid() == 1 else 0.0


def wait_for_keepers(children: Children, limit_s: float) -> None:
    """Wait until all that this agent started has ended, for at most `limit_s` seconds."""
    left = children.pids
    if not left or limit_s <= 0:
        return
    log.info("keepers.awaited", processes=len(left), limit_seconds=limit_s)
    until_s = time.monotonic() + limit_s
    while (left := children.pids) and time.monotonic() < until_s:
        time.sleep(PAUSE_S)
    if left:
        log.warning("keepers.left", processes=len(left), waited_seconds=limit_s)

"""The end of an agent whose container ends with it.

A keeper goes on saving for up to a minute after its agent, but not after its container: so an agent
that is process 1, or was told so, waits for its keepers, once its node is out of the world and
nobody waits for it any more. And what the kernel does for any other process it does not do for
process 1: a signal without a handler is ignored, so a handler has to be there from the first moment
on, not only when the agent serves.
"""

import os
import signal
import time
from types import FrameType
from typing import NoReturn

from elasticd.telemetry.log import get_logger
from elasticd_agent.orphans import Children

__all__ = ["KEEPER_WAIT_S", "default_keeper_wait_s", "end_on_signals", "wait_for_keepers"]

KEEPER_WAIT_S = 65.0
"""A keeper lingers for at most 60 s, and ends within a few more."""
PAUSE_S = 0.05

log = get_logger()


def default_keeper_wait_s() -> float:
    """Say how long to wait for keepers where nobody said: as process 1 for all that they take."""
    return KEEPER_WAIT_S if os.getpid() == 1 else 0.0


def end_on_signals() -> None:
    """As process 1, end at SIGTERM and SIGINT from now on, as any other process does."""
    if os.getpid() == 1:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end)


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


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)

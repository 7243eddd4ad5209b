"""The agent's clock: monotonic, and running on while the machine is suspended.

CLOCK_MONOTONIC stops in a suspend, CLOCK_BOOTTIME does not: after one, a lease must count as over.
"""

import time

__all__ = ["now_s"]


def now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)

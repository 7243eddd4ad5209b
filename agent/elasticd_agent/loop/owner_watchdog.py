"""Lets the node's lease expire if the owner's thread hangs.

Keepalives have a thread of their own, so an owner that hangs (a disk that does not answer, a bug)
would look healthy for ever: a member that handles no event, a proposer that never proposes. If the
owner works at one item for longer than any item takes, the lease is not renewed, and the other
nodes go on without this one. If the owner goes on before the lease has run out, nothing has
happened.
"""

from collections.abc import Callable

from elasticd.telemetry.log import get_logger

__all__ = ["LIMIT_S", "OwnerWatchdog"]

LIMIT_S = 30.0
"""Three times what the slowest turn takes: one in which a pool does not end."""

log = get_logger()


class OwnerWatchdog:
    """`busy_s` tells for how long the owner has been at one item. Called by the store's thread."""

    def __init__(self, busy_s: Callable[[], float]) -> None:
        self._busy_s = busy_s
        self._is_said = False

    def may_renew(self) -> bool:
        """Return True unless the owner stands still; that is said once, as is that it goes on."""
        busy_s = self._busy_s()
        is_standing = busy_s > LIMIT_S
        if is_standing and not self._is_said:
            log.error("agent.stands_still", seconds=round(busy_s), hint="does a disk hang?")
        elif self._is_said and not is_standing:
            log.warning("agent.goes_on")
        self._is_said = is_standing
        return not is_standing

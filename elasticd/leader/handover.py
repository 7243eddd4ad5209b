"""When a lead is offered and taken over: its holder cannot do the work, and another process can.

The leader puts a record of its offer beside the election's key, under the same lease. A process
that stands by, and that can do the work, puts the election's key anew in one transaction, which
holds only while both keys are as it read them. So the fence of a term is what it always is, and
where nobody can do the work, everything stays as it is.

Rejected: to resign after some time. Where nobody reaches the API server, the lead would go round,
and each new leader would begin without what the one before had observed.
"""

import time
from collections.abc import Callable

__all__ = ["AGAIN_S", "READ_S", "UNABLE_S", "Handover"]

UNABLE_S = 60.0
"""The lead is offered by a leader that could not do its work for so long."""
READ_S = 10.0
"""How often a process that stands by looks for an offer."""
AGAIN_S = 600.0
"""A process whose lead was taken over takes none over for so long: else the lead would go back and
forth between two that cannot do the work, and can do what `can_lead` tries."""


class Handover:
    """One process's part in handing leads over. One thread uses it, except for `lost`."""

    def __init__(
        self,
        key: str,
        *,
        is_unable: Callable[[], bool],
        can_lead: Callable[[], bool],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`key` is that of the offer. `is_unable` is asked while this process leads. `can_lead` is
        asked while another one offers its lead, and may take some seconds.
        """
        self.key = key
        self._is_unable, self._can_lead, self._now_s = is_unable, can_lead, now_s
        self._unable_since_s: float | None = None
        self._read_s = self._lost_s = float("-inf")

    def began(self) -> None:
        """Note that this process was elected."""
        self._unable_since_s = None

    def lost(self) -> None:
        """Note that another process took this one's lead over; any thread may call this."""
        self._lost_s = self._now_s()

    def is_due(self) -> bool:
        """Return whether this process, which leads, offers its lead."""
        now_s = self._now_s()
        if not self._is_unable():
            self._unable_since_s = None
        elif self._unable_since_s is None:
            self._unable_since_s = now_s
        return self._unable_since_s is not None and now_s >= self._unable_since_s + UNABLE_S

    def may_look(self) -> bool:
        """Return whether it is time for this process, which stands by, to look for an offer."""
        now_s = self._now_s()
        if now_s < max(self._read_s + READ_S, self._lost_s + AGAIN_S):
            return False
        self._read_s = now_s
        return True

    def can_lead(self) -> bool:
        """Return whether this process can do the work."""
        return self._can_lead()

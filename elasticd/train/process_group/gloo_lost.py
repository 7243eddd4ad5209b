"""Finds collectives that Gloo has lost, by looking again and again at what is in flight.

Once all connections of an aborted group are closed, every collective ends by itself within
microseconds, but for those that Gloo has lost (`gloo_group.py`). A collective that is wrongly taken
for lost may end the process: its future has a result then, and Gloo would set a second one. So a
collective counts as lost only if it was there at many looks over some time, and if a thread of
Gloo's is in it: one that waits for its turn begins, and ends, when a thread comes free.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass

from elasticd.train.process_group import gloo_group
from elasticd.train.process_group.gloo_work import Work
from elasticd.train.tcp_store import open_sockets

__all__ = ["LostCollectives", "keep_busy_groups"]

LOST_S, LOOKS = 0.5, 8
"""How long and how often to look with all connections closed; before a rank counts as stuck it has
more than a second left. The looks are counted as well, since a machine may stand still."""


@dataclass(slots=True)
class _Seen:
    first_s: float
    looks: int = 0


class LostCollectives:
    """The lost collectives of one aborted generation, for the thread that guards it."""

    def __init__(self, links: Collection[int]) -> None:
        """Take the inodes of the group's connections; later ones are elasticd's own attempts."""
        self._links = frozenset(links)
        self._seen: dict[Work, _Seen] = {}

    def give_up_lost(self) -> None:
        """Give up the collectives that are lost by now."""
        if any(
            link.inode in self._links for loop in open_sockets.gloo_loops(()) for link in loop.links
        ):
            return  # Gloo tells those who wait when it closes a connection.
        now_s = time.monotonic()
        for group in gloo_group.busy_groups():
            works = group.under_way()
            for work in works:
                self._seen.setdefault(work, _Seen(now_s)).looks += 1
            for work in self._lost(works, group.threads, now_s):
                group.keep()
                work.give_up(may_end_future=group.may_end_futures)

    def _lost(self, works: list[Work], threads: int, now_s: float) -> list[Work]:
        taken_up = [work for work in works[:threads] if self._is_lost(work, now_s)]
        # With no thread left, nobody begins what waits. One that hides its result may be over, and
        # nobody has waited for it: it tells nothing of its thread.
        held = sum(not work.hides_result for work in taken_up)
        return works if held == threads else taken_up

    def _is_lost(self, work: Work, now_s: float) -> bool:
        seen = self._seen[work]
        return seen.looks >= LOOKS and now_s >= seen.first_s + LOST_S and not work.has_result()


def keep_busy_groups(limit_s: float) -> None:
    """Keep groups whose collectives do not end within the limit; called before groups
    are dropped.
    """
    for group in gloo_group.still_busy(limit_s=limit_s):
        group.keep()
        for work in group.under_way():
            work.give_up(may_end_future=False)

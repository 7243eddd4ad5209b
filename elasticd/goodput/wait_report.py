"""When a node tells the others how long its steps wait: seldom, and at once when it matters. Pure.

What is told stands in etcd until something else is, so it must be nearly true all the time, for a
handful of writes. A node tells its first waits of each generation, and then what differs notably
for some steps. It has a store of writes that fills slowly; with the last one it says that its waits
change too often to be told, so that nobody compares a value that stood still with one that moves.
"""

from elasticd.records.account.late import NodeWait

__all__ = ["FIRST_STEPS", "WaitReport"]

FIRST_STEPS = 25
"""Steps before the first word of a generation: half of those of a whole median."""
NOTABLE_SHARE = 0.03
"""Of a step: a third of what makes a node late."""
SMALL_SHARE, SMALL_AFTER_S = 0.01, 60.0
"""What was told long ago is made more exact."""
SPREAD_SHARE, SPREAD_WRITES = 0.05, 3.0
"""Of a step: that much in the spread is told as well, where writes are left for what matters more.
It is still too wide when a change of the median is told."""
SETTLE_STEPS = 18
"""A change is told so many steps after it was seen: nearly all that the median is of comes from
after it then, and one word is mostly enough."""
WRITES, WRITE_EVERY_S, WRITE_EVERY_S_PER_NODE = 6, 10.0, 0.1
"""In store at most, and how often one is added: ten a second of a job of any size."""


class WaitReport:
    """Of one node in one job; times are one agent's clock."""

    def __init__(self) -> None:
        self._told: NodeWait | None = None
        self._told_s = 0.0
        self._writes, self._filled_s = float(WRITES), 0.0
        self._turned_s: float | None = None
        """Since when they differ from what was told."""
        self._anchor, self._anchored_s = 0.0, 0.0
        """Of waits that change too often: their share of a step since when."""

    def due(self, wait: NodeWait, nodes: int, now_s: float) -> NodeWait | None:
        """Return what is to be told, now that these waits were measured; None: nothing new."""
        every_s = max(WRITE_EVERY_S, WRITE_EVERY_S_PER_NODE * nodes)
        if self._filled_s:
            self._writes = min(WRITES, self._writes + (now_s - self._filled_s) / every_s)
        self._filled_s = now_s
        if wait.steps < FIRST_STEPS or wait.step_s <= 0.0:
            return None
        told, share = self._told, _share(wait)
        if told is None or told.generation != wait.generation:
            return self._tell(wait, now_s) if self._writes >= 2.0 else None
        if not told.steps:
            return self._settled(wait, now_s, every_s)
        change = abs(share - _share(told))
        is_small = change >= SMALL_SHARE and now_s - self._told_s >= SMALL_AFTER_S
        is_spread = self._writes >= SPREAD_WRITES and _spread_change(wait, told) >= SPREAD_SHARE
        if change < NOTABLE_SHARE and not is_small and not is_spread:
            self._turned_s = None
            return None
        if self._turned_s is None:
            self._turned_s = now_s
        if now_s - self._turned_s < SETTLE_STEPS * wait.step_s:
            return None
        if self._writes >= 2.0:
            return self._tell(wait, now_s)
        if self._writes < 1.0:
            return None
        self._anchor, self._anchored_s = share, now_s
        return self._tell(NodeWait(generation=wait.generation), now_s)

    def _settled(self, wait: NodeWait, now_s: float, every_s: float) -> NodeWait | None:
        """Tell them again once they have been alike for a while."""
        share = _share(wait)
        if abs(share - self._anchor) >= NOTABLE_SHARE:
            self._anchor, self._anchored_s = share, now_s
        if self._writes < 2.0 or now_s - self._anchored_s < every_s:
            return None
        return self._tell(wait, now_s)

    def _tell(self, wait: NodeWait, now_s: float) -> NodeWait:
        self._told, self._told_s, self._turned_s = wait, now_s, None
        self._writes -= 1.0
        return wait


def _spread_change(wait: NodeWait, told: NodeWait) -> float:
    low_s, high_s = abs(wait.low_s - told.low_s), abs(wait.high_s - told.high_s)
    return max(low_s, high_s) / wait.step_s


def _share(wait: NodeWait) -> float:
    return wait.wait_s / wait.step_s if wait.step_s > 0.0 else 0.0

"""Decides when a node reports its steps' waits: seldom, but soon after a large change. Pure.

A report stays in etcd until the next one, so it must be nearly true all the time, with few writes.
A node reports its first waits of each generation, and then waits that differ notably for some
steps. It has a budget of writes that fills slowly. With the last write of the budget it reports
that its waits change too often, so that no node compares an old value with a changing one.
"""

from elasticd.records.account.late import NodeWait

__all__ = ["FIRST_STEPS", "WaitReport"]

FIRST_STEPS = 25
"""The number of steps before the first report of a generation: half of those of a whole median."""
NOTABLE_SHARE = 0.03
"""The least notable difference, as a share of a step: a third of the least difference of a late
node."""
SMALL_SHARE, SMALL_AFTER_S = 0.01, 60.0
"""The share of a step, and the age of the last report in seconds, for a report of a small
difference."""
SPREAD_SHARE, SPREAD_WRITES = 0.05, 3.0
"""A change of the spread by this share of a step is reported too, if at least this many writes are
left for more important changes. After a change of the median the spread is too wide for a while."""
DEBOUNCE_STEPS = 18
"""The number of steps between a change and its report: by then nearly all steps of the median come
from after the change, so one report is usually enough."""
WRITES, WRITE_EVERY_S, WRITE_EVERY_S_PER_NODE = 6, 10.0, 0.1
"""The most writes in the budget; and the seconds until a write is added: the larger of a fixed time
and a time per node, so that a job of any size makes at most ten writes a second."""


class WaitReport:
    """The reports of one node in one job; times are one agent's clock."""

    def __init__(self) -> None:
        self._told: NodeWait | None = None
        self._told_s = 0.0
        self._writes, self._filled_s = float(WRITES), 0.0
        self._turned_s: float | None = None
        """The time in seconds since which the waits differ from the reported ones."""
        self._anchor, self._anchored_s = 0.0, 0.0
        """While waits change too often: their share of a step, and the time since which it
        counts."""

    def due(self, wait: NodeWait, nodes: int, now_s: float) -> NodeWait | None:
        """Return the report to send after this measurement of waits; None if none is due."""
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
            return self._stable(wait, now_s, every_s)
        change = abs(share - _share(told))
        is_small = change >= SMALL_SHARE and now_s - self._told_s >= SMALL_AFTER_S
        is_spread = self._writes >= SPREAD_WRITES and _spread_change(wait, told) >= SPREAD_SHARE
        if change < NOTABLE_SHARE and not is_small and not is_spread:
            self._turned_s = None
            return None
        if self._turned_s is None:
            self._turned_s = now_s
        if now_s - self._turned_s < DEBOUNCE_STEPS * wait.step_s:
            return None
        if self._writes >= 2.0:
            return self._tell(wait, now_s)
        if self._writes < 1.0:
            return None
        self._anchor, self._anchored_s = share, now_s
        return self._tell(NodeWait(generation=wait.generation), now_s)

    def _stable(self, wait: NodeWait, now_s: float, every_s: float) -> NodeWait | None:
        """Return the waits for another report, once they have been similar for a while."""
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

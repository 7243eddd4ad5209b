"""The autoscaler's counts of its own work, for Prometheus; several threads may use them.

Each name is in the list of `elasticd.telemetry.metrics`; every series exists from the beginning, at
0.
"""

from bisect import bisect_left
from enum import StrEnum
from threading import Lock

from elasticd.records.autoscale.decision import Rule
from elasticd.records.autoscale.held import HoldReason
from elasticd.telemetry.metrics.catalog import EVALUATION_BOUNDS_S, by_name
from elasticd.telemetry.metrics.exposition import Histogram, Sample, exposition

__all__ = ["AutoscalerCounts", "Direction"]

LEADER = by_name("elasticd_autoscaler_leader")
DECISIONS = by_name("elasticd_autoscaler_decisions_total")
HELD = by_name("elasticd_autoscaler_held_total")
EVALUATION = by_name("elasticd_autoscaler_evaluation_seconds")


class Direction(StrEnum):
    """The direction of a decision: more nodes or fewer."""

    UP = "up"
    DOWN = "down"


class AutoscalerCounts:
    """The counts of one process since its start."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_leader = False
        self._decisions = {(rule, way): 0 for rule in Rule for way in Direction}
        self._held = dict.fromkeys(HoldReason, 0)
        self._evaluations = [0] * (len(EVALUATION_BOUNDS_S) + 1)
        self._evaluation_s = 0.0

    def leads(self, is_leader: bool) -> None:
        """Note whether this process leads."""
        with self._lock:
            self._is_leader = is_leader

    def decided(self, rule: Rule, from_nodes: int, to_nodes: int) -> None:
        """Count a decision that was written; a decision that changes no size does not count."""
        if from_nodes == to_nodes:
            return
        way = Direction.UP if to_nodes > from_nodes else Direction.DOWN
        with self._lock:
            self._decisions[rule, way] += 1

    def held(self, why: str) -> None:
        """Count one evaluation of one job that was held; an unknown word counts as `other`."""
        word = HoldReason(why) if why in _WORDS else HoldReason.OTHER
        with self._lock:
            self._held[word] += 1

    def evaluated(self, took_s: float) -> None:
        """Count one evaluation of all jobs, and its duration in seconds."""
        with self._lock:
            self._evaluations[bisect_left(EVALUATION_BOUNDS_S, took_s)] += 1
            self._evaluation_s += took_s

    def exposition(self, *, is_alive: bool = True) -> bytes:
        """Return all counts in Prometheus' text format.

        `is_alive` is False if the thread that decides does not run any more: then this process does
        not lead, and that thread cannot report it.
        """
        with self._lock:
            samples = [Sample(LEADER, (), float(self._is_leader and is_alive))]
            samples += [Sample(DECISIONS, (*key,), n) for key, n in self._decisions.items()]
            samples += [Sample(HELD, (word,), n) for word, n in self._held.items()]
            times = Histogram(tuple(self._evaluations), self._evaluation_s)
        return exposition([*samples, Sample(EVALUATION, (), times)])


_WORDS = frozenset(HoldReason)

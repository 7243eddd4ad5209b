"""Who knows the curve: the size that is right at each time, and the steps that it would make."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from elasticd.autoscale.simulator.run import EPOCH_S
from elasticd.autoscale.simulator.scenario import JobScenario
from elasticd.autoscale.simulator.shape import Shape
from elasticd.autoscale.simulator.trace import Trace

__all__ = ["Score", "best_size", "score"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A scaler against the oracle, in one scenario."""

    goodput_share: float
    """Its steps as a part of the oracle's. At no moment do more than the oracle's count: what more
    nodes bring than the policy is ready to pay for makes up for nothing."""
    node_share: float
    """Its node-hours as a part of the oracle's."""
    turns: int
    """Changes of direction after one real change, where there were most: until the curve, or the
    oracle's size, became another one. The start is such a change."""
    real_changes: int


def best_size(shape: Shape, least: int, most: int, least_share: float) -> int:
    """Return the size that is worth most, by the wish that the policy has: rate / n ** share.

    At its maximum the last node adds that share of what a node adds on average. With 0 it is the
    quickest size.
    """
    return max(range(least, most + 1), key=lambda nodes: shape.rate(nodes) / nodes**least_share)


def score(scenario: JobScenario, trace: Trace, least_share: float) -> Score:
    """Hold a trace against the oracle, who is at the right size at once, and pays for changes."""
    made = could = node_s = 0.0
    before, busy_until_s, now_s = (scenario.shape_at(0.0), 0), 0.0, 0.0
    changes_s = []
    for point in trace.points:
        # What held in this time was there when it began.
        shape, available = scenario.shape_at(now_s), scenario.available_at(now_s)
        most = min(available, scenario.max_nodes)
        nodes = best_size(shape, scenario.min_nodes, most, least_share)
        if (shape, nodes) != before:
            changes_s.append(now_s)
            if nodes != before[1] != 0:
                busy_until_s = now_s + scenario.change_cost_s
        before = (shape, nodes)
        every_s = point.at_s - now_s
        right = shape.rate(nodes)
        could += right * max(0.0, point.at_s - max(now_s, busy_until_s))
        made += min(point.rate, right) * every_s
        node_s += nodes * every_s
        now_s = point.at_s
    return Score(
        goodput_share=made / could,
        node_share=3600.0 * trace.node_hours / node_s,
        turns=max(_turns(trace, changes_s)),
        real_changes=len(changes_s),
    )


def _turns(trace: Trace, changes_s: Sequence[float]) -> Iterator[int]:
    """Count the changes of direction between one real change and the next."""
    for begin_s, end_s in pairwise((*changes_s, math.inf)):
        own = tuple(each for each in trace.decisions if begin_s < each.at_unix_s - EPOCH_S <= end_s)
        yield replace(trace, decisions=own).turns

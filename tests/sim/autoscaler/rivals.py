"""What others do, in the same scenarios: the HPA twice, AdaptDL's model, a fit, always MAX.

Each is as good as its published rule: the HPA is the one of `rules/target.py`, which passes the
HPA's own cases. All see what the autoscaler sees, and none knows the curve.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from elasticd.autoscale.curve.estimate import fit_s, is_fitted
from elasticd.autoscale.curve.fit import fitted
from elasticd.autoscale.curve.size import with_windows
from elasticd.autoscale.evaluation_input import Observation
from elasticd.autoscale.rules.behavior import stabilized, with_proposed
from elasticd.autoscale.rules.target import propose
from elasticd.autoscale.simulator.run import Autoscaler, Scaler
from elasticd.autoscale.simulator.scenario import JobScenario
from elasticd.autoscale.simulator.shape import Shape
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision, Rule
from elasticd.records.autoscale.memory import Memory, Resized
from elasticd.records.autoscale.policy import MetricKind, TargetMetric, TargetRule
from tests.sim.autoscaler.oracle import best_size
from tests.sim.autoscaler.policy import POLICY

__all__ = ["KNOWING", "SCALERS", "WAITING"]

KNOWING, WAITING = "knows the curve", "knows the curve after one window"
"""The names of the two that nobody can be."""
EVERY_S = 60.0
"""How often the models are fitted, and their size taken."""


@dataclass(kw_only=True)
class Rival:
    """What all of them share: they write sizes down, and begin anew with what they had."""

    window_s: float = 60.0
    held: str = ""
    _made: list[Decision] = field(default_factory=list)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(self._made)

    def restart(self, seen: Observation) -> None:
        """It loses nothing: the comparison is of rules, and not of their processes."""

    def sized(self, seen: Observation, nodes: int) -> int | None:
        nodes = max(seen.min_nodes, min(seen.max_nodes, nodes))
        if nodes == seen.wanted:
            return None
        self._made.append(
            Decision(
                number=len(self._made) + 1,
                rule=Rule.TARGET,
                from_nodes=min(seen.wanted, seen.available),
                to_nodes=min(nodes, seen.available),
                why="",
                at_unix_s=seen.unix_s,
            )
        )
        return nodes


@dataclass(kw_only=True)
class Always(Rival):
    """As many nodes as may be."""

    def wish(self, seen: Observation) -> int | None:
        return self.sized(seen, seen.max_nodes)


@dataclass(kw_only=True)
class Hpa(Rival):
    """The HPA with its defaults, on one metric, every 15 s."""

    metric: TargetMetric
    _memory: Memory = field(default_factory=Memory)

    def wish(self, seen: Observation) -> int | None:
        rule = TargetRule(metrics=(self.metric,))
        # To the HPA a throughput of nothing is a load of nothing, and asks for the least.
        proposal = propose(rule, seen, self._memory)
        if proposal.nodes is None:
            return None
        self._memory = with_proposed(rule, seen, self._memory, proposal.nodes)
        nodes = self.sized(seen, stabilized(rule, seen, self._memory, proposal.nodes))
        if nodes is not None:
            resized = (*self._memory.resized, Resized(at_s=seen.now_s, delta=nodes - seen.wanted))
            self._memory = replace(self._memory, resized=resized[-32:])
        return nodes


@dataclass(kw_only=True)
class Fit(Rival):
    """Our own fit and wish at each window, without what a change costs, noise or a trial's end."""

    _curve: Curve = field(default_factory=Curve)
    _tried_s: float = -EVERY_S

    def wish(self, seen: Observation) -> int | None:
        if seen.windows:
            self._curve = fitted(with_windows(self._curve, seen.windows))
        if seen.now_s < self._tried_s + EVERY_S or not is_fitted(self._curve) or not seen.nodes:
            return None
        self._tried_s = seen.now_s
        most = min(seen.max_nodes, 2 * max(size.nodes for size in self._curve.sizes))
        return self.sized(seen, _best({n: fit_s(self._curve, n) for n in range(1, most + 1)}))


@dataclass(kw_only=True)
class AdaptDl(Rival):
    """AdaptDL's model of a step with a constant global batch, fitted to logarithms.

    t = ((a_c + b_c / n)^g + (a_n + b_n max(n-2, 0))^g)^(1/g), the network for n > 1 alone, g from 1
    to 10. What was never seen is optimistic: no network before two nodes were tried. As in Pollux a
    job at most doubles what it has had, and a change is taken to cost a tenth of its gain.
    """

    _steps_s: dict[int, float] = field(default_factory=dict)
    _tried_s: float = -EVERY_S

    def wish(self, seen: Observation) -> int | None:
        for window in seen.windows:
            self._steps_s[window.nodes] = window.seconds / window.steps
        if seen.now_s < self._tried_s + EVERY_S or not self._steps_s or not seen.nodes:
            return None
        self._tried_s = seen.now_s
        model = _adaptdl(self._steps_s)
        most = min(seen.max_nodes, 2 * max(self._steps_s))
        times = {nodes: model(nodes) for nodes in range(1, most + 1)}
        best, now = _best(times), min(most, seen.nodes)
        share = POLICY.goodput.least_share if POLICY.goodput is not None else 0.0
        gain = times[now] / times[best] * (now / best) ** share
        return self.sized(seen, best) if gain > 1.1 else None


def _adaptdl(steps_s: Mapping[int, float]) -> Callable[[int], float]:
    """Return the model that fits best, by a search that halves its steps around the best so far."""
    has_network = any(nodes > 1 for nodes in steps_s)
    has_growth = any(nodes > 2 for nodes in steps_s)
    scale_s = max(seconds * nodes for nodes, seconds in steps_s.items())

    def model(point: tuple[float, ...], nodes: int) -> float:
        a_c, b_c, a_n, b_n, power = point
        compute_s = a_c + b_c / nodes
        network_s = a_n + b_n * max(nodes - 2, 0) if nodes > 1 else 0.0
        largest = max(compute_s, network_s)
        if largest <= 0.0:
            return 1e-9
        parts = (compute_s / largest) ** power + (network_s / largest) ** power
        return float(largest * parts ** (1.0 / power))

    def error(point: tuple[float, ...]) -> float:
        squares = (
            math.log(model(point, nodes) / seconds) ** 2 for nodes, seconds in steps_s.items()
        )
        pulled = 1e-3 * ((point[2] + point[3]) / scale_s) ** 2
        return math.sqrt(sum(squares) / len(steps_s)) + pulled

    moves = [
        1.0 if len(steps_s) > 1 else 0.0,
        1.0,
        1.0 if has_network else 0.0,
        1.0 if has_growth else 0.0,
        4.0 if has_network else 0.0,
    ]
    steps = [scale_s / 2, scale_s / 2, scale_s / 8, scale_s / 16, 1.0]
    point: tuple[float, ...] = (0.0, scale_s, 0.0, 0.0, 2.0)
    least = error(point)
    for _ in range(14):
        for axis in range(5):
            for way in (-1.0, 1.0):
                value = point[axis] + way * moves[axis] * steps[axis]
                bounds = (1.0, 10.0) if axis == 4 else (0.0, math.inf)
                other = (*point[:axis], min(bounds[1], max(bounds[0], value)), *point[axis + 1 :])
                found = error(other)
                if found < least:
                    point, least = other, found
        steps = [step * 0.7 for step in steps]
    return lambda nodes: model(point, nodes)


def _best(steps_s: Mapping[int, float]) -> int:
    """Return the size of the greatest worth, by the policy's own wish."""
    share = POLICY.goodput.least_share if POLICY.goodput is not None else 0.0
    return min(steps_s, key=lambda nodes: steps_s[nodes] * nodes**share)


def _elasticd(scenario: JobScenario) -> Scaler:
    return Autoscaler(POLICY)


def _max(scenario: JobScenario) -> Scaler:
    return Always()


def _utilisation(scenario: JobScenario) -> Scaler:
    metric = TargetMetric(name="utilisation", query="u", target=0.8, kind=MetricKind.LOAD)
    return Hpa(metric=metric)


@dataclass(kw_only=True)
class Knowing(Rival):
    """Who knows each curve: at once as the oracle, or once a window of it has been measured.

    Nobody else can do better than the first, who has the noise and the stalls of the job, and
    hardly better than the second: without a window nothing says that the curve is another one.
    """

    scenario: JobScenario
    is_at_once: bool
    _shape: Shape | None = None

    def wish(self, seen: Observation) -> int | None:
        shape = self.scenario.shape_at(seen.now_s)
        if shape != self._shape and not self.is_at_once:
            begun = [each.from_s for each in self.scenario.curves if each.from_s <= seen.now_s]
            whole = [each for each in seen.windows if seen.now_s - each.seconds >= begun[-1]]
            if not whole:
                return None
        self._shape = shape
        share = POLICY.goodput.least_share if POLICY.goodput is not None else 0.0
        most = min(seen.available, seen.max_nodes)
        return self.sized(seen, best_size(shape, seen.min_nodes, most, share))


def _throughput(scenario: JobScenario) -> Scaler:
    """Its target is nine tenths of what the right size makes: nobody could know it better."""
    share = POLICY.goodput.least_share if POLICY.goodput is not None else 0.0
    shape = scenario.shape_at(0.0)
    most = min(scenario.max_nodes, scenario.available_at(0.0))
    right = shape.rate(best_size(shape, scenario.min_nodes, most, share))
    metric = TargetMetric(name="throughput", query="t", target=0.9 * right, kind=MetricKind.LOAD)
    return Hpa(metric=metric)


SCALERS: Mapping[str, Callable[[JobScenario], Scaler]] = {
    "elasticd": _elasticd,
    "HPA on utilisation (80 %)": _utilisation,
    "HPA on throughput, uninverted": _throughput,
    "AdaptDL's model": lambda scenario: AdaptDl(),
    "the fit, costs ignored": lambda scenario: Fit(),
    "always MAX": _max,
    WAITING: lambda scenario: Knowing(scenario=scenario, is_at_once=False),
    KNOWING: lambda scenario: Knowing(scenario=scenario, is_at_once=True),
}
"""By the name under which each stands in the table."""

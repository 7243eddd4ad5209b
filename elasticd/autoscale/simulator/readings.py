"""The metrics of a simulated job, as queries would return them, with the effects of faults.

There are three: `throughput` in steps per second over one minute, with changes included, like
`rate()`; `utilisation`, the part of a step in which a device computes; and `queue`, a load that
asks for almost nothing, so that a policy has an input that may be missing.
"""

from collections import deque
from random import Random

from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.simulator.scenario import FaultKind, JobScenario
from elasticd.records.autoscale.held import HoldReason

__all__ = ["METRICS", "Metrics"]

METRICS = ("throughput", "utilisation", "queue")
RATE_S = 60.0
HUGE = 1e300
MISSING = {
    FaultKind.EMPTY: HoldReason.EMPTY,
    FaultKind.STALE: HoldReason.STALE,
    FaultKind.NOT_A_NUMBER: HoldReason.NOT_A_NUMBER,
    FaultKind.MANY_SERIES: HoldReason.MANY_SERIES,
    FaultKind.NEGATIVE: HoldReason.NEGATIVE,
    FaultKind.UNREACHABLE: HoldReason.UNREACHABLE,
    FaultKind.WARNING: HoldReason.WARNING,
    FaultKind.REFUSED: HoldReason.REFUSED,
}
CLOCK_BACK_S = 600.0


class Metrics:
    """The simulated metrics of one job."""

    def __init__(self, scenario: JobScenario) -> None:
        self._scenario = scenario
        self._random = Random(scenario.seed + 1)  # noqa: S311 (a simulation)
        self._made: deque[tuple[float, float]] = deque([(0.0, 0.0)])
        self._low_until_s = 0.0
        self._is_late = False

    def read(self, now_s: float, nodes: int, steps: float) -> dict[str, QueryReading]:
        """Return the present answers of the queries."""
        self._made.append((now_s, steps))
        while self._made[1][0] <= now_s - RATE_S:
            self._made.popleft()
        fault = self._scenario.fault_at(now_s)
        if fault is FaultKind.LOW_AFTER:
            self._low_until_s = now_s + RATE_S
            fault = FaultKind.UNREACHABLE
        if fault is FaultKind.SLOW:
            self._is_late = not self._is_late
            fault = FaultKind.UNREACHABLE if self._is_late else None
        if fault in MISSING:
            why = MISSING[fault]
            return {name: QueryReading(value=None, why=why, detail="a fault") for name in METRICS}
        if fault is FaultKind.HUGE:
            return {name: QueryReading(value=HUGE) for name in METRICS}
        low = max(0.05, 1.0 - (self._low_until_s - now_s) / RATE_S)
        values = self._values(now_s, nodes, steps)
        age_s = CLOCK_BACK_S if fault is FaultKind.CLOCK_BACK else 0.0
        return {
            name: QueryReading(
                value=value * (low if now_s < self._low_until_s else 1.0), age_s=age_s
            )
            for name, value in values.items()
        }

    def _values(self, now_s: float, nodes: int, steps: float) -> dict[str, float]:
        begun_s, made = self._made[0]
        busy = self._scenario.shape_at(now_s).busy_share(nodes) if nodes > 0 else 0.0
        noise = self._random.gauss(1.0, self._scenario.noise_share)
        return {
            "throughput": (steps - made) / max(self._scenario.every_s, now_s - begun_s),
            "utilisation": max(0.0, busy * noise),
            "queue": 0.1 * max(0.1, noise),
        }

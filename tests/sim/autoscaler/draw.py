"""Scenarios drawn from a seed: curves of four kinds, nodes that come and go, noise and faults."""

from random import Random

from elasticd.autoscale.simulator.scenario import (
    FaultKind,
    JobCurve,
    JobScenario,
    NodeCount,
    SimulatedFault,
)
from elasticd.autoscale.simulator.shape import Shape

__all__ = ["KINDS", "OTHER_FAULTS", "scenario", "scenarios"]

KINDS = ("linear", "saturating", "cliff", "changing")
SEEN_SHARE = 0.2
"""What a change of the curve changes at least, of the step's time at each size."""
MAX_NODES = (4, 8, 12, 16)


OTHER_FAULTS = (
    FaultKind.REFUSED,
    FaultKind.SLOW,
    FaultKind.CLOCK_BACK,
    FaultKind.TWO_LEADERS,
)
FAULTS = tuple(kind for kind in FaultKind if kind not in OTHER_FAULTS)
"""The faults of the benchmark: with others its seeds would be other scenarios."""


def scenarios(
    seed: int,
    count: int,
    duration_s: float = 14_400.0,
    faults: tuple[FaultKind, ...] = FAULTS,
) -> tuple[JobScenario, ...]:
    """Return so many, an equal part of each kind; `faults` are those that are drawn."""
    seeds = (seed * 1_000_003 + number for number in range(count))
    return tuple(scenario(each, n, duration_s, faults) for n, each in enumerate(seeds))


def scenario(
    seed: int, number: int, duration_s: float, faults: tuple[FaultKind, ...] = FAULTS
) -> JobScenario:
    """Draw one."""
    random = Random(seed)
    kind = KINDS[number % len(KINDS)]
    most = random.choice(MAX_NODES)
    step_s = _log(random, 0.2, 8.0)
    curves = [JobCurve(from_s=0.0, shape=_shape(random, kind, step_s, most))]
    if kind == "changing":
        for part in range(random.choice((1, 2))):
            at_s = duration_s * (0.3 + 0.35 * part + random.uniform(-0.05, 0.05))
            curves.append(
                JobCurve(from_s=at_s, shape=_other(random, curves[-1].shape, step_s, most))
            )
    return JobScenario(
        name=f"{number} {kind}",
        curves=tuple(curves),
        nodes=_nodes(random, most, duration_s),
        duration_s=duration_s,
        max_nodes=most,
        change_cost_s=_log(random, 0.3, 10.0),
        first_nodes=random.choice((0, 1, max(1, most // 4))),
        noise_share=_log(random, 0.005, 0.05),
        stall_share=random.choice((0.0, 0.0, 0.01)),
        faults=_faults(random, duration_s, faults),
        seed=seed,
    )


def _other(random: Random, before: Shape, step_s: float, most: int) -> Shape:
    """Draw a shape for a change that a job sees at whatever size it is.

    A change that one size does not show could be found only by trying other sizes for ever.
    """
    while True:
        shape = _shape(random, random.choice(KINDS[:3]), step_s * _log(random, 0.3, 3.0), most)
        sizes = range(1, most + 1)
        if all(abs(shape.step_s(n) / before.step_s(n) - 1.0) > SEEN_SHARE for n in sizes):
            return shape


def _shape(random: Random, kind: str, step_s: float, most: int) -> Shape:
    if kind == "linear":
        return Shape(b=step_s, a=step_s * random.uniform(0.0, 0.01))
    a, c = step_s * _log(random, 0.01, 0.3), step_s * random.choice((0.0, _log(random, 3e-4, 0.03)))
    if kind == "cliff" and most > 2:
        cliff = random.randint(2, most - 1)
        return Shape(
            a=a / 3, b=step_s, c=c / 3, cliff_nodes=cliff, cliff_factor=random.uniform(1.3, 2.5)
        )
    return Shape(a=a, b=step_s, c=c)


def _nodes(random: Random, most: int, duration_s: float) -> tuple[NodeCount, ...]:
    found = [NodeCount(from_s=0.0, available=random.randint(max(2, most // 2), most + 2))]
    for part in range(random.choice((0, 0, 1, 2, 3))):
        at_s = duration_s * (0.2 + 0.22 * part + random.uniform(0.0, 0.1))
        found.append(NodeCount(from_s=at_s, available=random.randint(max(2, most // 2), most + 2)))
    return tuple(found)


def _faults(
    random: Random, duration_s: float, kinds: tuple[FaultKind, ...]
) -> tuple[SimulatedFault, ...]:
    found = []
    for _ in range(random.choice((0, 1, 2, 3))):
        at_s = random.uniform(0.0, 0.9 * duration_s)
        kind = random.choice(kinds)
        found.append(
            SimulatedFault(kind=kind, from_s=at_s, until_s=at_s + _log(random, 20.0, 900.0))
        )
    return tuple(found)


def _log(random: Random, least: float, most: float) -> float:
    """Draw a number whose logarithm is evenly distributed."""
    return float(least * (most / least) ** random.random())

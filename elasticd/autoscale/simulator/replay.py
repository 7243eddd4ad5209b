"""Simulates another policy on a real job, from the job's own measurements.

The simulated job has the real one's curve, its range, the cost of its changes, its begin and its
end. Its `JobPast` holds the answers of its queries, its pauses and its waits for data, if a
Prometheus has them. Facts without a record are assumed, and a note says so: the number of nodes
that were there, and the answers of queries at other sizes. Rules without any recorded input are
left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from elasticd.autoscale.curve.estimate import measured_sizes, steps
from elasticd.autoscale.simulator.past import JobPast, PastMetrics, PastValue, Sizes
from elasticd.autoscale.simulator.run import EPOCH_S, Autoscaler, simulate
from elasticd.autoscale.simulator.scenario import JobCurve, JobScenario, NodeCount
from elasticd.autoscale.simulator.shape import Shape
from elasticd.autoscale.simulator.trace import Trace
from elasticd.errors import Refused
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision
from elasticd.records.autoscale.policy import PRICE, MetricKind, Policy, TargetRule

__all__ = ["EVERY_S", "MOST_S", "JobHistory", "Size", "replay", "simulated_policy"]

LEAST_S, MOST_S = 900.0, 86_400.0
"""The least and the greatest simulated time, in seconds: a day takes some seconds to simulate."""
EVERY_S = 15.0
MOST_NODES = 64
"""A MAX up to this number is used as it is, and a larger one only up to the nodes that were there:
each size is considered in each evaluation, and people write a million for "all that there are"."""
COST_S = 1.0
"""The cost of a change in seconds if none was measured."""
NOISE_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A size of the job: from this time on it trained on this number of nodes."""

    at_unix_s: float
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """The facts about a job's life from its records."""

    job: str
    min_nodes: int
    max_nodes: int
    curve: Curve
    sizes: tuple[Size, ...]
    """The sizes in the order of their times; the first is the first world."""
    end_unix_s: float
    """The time at which the job ended, or was last observed."""
    steps: int = 0
    decisions: tuple[Decision, ...] = ()
    """The decisions, which show how many nodes were there."""

    @property
    def began_unix_s(self) -> float:
        return self.sizes[0].at_unix_s

    @property
    def lasted_s(self) -> float:
        return max(0.0, self.end_unix_s - self.began_unix_s)

    @property
    def node_hours(self) -> float:
        """Return the node-hours that the job used, from its worlds."""
        ends = [each.at_unix_s for each in self.sizes[1:]] + [self.end_unix_s]
        return (
            sum(
                each.nodes * max(0.0, end - each.at_unix_s)
                for each, end in zip(self.sizes, ends, strict=True)
            )
            / 3600.0
        )


def replay(history: JobHistory, policy: Policy, past: JobPast | None = None) -> Trace:
    """Return a trace of the shipped rules with this policy; its notes tell the assumptions.

    `policy` is a policy that `simulated_policy` returned for this past.

    Raises:
        Refused: no size of the job was measured.
    """
    curve = history.curve
    known = measured_sizes(curve)
    if not known:
        raise Refused(
            f"Job {history.job!r} has measured no size yet, so nothing can be simulated: give it a "
            "policy (with dry_run = true, if nothing is to be done) and wait for two windows."
        )
    notes = []
    nodes, note = _nodes(history)
    if (most := _most(history, nodes)) < history.max_nodes:
        notes.append(
            f"MAX is {history.max_nodes}, and taken for {most}, since there were far fewer nodes"
        )
        history = replace(history, max_nodes=most)
    cost_s = curve.change_cost_s
    if not curve.changes:
        cost_s = COST_S
        notes.append(f"no change of size was measured: each is taken to cost {COST_S:g} s")
    notes += _notes_of_sizes(curve, history.max_nodes)
    notes.append(note)
    least_s = LEAST_S if past is None else 2.0 * EVERY_S
    duration_s = min(MOST_S, max(least_s, history.lasted_s))
    notes += _notes_of_duration(history.lasted_s, duration_s)
    shape = _shape(curve, history.max_nodes)
    past = past if past is not None else JobPast(step_s=EVERY_S)
    sizes = Sizes(
        from_s=tuple(each.at_unix_s - history.began_unix_s for each in history.sizes),
        nodes=tuple(each.nodes for each in history.sizes),
    )
    scenario = JobScenario(
        name=history.job,
        curves=(JobCurve(from_s=0.0, shape=shape),),
        nodes=nodes,
        duration_s=duration_s,
        every_s=EVERY_S,
        min_nodes=history.min_nodes,
        max_nodes=history.max_nodes,
        change_cost_s=cost_s,
        first_nodes=history.sizes[0].nodes,
        noise_share=_noise(curve),
        pauses=past.pauses,
        data_rates=past.data_rates(shape, sizes.at),
    )
    deadline = policy.deadline
    if deadline is not None:  # It is given on the simulation's clock.
        at_unix_s = deadline.at_unix_s - history.began_unix_s + EPOCH_S
        policy = replace(policy, deadline=replace(deadline, at_unix_s=at_unix_s))
    answers = PastMetrics(past, policy, sizes, shape)
    trace = simulate(scenario, Autoscaler(policy), answers)
    return replace(trace, notes=tuple(notes))


def _notes_of_sizes(curve: Curve, max_nodes: int) -> Iterator[str]:
    """Yield notes about the sizes whose time of a step was not measured, with the assumed time."""
    found = steps(curve, range(1, max_nodes + 1))
    guessed = [str(each.nodes) for each in found if not each.is_measured]
    if guessed:
        yield f"sizes never measured, and taken from the fit: {_span(guessed)}"
    if len(found) < max_nodes:
        yield "sizes that were not measured are taken to be as fast as the nearest one"


def _notes_of_duration(lasted_s: float, simulated_s: float) -> Iterator[str]:
    """Yield a note if more or less time is simulated than the job lasted."""
    if simulated_s > lasted_s:
        yield f"it lasted {lasted_s / 60:.0f} min; simulated are {simulated_s / 60:.0f}"
    elif simulated_s < lasted_s:
        yield "only its first day is simulated"


def simulated_policy(policy: Policy, past: JobPast | None = None) -> tuple[Policy, tuple[str, ...]]:
    """Return the part of a policy that can be simulated, with notes.

    There is a note for each rule that is left out, and for each assumption about its queries.

    Raises:
        Refused: no rule can be simulated.
    """
    notes, left = [], policy
    if policy.target is not None:
        names = [each.name for each in policy.target.metrics]
        if why := _lacking(past, names, "what its queries would have answered"):
            left = replace(left, target=None)
            notes.append(f"[target] is left out: {why}")
        else:
            notes += _assumed(policy.target)
    if policy.idle is not None:
        shares = (*past.pause_share, *past.data_share) if past is not None else ()
        if why := _lacking(
            past, ["elasticd_slot_seconds_total"], "when it waited for data", shares
        ):
            left = replace(left, idle=None)
            notes.append(f"[idle] is left out: {why}")
        else:
            notes.append(
                "pauses and waits for data are those of that time; the data are taken to have come "
                "as fast on any number of nodes"
            )
    if (
        policy.budget is not None
        and policy.budget.price_query
        and (why := _lacking(past, [PRICE], "what its price was"))
    ):
        left = replace(left, budget=None)
        notes.append(f"[budget] is left out: {why}")
    rules = (left.target, left.goodput, left.deadline, left.budget, left.idle)
    if not any(rules):
        raise Refused(
            "Nothing of this policy can be simulated: "
            + "; ".join(notes)
            + ". What it would do, dry_run = true shows on the job itself."
        )
    return replace(left, is_dry_run=False), tuple(notes)


def _lacking(
    past: JobPast | None, names: Sequence[str], what: str, values: Sequence[PastValue] = ()
) -> str:
    """Return why a rule has no input; empty if it has."""
    if past is None:
        return f"nobody wrote down {what}, but a Prometheus may have it: give --prometheus URL"
    if values or any(past.readings.get(name) for name in names):
        return ""
    return f"Prometheus has nothing of {' and '.join(names)} from the time of this job"


def _assumed(rule: TargetRule) -> list[str]:
    """Return notes about the assumed values of the metrics at sizes that the job did not have."""
    supplies = [each.name for each in rule.metrics if each.kind is MetricKind.SUPPLY]
    loads = [
        each.name for each in rule.metrics if each.kind is MetricKind.LOAD and not each.is_per_node
    ]
    wholes = [each.name for each in rule.metrics if each.is_per_node]
    notes = []
    if supplies:
        notes.append(
            f"at another size than the job had, {_and(supplies)} is taken to be as much more as "
            "its steps are faster there"
        )
    if loads:
        notes.append(
            f"at another size than the job had, {_and(loads)} is taken to fall as nodes come, in "
            "proportion"
        )
    if wholes:
        notes.append(f"{_and(wholes)} of all nodes together is taken to be the same at any size")
    return notes


def _and(names: Sequence[str]) -> str:
    return " and ".join(names)


def _shape(curve: Curve, most: int) -> Shape:
    """Return the estimated curve; an unknown size has the time of the nearest known one."""
    known = {each.nodes: each.seconds for each in steps(curve, range(1, most + 1))}
    nearest = sorted(known)
    table = {
        nodes: known[min(nearest, key=lambda each: abs(each - nodes))]
        for nodes in range(1, most + 1)
        if nodes not in known
    }
    return Shape(table=known | table)


def _most(history: JobHistory, nodes: Sequence[NodeCount]) -> int:
    """Return the largest size that is considered: a MAX far beyond the nodes changes nothing.

    It is twice the number of nodes, for a wish that waits for missing nodes.
    """
    had = [each.nodes for each in history.sizes] + [each.nodes for each in history.curve.sizes]
    there = max([0, *had, *(each.available for each in nodes)])
    return max(history.min_nodes, min(history.max_nodes, max(MOST_NODES, 2 * there)))


def _nodes(history: JobHistory) -> tuple[tuple[NodeCount, ...], str]:
    """Return how many nodes were there, and a note about the source of that number."""
    known_sizes = [
        Size(at_unix_s=each.at_unix_s, nodes=int(each.inputs["available"]))
        for each in history.decisions
        if each.inputs.get("available", 0.0) >= 1.0
    ]
    if not known_sizes:
        most = max(each.nodes for each in history.sizes)
        return (NodeCount(from_s=0.0, available=most),), (
            f"as many nodes are taken to have been there as it ever had: {most}"
        )
    first = Size(at_unix_s=history.began_unix_s, nodes=known_sizes[0].nodes)
    moments = sorted([first, *known_sizes, *history.sizes], key=lambda each: each.at_unix_s)
    found: list[NodeCount] = []
    available = 0
    for each in moments:
        is_told = each in known_sizes or each is first
        # If a world is larger than the recorded number, nodes have come since.
        available = each.nodes if is_told else max(available, each.nodes)
        from_s = max(0.0, each.at_unix_s - history.began_unix_s)
        if not found or found[-1].available != available:
            found.append(NodeCount(from_s=from_s, available=available))
    return tuple(found), "how many nodes were there is known from the decisions of that time"


def _noise(curve: Curve) -> float:
    found = [each.spread_s / each.step_s for each in measured_sizes(curve) if each.spread_s > 0.0]
    return min(0.2, median(found)) if found else NOISE_SHARE


def _span(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")

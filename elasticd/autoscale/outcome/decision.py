"""Makes the record of a change of size: its inputs, the other candidates, its promise."""

from dataclasses import dataclass

from elasticd.autoscale.curve.estimate import step_s
from elasticd.autoscale.evaluation_input import Observation
from elasticd.autoscale.proposal import Proposal
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision, DecisionOutcome, Rule
from elasticd.records.autoscale.policy import Policy

__all__ = ["SizeChange", "decided"]

BY_CURVE = (Rule.GOODPUT, Rule.DEADLINE, Rule.BUDGET, Rule.TAKE_BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChange:
    """The size that an evaluation has decided for, with the proposal behind it."""

    nodes: int
    rule: Rule
    why: str
    proposal: Proposal | None
    missing: str = ""


def decided(
    change: SizeChange, number: int, policy: Policy, curve: Curve, seen: Observation
) -> Decision:
    """Return the record of a change; its outcome is known at once if there is nothing to follow."""
    proposal = change.proposal
    was = proposal.was_steps_per_s if proposal is not None else 0.0
    promised, is_probe = _promise(change, curve)
    outcome, outcome_why = DecisionOutcome.OPEN, ""
    if policy.is_dry_run:
        outcome, outcome_why = DecisionOutcome.DRY_RUN, "Nothing was done: this is a dry run."
    elif change.nodes == seen.nodes:
        outcome, outcome_why = DecisionOutcome.KEPT, "The job has that size already, and keeps it."
    by_curve = change.rule in BY_CURVE
    return Decision(
        number=number,
        uid=seen.uid,
        rule=change.rule,
        from_nodes=seen.nodes,
        to_nodes=change.nodes,
        why=change.why,
        generation=seen.generation,
        inputs=_inputs(curve, seen),
        fit={"a": curve.a, "b": curve.b, "c": curve.c} if by_curve else {},
        candidates=proposal.candidates if proposal is not None else (),
        was_steps_per_s=was or _measured(curve, seen.nodes),
        promised_steps_per_s=promised,
        is_probe=is_probe,
        is_dry_run=policy.is_dry_run,
        missing=change.missing,
        at_unix_s=seen.unix_s,
        outcome=outcome,
        outcome_why=outcome_why,
    )


def _promise(change: SizeChange, curve: Curve) -> tuple[float, bool]:
    """Return the promised steps per second, and whether the decision is a trial of the size.

    If limits or `max_step` changed the proposed size, the promise is the curve's value for the
    changed size.
    """
    proposal = change.proposal
    if proposal is None or proposal.promised_steps_per_s <= 0.0:
        return 0.0, proposal is not None and proposal.is_probe
    if proposal.nodes == change.nodes:
        return proposal.promised_steps_per_s, proposal.is_probe
    seconds, is_measured = step_s(curve, change.nodes)
    return (1.0 / seconds if seconds > 0.0 else 0.0), not is_measured


def _measured(curve: Curve, nodes: int) -> float:
    seconds, is_measured = step_s(curve, nodes)
    return 1.0 / seconds if is_measured else 0.0


def _inputs(curve: Curve, seen: Observation) -> dict[str, float]:
    """Return the inputs by name; a metric's own name never equals one of elasticd's names."""
    found = {
        f"metric {name}": reading.value
        for name, reading in sorted(seen.readings.items())
        if reading.value is not None
    }
    return {
        **found,
        "nodes": float(seen.nodes),
        "wanted": float(seen.wanted),
        "available": float(seen.available),
        "step": float(seen.step),
        "change_cost_s": curve.change_cost_s,
        "data_share": seen.data_share,
        "used_node_hours": seen.used_node_hours,
    }

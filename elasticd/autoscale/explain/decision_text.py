"""Sentences about a decision: its inputs, its promise and its outcome. Pure."""

from elasticd.autoscale.explain.quantity import clock, counted, number, percent, span
from elasticd.records.autoscale.decision import Candidate, Decision, DecisionOutcome

__all__ = ["decision_details", "decision_line", "outcome_sentence"]

CANDIDATES_SHOWN = 8


def decision_line(decision: Decision, *, has_clock: bool = True) -> str:
    """Return the change, the deciding rule and its reason in one line."""
    at = clock(decision.at_unix_s) if has_clock else ""
    kind = ", tried" if decision.is_probe else ""
    dry = ", dry run" if decision.is_dry_run else ""
    return (
        f"{at + '  ' if at else ''}#{decision.number} {decision.from_nodes} -> "
        f"{decision.to_nodes} nodes ({decision.rule}{kind}{dry}): {decision.why}"
    )


def decision_details(decision: Decision) -> list[str]:
    """Return the inputs of the decision, its missing nodes, and its outcome, a line each."""
    lines = []
    if decision.inputs:
        lines.append(f"it saw: {', '.join(_input(*each) for each in decision.inputs.items())}")
    if decision.candidates:
        shown = decision.candidates[:CANDIDATES_SHOWN]
        more = len(decision.candidates) - len(shown)
        lines.append("sizes that it weighed" + (f", {more} more left out:" if more else ":"))
        lines += [_candidate(each, decision.to_nodes) for each in shown]
    if decision.missing:
        lines.append(f"missing: {decision.missing}")
    lines.append(outcome_sentence(decision))
    return lines


def outcome_sentence(decision: Decision) -> str:
    """Return a sentence about the promise of the decision, and whether it came true."""
    why = decision.outcome_why
    match decision.outcome:
        case DecisionOutcome.OPEN:
            return f"{_promise(decision)}; what comes of it is not known yet"
        case DecisionOutcome.DRY_RUN:
            return f"{_promise(decision)}; a dry run, so nothing was done"
        case DecisionOutcome.KEPT:
            verdict = "it was kept"
        case DecisionOutcome.TAKEN_BACK:
            verdict = "it was taken back" + ("" if why else ", for less than half of its promise")
        case DecisionOutcome.UNKNOWN:
            verdict = "it could not be judged"
    if why:  # The sentence has the numbers.
        return f"{verdict}: {why}"
    got = f", got {_rate(decision.got_steps_per_s)}" if decision.got_steps_per_s else ""
    return f"{_promise(decision)}{got}: {verdict}"


def _promise(decision: Decision) -> str:
    if not decision.promised_steps_per_s:
        return "it promised no throughput"
    before = f", from {_rate(decision.was_steps_per_s)}" if decision.was_steps_per_s else ""
    return f"promised {_rate(decision.promised_steps_per_s)}{before}"


def _rate(steps_per_s: float) -> str:
    return f"{steps_per_s:.3g} steps/s"


def _input(name: str, value: float) -> str:
    """Return one input of a decision with its name; a metric has its name in the policy."""
    match name:
        case "change_cost_s":
            return f"a change costs {span(value)}"
        case "data_share":
            return f"{percent(value)} of the time waits for data"
        case "used_node_hours":
            return f"{number(value)} node-hours used"
    return f"{name.removeprefix('metric ')} {number(value)}"


def _candidate(candidate: Candidate, chosen: int) -> str:
    """Return a line with one size, its rate and the reason; the chosen size begins with `>`."""
    parts = []
    if candidate.steps_per_s:
        how = "measured" if candidate.is_measured else "by the fit"
        parts.append(f"{_rate(candidate.steps_per_s)} {how}")
    if candidate.gain_steps:
        sign = "+" if candidate.gain_steps > 0.0 else ""
        parts.append(f"{sign}{number(round(candidate.gain_steps))} steps within the horizon")
    if candidate.why:
        parts.append(candidate.why)
    mark = ">" if candidate.nodes == chosen else " "
    return f"{mark} {counted(candidate.nodes, 'node')}" + (f": {', '.join(parts)}" if parts else "")

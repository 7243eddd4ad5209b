"""What was decided, on what, what it promised and what came of it, in sentences. Pure."""

from elasticd.autoscale.explain.quantity import clock, number
from elasticd.records.autoscale.decision import Candidate, Decision, Outcome

__all__ = ["decision_details", "decision_line", "outcome_sentence"]

CANDIDATES_SHOWN = 8


def decision_line(decision: Decision, *, has_clock: bool = True) -> str:
    """Say the change, the rule that had the last word, and its reason, in one line."""
    at = clock(decision.at_unix_s) if has_clock else ""
    kind = ", tried" if decision.is_probe else ""
    dry = ", dry run" if decision.is_dry_run else ""
    return (
        f"{at + '  ' if at else ''}#{decision.number} {decision.from_nodes} -> "
        f"{decision.to_nodes} nodes ({decision.rule}{kind}{dry}): {decision.why}"
    )


def decision_details(decision: Decision) -> list[str]:
    """Say what it rests on, what it lacks, and what came of it; a line each."""
    lines = []
    if decision.inputs:
        found = ", ".join(f"{name} {number(value)}" for name, value in decision.inputs.items())
        lines.append(f"it saw: {found}")
    if decision.candidates:
        shown = "; ".join(map(_candidate, decision.candidates[:CANDIDATES_SHOWN]))
        more = len(decision.candidates) - CANDIDATES_SHOWN
        lines.append(f"it looked at: {shown}" + (f"; and {more} more" if more > 0 else ""))
    if decision.missing:
        lines.append(f"missing: {decision.missing}")
    lines.append(outcome_sentence(decision))
    return lines


def outcome_sentence(decision: Decision) -> str:
    """Say what it promised, and whether that came true."""
    why = decision.outcome_why
    match decision.outcome:
        case Outcome.OPEN:
            return f"{_promise(decision)}; what comes of it is not known yet"
        case Outcome.DRY_RUN:
            return f"{_promise(decision)}; a dry run, so nothing was done"
        case Outcome.KEPT:
            verdict = "it was worth it"
        case Outcome.TAKEN_BACK:
            verdict = "it was taken back, for less than half of its promise"
        case Outcome.UNKNOWN:
            verdict = "it could not be judged"
    if why:  # It has the numbers.
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


def _candidate(candidate: Candidate) -> str:
    parts = []
    if candidate.steps_per_s:
        how = "measured" if candidate.is_measured else "fit"
        parts.append(f"{_rate(candidate.steps_per_s)} {how}")
    if candidate.gain_steps:
        parts.append(f"gain {candidate.gain_steps:+.3g} steps")
    if candidate.why:
        parts.append(candidate.why)
    return f"{candidate.nodes} ({', '.join(parts)})" if parts else f"{candidate.nodes}"

"""A job's autoscaling as plain values, for pages that are drawn elsewhere. Pure."""

from elasticd.autoscale.explain.decision_text import decision_details, decision_line
from elasticd.autoscale.explain.explanation import curve_plain
from elasticd.autoscale.explain.policy_text import policy_lines
from elasticd.autoscale.explain.size_wishes import has_looked, held_sentence, size_sentence, summary
from elasticd.control.report.report import JobReport
from elasticd.records.autoscale.decision import Decision

__all__ = ["autoscale_view"]

DECISIONS_LIMIT = 40
"""The number of the newest decisions that a page lists, since nobody reads a longer list."""


def autoscale_view(report: JobReport) -> dict[str, object] | None:
    """Return the values that a page shows; None if the job never had a policy.

    No value changes only because time passes.
    """
    found = report.autoscaling
    if found is None:
        return None
    spec, policy = report.spec, found.policy
    memory = found.memory if has_looked(found) else None
    rules = (
        policy_lines(policy, min_nodes=spec.min_nodes, max_nodes=spec.max_nodes)
        if policy is not None
        else []
    )
    return {
        "summary": summary(report),
        "size": size_sentence(report) if not report.status.phase.is_final else "",
        "held": held_sentence(memory),
        "says": dict(memory.sentences) if memory is not None else {},
        "policy": rules,
        "trouble": found.trouble,
        "curve": curve_plain(report),
        "decisions": [_decision(each) for each in found.newest(DECISIONS_LIMIT)],
    }


def _decision(decision: Decision) -> dict[str, object]:
    return {
        "number": decision.number,
        "at": decision.at_unix_s,
        "from": decision.from_nodes,
        "to": decision.to_nodes,
        "outcome": decision.outcome.value,
        "is_probe": decision.is_probe,
        "is_dry_run": decision.is_dry_run,
        "promised": decision.promised_steps_per_s,
        "got": decision.got_steps_per_s,
        "sentence": decision_line(decision, has_clock=False),
        "details": decision_details(decision),
    }

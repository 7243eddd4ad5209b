"""All facts about a job's autoscaling, as lines for people and as plain values. Pure."""

from dataclasses import dataclass

from elasticd.autoscale.explain.curve_table import curve_points, curve_rows, fit_sentence
from elasticd.autoscale.explain.decision_text import decision_details, decision_line
from elasticd.autoscale.explain.end_time import end_sentence, end_time
from elasticd.autoscale.explain.policy_text import policy_lines
from elasticd.autoscale.explain.size_wishes import (
    NOT_LOOKED,
    has_looked,
    held_sentence,
    held_since_unix_s,
    missing_sentence,
    size_sentence,
)
from elasticd.control.report.report import JobReport
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision
from elasticd.records.codec import to_plain
from elasticd.records.reason import Phase

__all__ = [
    "Section",
    "curve_plain",
    "decisions_lines",
    "explain_plain",
    "explain_sections",
    "why_sections",
]

DRY_RUN = (
    "dry run: the autoscaler was started with --dry-run, so decisions are written down and not done"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A group of lines for people; in the section of the curve its table follows them."""

    lines: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """The rows of the curve's table, under `CURVE_HEADS`; empty in every other section."""


def explain_sections(
    report: JobReport, *, leader: str, last: int, now_unix_s: float
) -> list[Section]:
    """Return the sections that `explain` prints, in order; `leader` is a sentence about the leader.

    `last` is the number of the newest decisions; 0 for all.
    """
    found = report.autoscaling
    policy = found.policy if found is not None else None
    spec, is_over = report.spec, report.status.phase.is_final
    head = [_head(report)]
    if found is not None and found.trouble:
        head.append(f"not all can be read: {found.trouble}")
    if policy is not None:
        head += policy_lines(policy, min_nodes=spec.min_nodes, max_nodes=spec.max_nodes)
    else:
        head.append(_no_policy(report))
    sections = [Section(lines=tuple(head))]
    if not is_over:
        sections.append(Section(lines=tuple(_now(report, leader, now_unix_s))))
    if found is None:
        return sections
    if found.curve is not None and found.curve.sizes:
        sections.append(_curve(report, found.curve))
    elif policy is not None:
        sections.append(Section(lines=("curve: no size has been measured yet",)))
    sections.append(Section(lines=tuple(decisions_lines(found.decisions, last=last))))
    return sections


def why_sections(report: JobReport, *, last: int) -> list[Section]:
    """Return the sections that `why` prints about a job's sizes; none if it never had a policy."""
    found = report.autoscaling
    if found is None or (not found.decisions and found.policy is None):
        return []
    sections = []
    if found.curve is not None and found.curve.sizes:
        sections.append(_curve(report, found.curve))
    sections.append(Section(lines=tuple(decisions_lines(found.decisions, last=last))))
    return sections


def decisions_lines(decisions: tuple[Decision, ...], *, last: int) -> list[str]:
    """Return lines about the newest decisions and their outcomes, the newest first."""
    if not decisions:
        return ["decisions: none yet"]
    shown = decisions[-last:] if last else decisions
    which = f"the newest {len(shown)} of " if len(shown) < len(decisions) else ""
    lines = [f"decisions, {which}{len(decisions)}, the newest first:"]
    for decision in reversed(shown):
        lines.append(decision_line(decision))
        lines += [f"          {line}" for line in decision_details(decision)]
    older = decisions[0].number - 1 + len(decisions) - len(shown)
    if older:
        lines.append(f"and {older} older")
    return lines


def explain_plain(report: JobReport, *, last: int, now_unix_s: float) -> dict[str, object]:
    """Return the content of `explain_sections` for programs, without the leader."""
    found = report.autoscaling
    end = end_time(report)
    want = report.size_want
    decisions = found.decisions if found is not None else ()
    # A reason of an earlier policy says nothing about this one.
    memory = found.memory if found is not None and has_looked(found) else None
    plain: dict[str, object] = {
        "job": report.spec.name,
        "phase": report.status.phase.value,
        "nodes": _nodes(report),
        "target_nodes": report.target_nodes,
        "size_want": to_plain(want),
        "policy": to_plain(found.policy) if found is not None else None,
        "memory": to_plain(memory),
        "held": memory.held if memory is not None else "",
        "held_since_unix_s": held_since_unix_s(memory) if memory is not None else 0.0,
        "missing": missing_sentence(report),
        "curve": curve_plain(report),
        "decisions": to_plain(decisions[-last:] if last else decisions),
        "trouble": found.trouble if found is not None else "",
        "end": None,
    }
    if end is not None:
        plain["end"] = {
            "at_unix_s": round(now_unix_s + end.left_s, 1),
            "left_s": round(end.left_s, 1),
            "error_s": round(end.error_s, 1),
            "steps_left": end.steps_left,
            "is_measured": end.is_measured,
        }
    return plain


def curve_plain(report: JobReport) -> dict[str, object] | None:
    """Return the curve with its points for programs; None if nothing was measured."""
    found = report.autoscaling
    if found is None or found.curve is None or not found.curve.sizes:
        return None
    curve = found.curve
    points = curve_points(curve, most=report.spec.max_nodes)
    return {
        "a": curve.a,
        "b": curve.b,
        "c": curve.c,
        "change_cost_s": curve.change_cost_s,
        "changes": curve.changes,
        "sentence": fit_sentence(curve),
        "points": [
            {**_plain(to_plain(point)), "steps_per_s": round(point.steps_per_s, 6)}
            for point in points
        ],
    }


def _plain(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def _head(report: JobReport) -> str:
    spec, status = report.spec, report.status
    if status.phase is Phase.RUNNING:
        return (
            f"job {spec.name}: running on {_nodes(report)} of {report.target_nodes} wanted nodes, "
            f"generation {status.generation}"
        )
    return f"job {spec.name}: {status.phase}" + ("" if status.phase.is_final else ", no world")


def _no_policy(report: JobReport) -> str:
    name = report.spec.name
    if report.status.phase.is_final:
        return "it had no policy when it ended"
    return f"it has no policy: `elasticd autoscale set {name} policy.toml` gives it one"


def _now(report: JobReport, leader: str, now_unix_s: float) -> list[str]:
    found = report.autoscaling
    lines = [leader, size_sentence(report)]
    if found is not None and found.memory is not None and has_looked(found):
        memory = found.memory
        if memory.is_dry_run and found.policy is not None and not found.policy.is_dry_run:
            lines.append(DRY_RUN)
        lines.append(held_sentence(memory) or "held: nothing")
        lines += [f"{rule} says: {said}" for rule, said in memory.sentences.items()]
    elif found is not None and found.policy is not None:
        lines.append(NOT_LOOKED)
    lines += [missing_sentence(report), end_sentence(report, now_unix_s)]
    return [line for line in lines if line]


def _curve(report: JobReport, curve: Curve) -> Section:
    rows = curve_rows(curve, now=_nodes(report), most=report.spec.max_nodes)
    return Section(lines=(f"curve: {fit_sentence(curve)}",), rows=tuple(rows))


def _nodes(report: JobReport) -> int:
    world = report.world if report.status.phase is Phase.RUNNING else None
    return len(world.nodes) if world is not None else 0

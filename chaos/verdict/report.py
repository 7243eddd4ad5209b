"""The report of a run: JSON for machines, a page of Markdown for people. Pure."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from chaos.history.records import History
from chaos.history.recovery import Figures, Recovery, figures
from chaos.plan.scenario import Scenario
from chaos.verdict.finding import Judgement

ALONE = (
    "From the fault to the next step that all ranks began after it and applied; and from the "
    "fault's undoing to the next one at full size. Faults that overlap another stand in a row of "
    "their own, whatever their kinds. Seconds."
)

OVERLAPPING = "overlapping"

__all__ = ["to_json", "to_markdown", "to_text"]


def to_json(
    scenario: Scenario, history: History, judgement: Judgement, *, seed: int, machine: str
) -> dict[str, Any]:
    """Return all figures, as plain values."""
    began = history.began.at_s if history.began is not None else 0.0
    ended = history.ended
    return {
        "scenario": scenario.name,
        "about": scenario.about,
        "seed": seed,
        "machine": machine,
        "holds": judgement.holds,
        "took_s": round(ended.at_s - began, 3) if ended is not None else None,
        "end": ended.phase if ended is not None else "unknown",
        "message": ended.message if ended is not None else "",
        "faults": len(history.struck),
        "kinds": dict(sorted(Counter(fault.kind for fault in history.struck).items())),
        "overlaps": sum(fault.is_overlap for fault in history.struck),
        "generations": judgement.generations,
        "committed_steps": judgement.committed_steps,
        "discarded_steps": judgement.discarded_steps,
        "late_steps": judgement.late_steps,
        "samples": judgement.samples,
        "torn_lines": history.torn,
        "worst_parity": judgement.worst_parity,
        "goodput": judgement.goodput,
        "full_goodput": judgement.full_goodput,
        "findings": [
            {
                "rule": finding.rule,
                "claim": finding.claim,
                "holds": finding.holds,
                "checked": finding.checked,
                "broken": finding.broken,
                "evidence": list(finding.evidence),
            }
            for finding in judgement.findings
        ],
        "by_kind": {
            kind: {
                name: dataclasses.asdict(found) if found is not None else None
                for name, found in parts.items()
            }
            for kind, parts in _by_kind(judgement).items()
        },
        "each_fault": [
            {
                "number": one.fault.number,
                "kind": one.fault.kind,
                "victim": one.fault.victim,
                "at_s": round(one.fault.at_s - began, 3),
                "is_overlap": one.fault.is_overlap,
                "recover_s": _rounded(one.recover_s),
                "stood_s": _rounded(one.stood_s),
                "full_s": _rounded(one.full_s),
            }
            for one in judgement.recoveries
        ],
    }


def to_text(report: Mapping[str, Any]) -> str:
    """Spell the verdict for a terminal."""
    lines = [
        (
            f"{report['scenario']}, seed {report['seed']}: {report['faults']} faults "
            f"({report['overlaps']} overlapping) in {_seconds(report['took_s'])}, "
            f"{report['generations']} generations, {report['committed_steps']} committed steps, "
            f"{report['discarded_steps']} done again, goodput {_share(report['goodput'])}, "
            f"{_share(report['full_goodput'])} of full size"
        ),
        "",
    ]
    for finding in report["findings"]:
        mark = "holds" if finding["holds"] else "BROKEN"
        if finding["holds"] and not finding["checked"]:
            mark = "-"
        lines.append(f"  {mark:<7} {finding['rule']:<9} {finding['claim']}")
        lines += [f"          {sentence}" for sentence in finding["evidence"]]
        more = finding["broken"] - len(finding["evidence"])
        if more > 0:
            lines.append(f"          and {more} more")
    lines += ["", *_table(report), ""]
    lines.append("VERDICT: " + ("every rule held" if report["holds"] else "BROKEN"))
    return "\n".join(lines)


def to_markdown(report: Mapping[str, Any]) -> str:
    """Spell the report as a page that can be kept."""
    parity = report["worst_parity"]
    facts = [
        ("verdict", "every rule held" if report["holds"] else "**broken**"),
        ("machine", report["machine"]),
        ("seed", report["seed"]),
        ("duration", _seconds(report["took_s"])),
        ("faults", f"{report['faults']}, of them {report['overlaps']} while another was not over"),
        ("kinds", ", ".join(f"{kind} {count}" for kind, count in report["kinds"].items())),
        ("generations", report["generations"]),
        ("committed steps", report["committed_steps"]),
        ("steps done again", report["discarded_steps"]),
        ("samples counted", report["samples"]),
        ("greatest relative difference of losses", "-" if parity is None else f"{parity:.1e}"),
        ("goodput of what lived", _share(report["goodput"])),
        ("goodput of full size", _share(report["full_goodput"])),
    ]
    lines = [f"# Chaos: {report['scenario']}", ""]
    if report["about"]:
        lines += [report["about"], ""]
    lines += ["|  |  |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in facts), ""]
    lines += ["## Rules", "", "| rule | claim | cases | verdict |", "| --- | --- | --: | --- |"]
    for finding in report["findings"]:
        verdict = "held" if finding["holds"] else "**broken**: " + "; ".join(finding["evidence"])
        if finding["holds"] and not finding["checked"]:
            verdict = "not tested"
        lines.append(
            f"| {finding['rule']} | {finding['claim']} | {finding['checked']} | {verdict} |"
        )
    lines += [
        "",
        "## Recoveries",
        "",
        ALONE,
        "",
        *_table(report),
    ]
    return "\n".join(lines) + "\n"


def _by_kind(judgement: Judgement) -> dict[str, dict[str, Figures | None]]:
    """Figures of the faults that stood alone, by kind, and of all others in one row."""
    groups: dict[str, list[Recovery]] = {}
    found = judgement.recoveries
    for number, one in enumerate(found):
        is_followed = number + 1 < len(found) and found[number + 1].fault.is_overlap
        is_alone = not one.fault.is_overlap and not is_followed
        groups.setdefault(one.fault.kind if is_alone else OVERLAPPING, []).append(one)

    def of(values: Sequence[float | None]) -> Figures | None:
        return figures([value for value in values if value is not None])

    return {
        kind: {
            "recover": of([one.recover_s for one in group]),
            "full": of([one.full_s for one in group]),
        }
        for kind, group in sorted(groups.items(), key=_last)
    }


def _last(item: tuple[str, list[Recovery]]) -> tuple[bool, str]:
    return item[0] == OVERLAPPING, item[0]


def _table(report: Mapping[str, Any]) -> list[str]:
    head = (
        "| fault            | count | next commit p50 |   p99 |   max "
        "| full size p50 |   p99 |   max |"
    )
    lines = [
        head,
        f"| {'-' * 16} | ----: | {'-' * 14}: | ----: | ----: | {'-' * 12}: | ----: | ----: |",
    ]
    for kind, parts in report["by_kind"].items():
        count = (parts["recover"] or {}).get("count", 0)
        cells = [f"{kind:<16}", f"{count:>5}"]
        for name, width in (("recover", 15), ("full", 13)):
            values = parts[name] or {}
            for key, room in (("p50_s", width), ("p99_s", 5), ("max_s", 5)):
                text = f"{values[key]:.2f}" if key in values else "-"
                cells.append(f"{text:>{room}}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _seconds(value: float | None) -> str:
    if value is None:
        return "unknown time"
    return f"{value:.0f} s" if value < 600 else f"{value / 60:.1f} minutes"


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"

"""`elasticd why --html`: a job's changes and its account as one HTML page. Pure.

The page loads no other file and runs no script; text that a job or its worker wrote is never
markup. Colours only repeat the meaning of the words.
"""

import time
from collections.abc import Mapping
from html import escape

from elasticd.autoscale.explain.curve_picture import curve_picture
from elasticd.autoscale.explain.curve_table import CURVE_HEADS, curve_points
from elasticd.autoscale.explain.explanation import why_sections
from elasticd.cli.jobs.late_words import late_history
from elasticd.cli.terminal import words
from elasticd.cli.terminal.time_words import time_rows, time_sentence
from elasticd.cli.why.earlier_changes import EarlierChanges, earlier_lines
from elasticd.control.report.change_report import ChangeReport
from elasticd.control.report.job_time import JobTime
from elasticd.control.report.report import JobReport
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, NodeId

__all__ = ["why_page"]

COLOURS = {
    "train": "#2f855a",
    "running": "#2f855a",
    "redone": "#b7791f",
    "start": "#4a7ab5",
    "notice": "#c53030",
    "recover": "#dd6b20",
    "resize": "#6b8fd6",
    "restore": "#805ad5",
    "save": "#38a3a5",
    "data": "#8a9a5b",
    "pause": "#718096",
    "wait": "#a0aec0",
    "spare": "#cbd5e0",
}
OTHER = "#4a5568"

STYLE = """
:root{color-scheme:light dark;--line:#8883;--soft:#8881}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
.said{opacity:.75;margin:.2rem 0}
.bar{display:flex;height:1.4rem;border-radius:4px;overflow:hidden;background:var(--soft)}
.bar i{display:block;min-width:1px}
table{border-collapse:collapse;margin-top:.6rem}
td,th{text-align:left;padding:.15rem 1.2rem .15rem 0}td+td,th+th{text-align:right}
.dot{display:inline-block;width:.7rem;height:.7rem;border-radius:2px;margin-right:.5rem}
article{border-left:3px solid var(--line);padding:.2rem 0 .2rem .9rem;margin:.9rem 0}
article.fault{border-color:#c53030}
article b{font-weight:600}article p{margin:.1rem 0}
pre{overflow:auto;padding:.7rem;background:var(--soft);border-radius:4px;font-size:13px}
"""


FAULT, PLANNED = "\u2715", "\u25c7"
"""The signs of a change, as in the dashboard, so that readers without colours can tell them apart.
"""


def why_page(
    report: JobReport,
    written_unix_s: float,
    stacks: Mapping[Generation, Mapping[NodeId, str]] | None = None,
    earlier: EarlierChanges | None = None,
) -> str:
    """Return the page as HTML, with the time of writing, since it may be read days later.

    `stacks` are the stacks of the ranks that hung, by the generation of the change and the node;
    `earlier` has the sums of the changes that etcd no longer has.
    """
    spec = report.spec
    parts = [
        f"<h1>{escape(spec.name)}</h1>",
        f'<p class="said">{escape(words.standing_of(report))}</p>',
        f'<p class="said">{escape(" ".join((spec.entry, *spec.args)))}</p>',
        _paragraph(f"{_submitted(report)}this page was written at {_moment(written_unix_s)}"),
    ]
    if report.time is not None:
        parts += _account(report.time)
    parts.append("<h2>What changed</h2>")
    parts += [_paragraph(line) for line in earlier_lines(report, earlier or EarlierChanges())]
    known = stacks or {}
    parts += [_change(report, each, known.get(each.generation, {})) for each in report.changes]
    parts += _sizes(report)
    late = late_history(report.late, is_over=report.status.phase.is_final)
    parts += [_paragraph(line) for line in (*late, *words.training_lines(report))]
    if words.is_failed(report.status) and report.status.failure is not None:
        parts += _failure(report.status.failure)
    return _document(f"why {spec.name}", "\n".join(parts))


def _submitted(report: JobReport) -> str:
    at_unix_s, who = report.spec.submitted_at_unix_s, report.spec.submitted_by
    if not at_unix_s:
        return ""
    return f"submitted{f' by {who}' if who else ''} at {_moment(at_unix_s)}; "


def _document(title: str, body: str) -> str:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n"
        "</body></html>\n"
    )


def _account(spent: JobTime) -> list[str]:
    rows = time_rows(spent)
    bar = "".join(
        f'<i style="flex:{seconds} 0 0;background:{_colour(cause)}" '
        f'title="{escape(cause)} {share}"></i>'
        for cause, seconds, share in rows[:-1]
    )
    lines = "".join(
        f'<tr><td><span class="dot" style="background:{_colour(cause)}"></span>{escape(cause)}</td>'
        f"<td>{seconds}</td><td>{share}</td></tr>"
        for cause, seconds, share in rows[:-1]
    )
    _, all_s, whole = rows[-1]
    lines += f"<tr><th>all</th><th>{all_s}</th><th>{whole}</th></tr>"
    return [
        "<h2>Where the time went</h2>",
        f'<div class="bar" role="img" aria-label="{escape(time_sentence(spent))}">{bar}</div>',
        f"<table><tr><th>cause</th><th>slot-seconds</th><th>share</th></tr>{lines}</table>",
        _paragraph(time_sentence(spent)),
    ]


def _sizes(report: JobReport) -> list[str]:
    """Return the scaling curve and the decisions; an empty list if the job never had a policy."""
    found = report.autoscaling
    sections = why_sections(report, last=0)
    if found is None or not sections:
        return []
    parts = ["<h2>What the autoscaler measured and decided</h2>"]
    if found.curve is not None:
        points = curve_points(found.curve, most=report.spec.max_nodes)
        parts.append(curve_picture(points, found.decisions))
    for section in sections:
        parts += [_paragraph(line) for line in section.lines]
        if section.rows:
            heads = "".join(f"<th>{escape(head.lower())}</th>" for head in CURVE_HEADS)
            rows = "".join(
                f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
                for row in section.rows
            )
            parts.append(f"<table><tr>{heads}</tr>{rows}</table>")
    return parts


def _change(report: JobReport, change: ChangeReport, stacks: Mapping[NodeId, str]) -> str:
    sign = FAULT if change.is_fault else PLANNED
    lines = [
        f"<p>{_moment(change.at_unix_s)}</p>",
        f"<p><b>{sign} {escape(words.timeline(change))}</b></p>",
    ]
    if arrivals := report.arrivals(change):
        lines.append(_paragraph(arrivals))
    phases = ", ".join(f"{name} {words.seconds(value)}" for name, value in change.phases_s.items())
    if phases:
        lines.append(_paragraph(f"took {words.seconds(change.total_s)}: {phases}"))
    if cost := words.change_cost(change):
        lines.append(_paragraph(cost))
    if change.step is not None:
        lines.append(_paragraph(words.progress(change)))
    if change.culprit is not None and change.culprit.traceback:
        lines.append(f"<pre>{escape(change.culprit.traceback)}</pre>")
    for node, text in stacks.items():
        lines.append(
            f"<details><summary>stacks of the ranks of {escape(node)}</summary>"
            f"<pre>{escape(text)}</pre></details>"
        )
    return f"<article{' class=fault' if change.is_fault else ''}>{''.join(lines)}</article>"


def _failure(failure: Failure) -> list[str]:
    said = "\n".join(words.failure_lines(failure))
    return ["<h2>Last failure</h2>", f"<pre>{escape(said)}</pre>"]


def _moment(unix_s: float) -> str:
    """Return a time with its zone, so that a reader in another time zone can convert it."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(unix_s))


def _paragraph(text: str) -> str:
    return f'<p class="said">{escape(text)}</p>'


def _colour(cause: str) -> str:
    return COLOURS.get(cause, OTHER)

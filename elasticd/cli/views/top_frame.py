"""One frame of `elasticd top`: the data of a board, for a terminal of a given size. Pure."""

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elasticd.cli.jobs.late_words import late_share
from elasticd.cli.terminal.words import counted, duration, seconds
from elasticd.dashboard.board import Board, JobPage
from elasticd.dashboard.job_view import Plain

__all__ = ["frame", "sparkline"]

BLOCKS = "▁▂▃▄▅▆▇█"
SIGNS = {
    "running": ("▶", "green"),
    "succeeded": ("✓", "green"),
    "pending": ("◌", "yellow"),
    "waiting": ("◐", "yellow"),
    "failed": ("✕", "red"),
    "stopped": ("■", "dim"),
}
TONES = {
    "train": "green",
    "redone": "red",
    "notice": "red",
    "recover": "red",
    "restore": "red",
    "unexplained": "magenta",
    "start": "yellow",
    "resize": "yellow",
    "save": "yellow",
    "data": "yellow",
}
SHADES = {"green": "█", "red": "▓", "magenta": "▓", "yellow": "▒", "dim": "░"}
"""The shades that repeat the meaning of the colours."""
KEYS = "↑↓ choose   s scale   d drain   q end"
CHANGES_SHOWN = 6
DECISIONS_SHOWN = 2
LEAST_WIDTH = 20
CURVE_WIDTH = 60
RATES_MEANT = 5
"""The number of samples of which the mean is shown: at 9.5 steps a second, a sample has 9 or 10
steps."""
LEAST_JOBS = 3
DETAILS_HEIGHT = 17
"""The lines beside the tables: a job's rate, its account, its changes and the keys."""
NODES_HEAD = 3
"""The lines of the nodes' table beside its rows."""
LEAST_NODES = 2
NARROW = 80
"""The terminal width in characters below which the tables have fewer columns."""


def frame(
    board: Board, chosen: str, *, width: int, height: int, now_unix_s: float, has_keys: bool
) -> RenderableType:
    """Return a frame that is `width` columns wide; `chosen` is the job whose details are shown."""
    width = max(LEAST_WIDTH, width)
    clock = time.strftime("%H:%M:%S", time.localtime(now_unix_s))
    slots = sum(cast(int, node["slots"]) for node in board.nodes)
    used = sum(cast(int, node["used"]) for node in board.nodes)
    head = f"elasticd  {clock}  {counted(len(board.nodes), 'node')}, {used} of {slots} slots used"
    parts: list[RenderableType] = [_line(head, "bold")]
    if board.trouble:
        parts.append(_line(f"! {board.trouble}", "yellow"))
    rows = _near(board.jobs, chosen, height - DETAILS_HEIGHT - NODES_HEAD - LEAST_NODES)
    sized = _autoscaled(board, rows)
    if not rows and not board.trouble:
        parts.append(_line("There are no jobs.", "dim"))
    elif rows:
        parts.append(_jobs(board, rows, chosen, now_unix_s, is_narrow=width < NARROW))
        if others := len(board.jobs) - len(rows):
            parts.append(_line(f"and {counted(others, 'more job')}", "dim"))
        parts += sized
    page = board.pages.get(chosen)
    scaling = _scaling(page) if page is not None else []
    if page is not None:
        parts += [*_job(page, width, now_unix_s), *scaling]
    left = height - len(rows) - len(sized) - len(scaling) - DETAILS_HEIGHT - NODES_HEAD
    if board.nodes and left > 0:
        parts.append(_nodes(board.nodes, left))
    if has_keys:
        parts += [Text(""), _line(KEYS, "dim")]
    return Group(*parts)


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the newest `width` values as blocks, scaled from 0 to the greatest value."""
    shown = [max(0.0, value) for value in values[-width:]]
    most = max(shown, default=0.0)
    if most <= 0.0:
        return BLOCKS[0] * len(shown)
    return "".join(BLOCKS[round(value / most * (len(BLOCKS) - 1))] for value in shown)


def _near(jobs: Sequence[Plain], chosen: str, limit: int) -> Sequence[Plain]:
    """Return at most `limit` jobs, the chosen one included, with as many jobs above it as fit."""
    limit = max(LEAST_JOBS, limit)
    at = next((index for index, row in enumerate(jobs) if row["job"] == chosen), 0)
    begin = max(0, at - limit + 1)
    return jobs[begin : begin + limit]


def _jobs(
    board: Board, rows: Sequence[Plain], chosen: str, now_unix_s: float, *, is_narrow: bool
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    heads = ["", "JOB", "PHASE", "NODES", "STEP", "STEPS/S"]
    if not is_narrow:
        heads += ["GEN", "GOODPUT", "COMMIT"]
    for head in heads:
        is_number = head in ("NODES", "STEP", "STEPS/S", "GEN", "GOODPUT", "COMMIT")
        table.add_column(
            head, no_wrap=True, overflow="ellipsis", justify="right" if is_number else "left"
        )
    for row in rows:
        name, phase = str(row["job"]), str(row["phase"])
        sign, tone = SIGNS.get(phase, ("?", ""))
        view = board.pages[name].view if name in board.pages else {}
        now: Mapping[str, Any] = cast(Any, view.get("progress")) or {}
        step_s = cast(float, now.get("step_s") or 0.0)
        step = view.get("steps") or now.get("step")
        cells = [
            ">" if name == chosen else "",
            name,
            sign if is_narrow else f"{sign} {phase}",
            f"{row['nodes']}/{row['wanted']}" if not row["is_over"] else "",
            f"{step:,}" if step is not None else "",
            f"{1 / step_s:.3g}" if step_s else "",
        ]
        if not is_narrow:
            at = now.get("committed_at")
            cells += [
                str(row["generation"]),
                _share(view),
                f"{duration(max(0.0, now_unix_s - at))} ago" if at and not row["is_over"] else "",
            ]
        table.add_row(*(Text(cell) for cell in cells), style=tone if name == chosen else "")
    return table


def _autoscaled(board: Board, rows: Sequence[Plain]) -> list[Text]:
    """Return a line for each job that has a policy: the size that the autoscaler wants, and why."""
    lines = []
    for row in rows:
        page = board.pages.get(str(row["job"]))
        view: Mapping[str, Any] = (page.autoscale if page is not None else None) or {}
        if view.get("summary"):
            tone = "yellow" if view["held"] else ""
            size = f"{row['nodes']}/{row['wanted']} nodes"
            lines.append(_line(f"  {row['job']}: {size}; {view['summary']}", tone))
    return lines


def _scaling(page: JobPage) -> list[Text]:
    """Return the steps a second at each number of nodes, and the autoscaler's newest decisions."""
    view: Mapping[str, Any] = page.autoscale or {}
    curve = view.get("curve") or {}
    points = [_point(each) for each in curve.get("points", ()) if each["steps_per_s"] > 0.0]
    lines = [_line(f"steps/s by nodes  {'  '.join(points)}", "")] if points else []
    for decision in reversed(view.get("decisions", ())[-DECISIONS_SHOWN:]):
        outcome = str(decision["outcome"]).replace("_", " ")
        tone = "yellow" if decision["outcome"] == "taken_back" else ""
        words = f"{_clock(decision['at'])}  {decision['sentence']}; {outcome}"
        lines.append(_line(words, tone))
    return lines


def _point(point: Mapping[str, Any]) -> str:
    """Return a size and its rate; `~` marks a rate of the fit that nobody has measured."""
    guess = "" if point["is_measured"] else "~"
    refused = " (taken back)" if point["is_refused"] else ""
    return f"{point['nodes']}: {guess}{point['steps_per_s']:.3g}{refused}"


def _clock(at_unix_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_unix_s)) if at_unix_s else " " * 8


def _share(view: Mapping[str, object]) -> str:
    account: Mapping[str, Any] = cast(Any, view.get("account")) or {}
    goodput = account.get("goodput")
    return f"{goodput:.1%}" if goodput is not None else ""


def _checkpoint(view: Mapping[str, object], now_unix_s: float) -> str:
    at = cast(float | None, view.get("checkpoint_at"))
    if at is None:
        return "no checkpoint is known yet"
    return f"newest checkpoint {duration(max(0.0, now_unix_s - at))} ago"


def _job(page: JobPage, width: int, now_unix_s: float) -> list[RenderableType]:
    """Return a job's newest checkpoint, its rate, its account and its newest changes."""
    said = page.view["message"] or page.view["ending"] or page.view["phase"]
    parts: list[RenderableType] = [Text(""), _line(f"{page.view['job']}: {said}", "bold")]
    if page.view.get("saves") and not page.view["is_over"]:
        parts.append(_line(_checkpoint(page.view, now_unix_s), "dim"))
    for late in cast(Sequence[Mapping[str, object]], page.view.get("late", ())):
        if late["is_now"]:
            parts.append(_line(f"! {late['sentence']}", "yellow"))
    rates = _rates(page.samples)
    if rates:
        curve = sparkline(rates, min(CURVE_WIDTH, width - 12))
        newest = rates[-RATES_MEANT:]
        parts.append(_line(f"steps/s {curve} {sum(newest) / len(newest):.3g}", ""))
    account: Mapping[str, Any] = cast(Any, page.view.get("account")) or {}
    if account.get("total_s"):
        parts += _account(account["seconds"], account["total_s"], width)
    for change in reversed(page.changes[-CHANGES_SHOWN:]):
        clock = _clock(cast(float, change["at"]))
        total_s = cast(float, change["total_s"])
        cost = f"  {seconds(total_s)}" if total_s else ""
        tone = "red" if change["is_fault"] else ""
        parts.append(_line(f"{clock}  {change['sentence']}{cost}", tone))
    return parts


def _account(spent_s: Mapping[str, float], total_s: float, width: int) -> list[RenderableType]:
    """Return a bar of all slot time, and the shares in words."""
    found = sorted(
        ((cause, value) for cause, value in spent_s.items() if value >= 0.001 * total_s),
        key=lambda item: (item[0] != "train", -item[1]),
    )
    bar = Text(no_wrap=True, overflow="crop")
    for cause, value in found:
        tone = TONES.get(cause, "dim")
        bar.append(SHADES[tone] * round(value / total_s * (width - 1)), style=tone)
    words = "  ".join(f"{cause} {value / total_s:.1%}" for cause, value in found)
    return [bar, _line(words, "dim")]


def _rates(samples: Sequence[Mapping[str, object]]) -> list[float]:
    found = []
    for before, after in pairwise(samples):
        passed_s = cast(float, after["at"]) - cast(float, before["at"])
        if passed_s > 0.0:
            found.append(max(0, cast(int, after["step"]) - cast(int, before["step"])) / passed_s)
    return found


def _nodes(nodes: Sequence[Mapping[str, object]], limit: int) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("NODE", "USED", "STATE", "JOBS"):
        table.add_column(head, no_wrap=True, overflow="ellipsis")
    for node in nodes[:limit]:
        jobs = ", ".join(cast(Sequence[str], node["jobs"]))
        late = cast(float | None, node.get("late"))
        state = str(node["state"]) + (f", {late_share(late)}" if late is not None else "")
        cells = (node["node"], f"{node['used']}/{node['slots']}", state, jobs)
        table.add_row(*(Text(str(cell)) for cell in cells), style="yellow" if late else "")
    more = [_line(f"and {len(nodes) - limit} more nodes", "dim")] if len(nodes) > limit else []
    return Group(Text(""), table, *more)


def _line(words: str, style: str) -> Text:
    """Return one line; text that does not fit ends in dots.

    Texts are never markup, and never two lines.
    """
    plain = "".join(each if each.isprintable() else " " for each in words)
    return Text(plain, style=style, no_wrap=True, overflow="ellipsis")

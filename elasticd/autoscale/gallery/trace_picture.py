"""Draws one simulated job: its nodes and its throughput over time. Pure.

Shapes repeat the meaning of colours: a triangle points up or down, a cross marks a decision that
was taken back, a hollow sign marks a trial. If nothing was decided because an input was missing, a
hatched bar at the bottom gives the reason.
"""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby

from elasticd.autoscale.explain.decision_text import decision_line
from elasticd.autoscale.simulator.trace import Trace, TracePoint
from elasticd.records.autoscale.decision import Decision, DecisionOutcome

__all__ = ["story", "trace_picture"]

WIDTH, LEFT, RIGHT = 760.0, 46.0, 12.0
NODES_TOP, NODES_FLOOR, RATE_TOP, RATE_FLOOR, HEIGHT = 44.0, 168.0, 196.0, 262.0, 292.0
QUIET = frozenset(("no_window", "settling", "verdict", "cooldown", "probe", ""))
"""The reasons that belong to every change of size, and would hide the reasons of a fault."""
INK, SOFT, LINE, THERE = "#4a5568", "#8a94a6", "#8886", "#8a94a622"
NODES, RATE, GOOD, BAD = "#2b62c4", "#2f855a", "#2f855a", "#c53030"
TICKS = 6

Place = Callable[[float], float]


def trace_picture(trace: Trace, *, title: str, marks: Sequence[tuple[float, str]] = ()) -> str:
    """Return an SVG that loads no other file.

    `marks` are events of the job, with their times in seconds of the simulation.
    """
    points = trace.points
    end_s = points[-1].at_s
    most = max(2, *(max(each.nodes, each.wanted) for each in points))
    high = 1.1 * max(each.rate for each in points) or 1.0

    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at_s / end_s

    def nodes_y(nodes: float) -> float:
        return NODES_FLOOR - (NODES_FLOOR - NODES_TOP) * min(nodes, most) / most

    def rate_y(rate: float) -> float:
        return RATE_FLOOR - (RATE_FLOOR - RATE_TOP) * rate / high

    parts = [f"<title>{escape(title)}</title>", f"<desc>{escape(story(trace))}</desc>"]
    parts.append(f'<text x="{LEFT:g}" y="14" fill="{INK}" font-size="13">{escape(title)}</text>')
    parts += _axes(end_s, most, high, x, nodes_y, rate_y)
    available = [(x(each.at_s), nodes_y(each.available)) for each in points]
    parts.append(f'<path d="{_steps(available)}V{NODES_FLOOR:g}H{LEFT:g}Z" fill="{THERE}"/>')
    for number, (at_s, words) in enumerate(marks):
        parts.append(_mark(x(at_s), NODES_TOP - 6 - 11 * (number % 2), words))
    parts += _held(points, x)
    nodes = [(x(each.at_s), nodes_y(each.nodes)) for each in points]
    wanted = [(x(each.at_s), nodes_y(each.wanted)) for each in points]
    parts.append(f'<path d="{_steps(wanted)}" fill="none" stroke="{SOFT}" stroke-dasharray="2 3"/>')
    parts.append(f'<path d="{_steps(nodes)}" fill="none" stroke="{NODES}" stroke-width="2"/>')
    rate = [(x(each.at_s), rate_y(each.rate)) for each in points]
    parts.append(f'<path d="{_line(rate)}" fill="none" stroke="{RATE}" stroke-width="1.4"/>')
    for decision in trace.decisions:
        parts.append(_decision(decision, x(decision.at_unix_s), nodes_y(decision.to_nodes)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" '
        f'font-family="system-ui,sans-serif" font-size="11" fill="{INK}">\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def story(trace: Trace) -> str:
    """Return the decisions and their outcomes, without times, for a comparison with a picture."""
    return "; ".join(
        f"{each.from_nodes}>{each.to_nodes} {each.rule.value} {each.outcome.value}"
        for each in trace.decisions
    )


def _axes(
    end_s: float, most: int, high: float, x: Place, nodes_y: Place, rate_y: Place
) -> Iterator[str]:
    for floor, top in ((NODES_FLOOR, NODES_TOP), (RATE_FLOOR, RATE_TOP)):
        yield (
            f'<path d="M{LEFT:g} {top:g}V{floor:g}H{WIDTH - RIGHT:g}" fill="none" stroke="{LINE}"/>'
        )
    yield _words(4, NODES_TOP - 6, "nodes", NODES)
    yield _words(4, RATE_TOP - 6, "steps/s", RATE)
    step = max(1, round(most / 4))
    for nodes in range(0, most + 1, step):
        yield _words(LEFT - 6, nodes_y(nodes) + 4, str(nodes), INK, anchor="end")
    yield _words(LEFT - 6, rate_y(high / 1.1) + 4, f"{high / 1.1:.2g}", INK, anchor="end")
    yield _words(LEFT - 6, RATE_FLOOR + 4, "0", INK, anchor="end")
    for tick in range(TICKS + 1):
        at_s = end_s * tick / TICKS
        anchor = "end" if tick == TICKS else "middle"
        yield _words(x(at_s), HEIGHT - 12, f"{at_s / 60.0:.0f} min", INK, anchor=anchor)


def _words(px: float, py: float, words: str, fill: str, *, anchor: str = "start") -> str:
    return (
        f'<text x="{px:.1f}" y="{py:.1f}" fill="{fill}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def _mark(px: float, py: float, words: str) -> str:
    """Return a line for an event of the job, with its words at the top."""
    anchor = "end" if px > 0.7 * WIDTH else "start"
    shift = -4.0 if anchor == "end" else 4.0
    return (
        f'<path d="M{px:.1f} {py - 8:g}V{RATE_FLOOR:g}" stroke="{SOFT}" '
        f'stroke-dasharray="1 3"/>' + _words(px + shift, py, words, SOFT, anchor=anchor)
    )


def _held(points: Sequence[TracePoint], x: Place) -> Iterator[str]:
    """Return a bar at the bottom for each time span without decisions, with the reason."""
    for word, found in groupby(points, key=lambda each: each.held):
        span = list(found)
        if word in QUIET:
            continue
        begin, end = x(span[0].at_s), x(span[-1].at_s)
        width = max(2.0, end - begin)
        yield (
            f'<rect x="{begin:.1f}" y="{NODES_FLOOR - 5:g}" width="{width:.1f}" height="5" '
            f'fill="{BAD}"><title>held: {escape(word)}</title></rect>'
        )
        if width > 40.0:
            yield _words(begin, NODES_FLOOR + 13, f"held: {word.replace('_', ' ')}", BAD)


def _decision(decision: Decision, px: float, py: float) -> str:
    title = f"<title>{escape(decision_line(decision, has_clock=False))}</title>"
    if decision.outcome is DecisionOutcome.TAKEN_BACK:
        return (
            f'<path d="M{px - 5:.1f} {py - 5:.1f}l10 10m0 -10l-10 10" stroke="{BAD}" '
            f'stroke-width="2">{title}</path>'
        )
    way = -7 if decision.to_nodes > decision.from_nodes else 7
    fill = "#fff" if decision.is_probe else GOOD
    return (
        f'<path d="M{px - 5:.1f} {py - way / 2:.1f}l5 {way}l5 {-way}z" fill="{fill}" '
        f'stroke="{GOOD}">{title}</path>'
    )


def _steps(places: Sequence[tuple[float, float]]) -> str:
    """Return a path that goes from value to value in steps, by its corners alone."""
    (px, py), *rest = places
    path, last = f"M{LEFT:g} {py:.1f}", py
    for px, py in rest:
        if py != last:
            path += f"H{px:.1f}V{py:.1f}"
            last = py
    return f"{path}H{px:.1f}"


def _line(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in places)

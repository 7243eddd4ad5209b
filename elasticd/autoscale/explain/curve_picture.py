"""Draws a scaling curve: the measured sizes, the fit, and the decisions. Pure.

The picture is SVG without any script or external style, so that a page sent by mail can contain it.
Shapes repeat the meaning of colours: a full dot is a measured size, a hollow dot is the fit's, and
a cross marks a size that was taken back.
"""

from collections.abc import Callable, Sequence
from html import escape

from elasticd.autoscale.explain.curve_table import CurvePoint
from elasticd.autoscale.explain.decision_text import decision_line
from elasticd.autoscale.explain.quantity import counted
from elasticd.records.autoscale.decision import Decision, DecisionOutcome

__all__ = ["curve_picture"]

WIDTH, HEIGHT = 560.0, 240.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 16.0, 14.0, 34.0
MARKS = 12
"""The number of the newest decisions that are drawn."""
INK, LINE, GOOD, BAD = "#4a5568", "#8886", "#2f855a", "#c53030"


def curve_picture(
    points: Sequence[CurvePoint], decisions: Sequence[Decision] = (), *, now: int = 0
) -> str:
    """Return an SVG of steps per second over nodes; empty if there is nothing to draw.

    `now` is the size that trains, which gets a ring.
    """
    shown = [point for point in points if point.steps_per_s > 0.0]
    if not shown:
        return ""
    promised = [each for each in decisions[-MARKS:] if each.promised_steps_per_s > 0.0]
    most_nodes = max(2, *(point.nodes for point in shown))
    most_rate = 1.08 * max(
        *(point.steps_per_s for point in shown), *(d.promised_steps_per_s for d in promised), 0.0
    )

    def x(nodes: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (nodes - 0.5) / most_nodes

    def y(rate: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - rate / most_rate)

    parts = _axes(most_nodes, most_rate, x, y)
    fit = [(x(p.nodes), y(1.0 / p.fit_s)) for p in shown if p.fit_s > 0.0]
    if len(fit) > 1:
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in fit)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{INK}" stroke-dasharray="4 3"/>'
        )
    for decision in promised:
        parts.append(_mark(decision, x(decision.to_nodes), y(decision.promised_steps_per_s)))
    for point in shown:
        parts += _point(point, x(point.nodes), y, is_now=point.nodes == now)
    label = "steps a second by number of nodes: measured (full), by the fit (hollow, dashed)"
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="{WIDTH:g}" role="img" '
        f'aria-label="{label}" '
        'font-family="system-ui,sans-serif" font-size="11" fill="currentColor" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _axes(
    most_nodes: int, most_rate: float, x: Callable[[float], float], y: Callable[[float], float]
) -> list[str]:
    floor = y(0.0)
    parts = [
        f'<path d="M{LEFT:g} {TOP:g}V{floor:.1f}H{WIDTH - RIGHT:g}" fill="none" stroke="{LINE}"/>'
    ]
    step = max(1, round(most_nodes / 12))
    for nodes in range(1, most_nodes + 1, step):
        parts.append(
            f'<text x="{x(nodes):.1f}" y="{floor + 16:.1f}" text-anchor="middle">{nodes}</text>'
        )
    for share in (0.5, 1.0):
        rate = share * most_rate / 1.08
        parts.append(
            f'<text x="{LEFT - 6:g}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate:.3g}</text>'
        )
    parts.append(f'<text x="{WIDTH - RIGHT:g}" y="{HEIGHT - 4:g}" text-anchor="end">nodes</text>')
    parts.append(f'<text x="4" y="{TOP:g}">steps/s</text>')
    return parts


def _point(point: CurvePoint, px: float, y: Callable[[float], float], *, is_now: bool) -> list[str]:
    rate = point.steps_per_s
    how = f"measured, {counted(point.windows, 'window')}" if point.is_measured else "by the fit"
    title = f"<title>{counted(point.nodes, 'node')}: {rate:.3g} steps/s, {how}</title>"
    parts = []
    if point.is_measured and point.spread_s > 0.0:
        slow, fast = point.step_s + point.spread_s, max(1e-9, point.step_s - point.spread_s)
        parts.append(
            f'<path d="M{px:.1f} {y(1.0 / slow):.1f}V{max(0.0, y(1.0 / fast)):.1f}" '
            f'stroke="{GOOD}"/>'
        )
    if point.is_refused:
        py = y(rate)
        parts.append(
            f'<path d="M{px - 5:.1f} {py - 5:.1f}l10 10m0 -10l-10 10" stroke="{BAD}" '
            f'stroke-width="2">{title}</path>'
        )
    else:
        fill = GOOD if point.is_measured else "none"
        edge = GOOD if point.is_measured else INK
        parts.append(
            f'<circle cx="{px:.1f}" cy="{y(rate):.1f}" r="4" fill="{fill}" stroke="{edge}">'
            f"{title}</circle>"
        )
    if is_now:
        parts.append(f'<circle cx="{px:.1f}" cy="{y(rate):.1f}" r="8" fill="none" stroke="{INK}"/>')
    return parts


def _mark(decision: Decision, px: float, py: float) -> str:
    """Return a diamond at the size and speed that a decision promised."""
    tone = BAD if decision.outcome is DecisionOutcome.TAKEN_BACK else INK
    return (
        f'<path d="M{px:.1f} {py - 5:.1f}l5 5l-5 5l-5 -5z" fill="none" stroke="{tone}">'
        f"<title>promised by {escape(decision_line(decision, has_clock=False))}</title></path>"
    )

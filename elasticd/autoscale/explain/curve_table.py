"""A scaling curve as rows and points: the measured sizes, and the fit beside them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from elasticd.autoscale.curve.estimate import error_share, fit_s, is_fitted, measured_sizes, steps
from elasticd.autoscale.explain.quantity import counted, span
from elasticd.records.autoscale.curve import Curve

__all__ = ["CURVE_HEADS", "CurvePoint", "curve_points", "curve_rows", "fit_sentence"]

POINTS_LIMIT = 64
"""The number of points of a fit that are shown, since nobody reads a longer table."""
ROWS_LIMIT = 16
CURVE_HEADS = ("NODES", "STEP", "STEPS/S", "LAST NODE ADDS", "HOW IT IS KNOWN")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One size of a curve."""

    nodes: int
    step_s: float
    """The seconds of a step: measured if the size was measured, otherwise from the fit, scaled to
    the measured sizes."""
    fit_s: float = 0.0
    """Seconds of a step by the fit alone; 0 if there is none."""
    is_measured: bool = False
    spread_s: float = 0.0
    """The standard deviation of the windows' means."""
    windows: int = 0
    steps: float = 0.0
    error_share: float = 0.0
    """The error of the step, as a part of it (one standard deviation)."""
    is_refused: bool = False
    """True if a decision for this size was taken back."""

    @property
    def steps_per_s(self) -> float:
        return 1.0 / self.step_s if self.step_s > 0.0 else 0.0


def curve_points(curve: Curve, *, most: int = 0) -> tuple[CurvePoint, ...]:
    """Return all measured sizes, and the fit's values for the other sizes up to `most`.

    The points are in the order of their nodes; without a fit there are only the measured sizes.
    """
    measured = {size.nodes: size for size in measured_sizes(curve)}
    has_fit = is_fitted(curve)
    wanted = set(measured)
    if has_fit and measured:
        wanted |= set(range(1, min(POINTS_LIMIT, max(most, *measured)) + 1))
    points = []
    for step in steps(curve, sorted(wanted)):
        size = measured.get(step.nodes)
        points.append(
            CurvePoint(
                nodes=step.nodes,
                step_s=step.seconds,
                fit_s=fit_s(curve, step.nodes) if has_fit else 0.0,
                is_measured=step.is_measured,
                spread_s=size.spread_s if size is not None else 0.0,
                windows=size.windows if size is not None else 0,
                steps=size.steps if size is not None else 0.0,
                error_share=error_share(curve, step.nodes),
                is_refused=step.nodes in curve.refused,
            )
        )
    return tuple(points)


def curve_rows(curve: Curve, *, now: int = 0, most: int = 0) -> list[tuple[str, ...]]:
    """Return a row for each size, under `CURVE_HEADS`; `now` is the size that trains."""
    points = curve_points(curve, most=most)
    before: dict[int, CurvePoint] = {point.nodes: point for point in points}
    rows: list[tuple[str, ...]] = []
    for point in _worth(points, now):
        less = before.get(point.nodes - 1)
        added = f"{point.steps_per_s - less.steps_per_s:+.3g}" if less is not None else ""
        spread = f" ± {span(point.spread_s)}" if point.spread_s else ""
        rows.append(
            (
                f"{point.nodes}{' *' if point.nodes == now else ''}",
                f"{span(point.step_s)}{spread}",
                f"{point.steps_per_s:.3g}",
                added,
                _source(point),
            )
        )
    return rows


def fit_sentence(curve: Curve) -> str:
    """Return a sentence about the fit and the cost of a change, or that nothing was measured."""
    if not curve.sizes:
        return "no size has been measured yet"
    sizes = counted(len(curve.sizes), "size")
    if is_fitted(curve):
        text = (
            f"fit of {sizes}: t(n) = {span(curve.a)} + {span(curve.b)}/n + {span(curve.c)} x (n-1)"
        )
    else:
        text = f"{sizes} measured, too little for a fit"
    if curve.changes:
        text += (
            f"; a change takes {span(curve.change_cost_s)} without steps (mean of {curve.changes})"
        )
    return text


def _worth(points: Iterable[CurvePoint], now: int) -> list[CurvePoint]:
    """Leave out distant sizes that only the fit gives, if the table would be too long."""
    points = list(points)
    if len(points) <= ROWS_LIMIT:
        return points
    near = sorted(points, key=lambda each: (not each.is_measured, abs(each.nodes - now)))
    return sorted(near[:ROWS_LIMIT], key=lambda each: each.nodes)


def _source(point: CurvePoint) -> str:
    if not point.is_measured:
        text = "fit"
    else:
        text = (
            f"measured, {counted(point.windows, 'window')}, {counted(round(point.steps), 'step')}"
        )
    return f"{text}; taken back" if point.is_refused else text

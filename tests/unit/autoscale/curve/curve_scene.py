"""Curves as they come of windows, for the tests of the curve and of its rules."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from elasticd.autoscale.curve.fit import fitted
from elasticd.autoscale.curve.size import with_windows
from elasticd.autoscale.evaluation_input import MeasuredWindow
from elasticd.records.autoscale.curve import Curve
from elasticd.records.ids import Generation

__all__ = ["curve_of", "measured", "window"]


def window(nodes: int, step_s: float, *, steps: int = 100) -> MeasuredWindow:
    return MeasuredWindow(
        generation=Generation(1), nodes=nodes, steps=steps, seconds=step_s * steps
    )


def measured(step_s: Mapping[int, float], *, windows: int = 1) -> Curve:
    """A fitted curve on which each of these sizes was measured so many times, without noise."""
    curve = Curve(is_superlinear=True)  # Any curve is taken as it is.
    for nodes, seconds in step_s.items():
        curve = with_windows(curve, [window(nodes, seconds)] * windows)
    return fitted(replace(curve, is_superlinear=False))


def curve_of(shape: Callable[[int], float], *sizes: int) -> Curve:
    return measured({nodes: shape(nodes) for nodes in sizes})

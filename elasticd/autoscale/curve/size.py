"""The measurements of each number of nodes, and how later measurements change them.

Each size has a mean in which older windows count less and less, so that the mean follows a slow
change of the job; the drift of one size is applied to the others too. A job may also change at
once: another phase of its training has longer sequences, or another loss. One window far from the
mean may be noise, so it waits; when `FAR_WINDOWS` in a row lie on the same side, or two in which
all steps are much faster, the job has changed. Then only the last two of them describe the job (the
first may contain steps of both). The other sizes keep their shape, scaled by the change of this
size, and count as not measured; when one of them is measured and does not fit that shape, the shape
is dropped. Refused sizes may be tried again.

Rejected: one rate of forgetting for everything. If it is fast enough for a new phase, the mean is
as noisy as one window; and it does not update the sizes at which the job does not train.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from elasticd.autoscale.curve.estimate import steps
from elasticd.autoscale.curve.spread import (
    STALE_STEPS,
    is_measured,
    spread_share,
    standard_error_share,
)
from elasticd.autoscale.evaluation_input import MeasuredWindow
from elasticd.records.autoscale.curve import SIZES_LIMIT, Curve, SizeMeasured

__all__ = ["is_another_job", "refused", "turned", "with_another_job", "with_windows"]

KEPT = 0.6
"""The weight of the past at each new window of a size: half of the mean comes from the last 1.4
windows, and nine tenths of a slow change are included after 5 windows."""
AGED = 0.99
"""The factor by which a size loses weight at each window of another size."""
CHANGE_SHARE = 0.05
"""A window nearer to the mean than this part of it is never a sign of a changed job."""
CHANGE_SPREADS = 3.0
SHAPE_SPREADS = 2.0
FAR_WINDOWS = 3
FASTER = 1.33
"""If the job's steps become faster by this factor, two windows are enough: another process or a
disk makes no step shorter."""
OTHER_SHARE = 0.25
"""If the steps of a size that is measured again are faster or slower by this part, the job has
changed."""
FAR_SHARE = 0.1
"""The last two windows of a changed job must differ by less than this; otherwise one of them may
contain steps of both jobs, and more windows are needed."""
ANCHOR_WINDOWS = 8
"""The number of windows that make a mean certain enough to measure a drift from it."""
DRIFT_ERRORS = 9.0
"""A mean has drifted when it differs by this many standard errors, and by `CHANGE_SHARE`."""


def with_windows(curve: Curve, windows: Iterable[MeasuredWindow], at_unix_s: float = 0.0) -> Curve:
    """Return the curve with these windows added, oldest first; the fit is not changed.

    Windows that are no measurement (no step, no time, no node, a number that is not finite) are
    ignored. At most `SIZES_LIMIT` sizes are kept, the newest.
    """
    for window in windows:
        if _is_valid(window):
            curve = _with_window(curve, window, at_unix_s)
    return curve


def refused(curve: Curve, nodes: int) -> Curve:
    """Return the curve in which this size counts as taken back."""
    return replace(curve, refused=tuple(sorted({*curve.refused, nodes})))


def turned(curve: Curve, from_nodes: int, to_nodes: int) -> Curve:
    """Return the curve with the direction of this change of size, and with a turn if it turned."""
    way = (to_nodes > from_nodes) - (to_nodes < from_nodes)
    if way in (0, curve.way):
        return curve
    return replace(curve, way=way, turns=curve.turns + (curve.way != 0))


def is_another_job(curve: Curve, nodes: int, was_per_s: float, is_per_s: float) -> bool:
    """Return whether two rates of one size differ by more than noise: then the job has changed."""
    size = next((each for each in curve.sizes if each.nodes == nodes), None)
    spread = spread_share(curve, size) if size is not None else 0.0
    away = abs(math.log(is_per_s / was_per_s))
    return away > max(math.log1p(OTHER_SHARE), CHANGE_SPREADS * spread)


def with_another_job(curve: Curve, nodes: int, per_s: float, steps: int) -> Curve:
    """Return the curve of a changed job with one known size, and nothing from before the change."""
    only = next((each for each in curve.sizes if each.nodes == nodes), None)
    at_unix_s = only.at_unix_s if only is not None else 0.0
    size = SizeMeasured(
        nodes=nodes, step_s=1.0 / per_s, steps=float(steps), windows=2, at_unix_s=at_unix_s
    )
    if only is not None:
        size = replace(size, spread_s=spread_share(curve, only) * size.step_s)
    return _begun_anew(curve, size)


def _is_valid(window: MeasuredWindow) -> bool:
    if window.nodes < 1 or window.steps < 1:
        return False
    return math.isfinite(window.seconds) and window.seconds > 0.0


def _with_window(curve: Curve, window: MeasuredWindow, at_unix_s: float) -> Curve:
    step_s, steps = window.seconds / window.steps, float(window.steps)
    before = next((size for size in curve.sizes if size.nodes == window.nodes), None)
    if before is None or not is_measured(before):
        first = _first(window, step_s, at_unix_s)
        if not curve.is_superlinear and _is_superlinear(curve, first):
            return _begun_anew(curve, first, is_superlinear=True)
        has_shape = _has_shape(curve, first)
        return _with_size(curve if has_shape else _without_shape(curve), first)
    is_near = _is_near(curve, before, step_s)
    is_same_side = (before.far_step_s > before.step_s) == (step_s > before.step_s)
    if before.far_windows > 0 and (is_near or not is_same_side):
        before = _blended(before, before.far_step_s, before.far_steps, at_unix_s)
    if is_near:
        return _drifted(curve, _blended(before, step_s, steps, at_unix_s))
    if before.far_windows > 0 and max(step_s, before.far_step_s) * FASTER < before.step_s:
        # The first of the two windows may contain steps of both jobs.
        return _of_another_job(curve, replace(before, far_step_s=step_s), window, at_unix_s)
    is_steady = abs(step_s - before.far_step_s) <= FAR_SHARE * step_s
    if before.far_windows + 1 >= (FAR_WINDOWS if is_steady else 2 * FAR_WINDOWS):
        return _of_another_job(curve, before, window, at_unix_s)
    waiting = replace(
        before, far_step_s=step_s, far_steps=steps, far_windows=before.far_windows + 1
    )
    return _with_size(curve, waiting)


def _first(window: MeasuredWindow, step_s: float, at_unix_s: float) -> SizeMeasured:
    return SizeMeasured(
        nodes=window.nodes, step_s=step_s, steps=float(window.steps), at_unix_s=at_unix_s
    )


def _is_near(curve: Curve, size: SizeMeasured, step_s: float) -> bool:
    noise = math.hypot(spread_share(curve, size), standard_error_share(curve, size))
    limit = max(CHANGE_SHARE, CHANGE_SPREADS * noise)
    return abs(step_s - size.step_s) <= limit * size.step_s


def _blended(size: SizeMeasured, step_s: float, steps: float, at_unix_s: float) -> SizeMeasured:
    """Update the weighted mean and variance with one window."""
    old = size.steps * KEPT
    share = steps / (old + steps)
    away_s = step_s - size.step_s
    # In parts of the mean, squares of microseconds or of days stay within floats.
    away = away_s / size.step_s
    variance = (1.0 - share) * ((size.spread_s / size.step_s) ** 2 + share * away**2)
    return replace(
        size,
        step_s=size.step_s + share * away_s,
        steps=old + steps,
        spread_s=math.sqrt(variance) * size.step_s,
        windows=size.windows + 1,
        at_unix_s=at_unix_s,
        far_step_s=0.0,
        far_steps=0.0,
        far_windows=0,
    )


def _drifted(curve: Curve, size: SizeMeasured) -> Curve:
    """Return the curve with this size, and move the other sizes if this one has drifted too far."""
    error = standard_error_share(curve, size)
    if size.anchor_step_s <= 0.0:
        is_sure = size.windows >= ANCHOR_WINDOWS
        return _with_size(curve, replace(size, anchor_step_s=size.step_s if is_sure else 0.0))
    ratio = size.step_s / size.anchor_step_s
    if abs(ratio - 1.0) <= max(CHANGE_SHARE, DRIFT_ERRORS * error):
        return _with_size(curve, size)
    now = replace(size, anchor_step_s=size.step_s)
    return _with_size(_with_shape_alone(curve, ratio), now)


def _of_another_job(
    curve: Curve, before: SizeMeasured, window: MeasuredWindow, at_unix_s: float
) -> Curve:
    """Begin anew with the last two of the windows that were far from the mean."""
    first = SizeMeasured(
        nodes=before.nodes, step_s=before.far_step_s, steps=before.far_steps, at_unix_s=at_unix_s
    )
    now = _blended(first, window.seconds / window.steps, float(window.steps), at_unix_s)
    # The spread of windows is known from before the change.
    now = replace(now, spread_s=spread_share(curve, before) * now.step_s)
    return _with_size(_with_shape_alone(curve, now.step_s / before.step_s), now)


def _with_shape_alone(curve: Curve, ratio: float) -> Curve:
    """Count all sizes as not measured, and scale their steps by this ratio."""
    sizes = tuple(
        replace(
            size,
            step_s=size.step_s * ratio,
            spread_s=size.spread_s * ratio,
            steps=STALE_STEPS,
            far_step_s=0.0,
            far_steps=0.0,
            far_windows=0,
            anchor_step_s=0.0,
        )
        for size in curve.sizes
    )
    return replace(curve, sizes=sizes, refused=(), way=0, turns=0, is_superlinear=False)


def _begun_anew(curve: Curve, only: SizeMeasured, *, is_superlinear: bool = False) -> Curve:
    return replace(curve, sizes=(only,), refused=(), way=0, turns=0, is_superlinear=is_superlinear)


def _is_superlinear(curve: Curve, first: SizeMeasured) -> bool:
    """Return whether the rates of this size and a measured one differ by more than their nodes.

    Twice the nodes make at most twice the steps. Sizes that contradict this were measured on two
    jobs: the job changed together with its size, so no single size shows the change.
    """
    noise = CHANGE_SPREADS * spread_share(curve, first)
    limit = 1.0 + max(OTHER_SHARE, noise)
    for size in curve.sizes:
        if is_measured(size):
            fewer, more = sorted((size, first), key=lambda each: each.nodes)
            if fewer.step_s * fewer.nodes > limit * more.step_s * more.nodes:
                return True
    return False


def _has_shape(curve: Curve, first: SizeMeasured) -> bool:
    """Return whether a size that is measured now fits the shape from before the change."""
    for expected in steps(curve, (first.nodes,)):
        noise = spread_share(curve, first) * math.sqrt(2.0)
        away = abs(first.step_s / expected.seconds - 1.0)
        return away <= max(CHANGE_SHARE, SHAPE_SPREADS * noise)
    return True


def _without_shape(curve: Curve) -> Curve:
    """Remove the sizes of which only the shape was kept."""
    return replace(curve, sizes=tuple(size for size in curve.sizes if is_measured(size)))


def _with_size(curve: Curve, size: SizeMeasured) -> Curve:
    others = (
        # Age alone must not make a size count as not measured.
        replace(other, steps=max(1.0, other.steps * AGED)) if is_measured(other) else other
        for other in curve.sizes
        if other.nodes != size.nodes
    )
    newest = sorted(others, key=lambda each: (each.at_unix_s, each.steps), reverse=True)
    kept = [*newest[: SIZES_LIMIT - 1], size]
    return replace(curve, sizes=tuple(sorted(kept, key=lambda each: each.nodes)))

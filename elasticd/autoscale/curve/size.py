"""What was measured at each number of nodes, and how what was measured later changes it.

Each size has a mean in which older windows count ever less, so a job that slowly changes is
followed. A job may also change at once: another phase of its training has longer sequences, or
another loss. One window far from the mean may be noise, so it waits; when the next one of that size
lies on the same side, the job is another one. Then these two windows are all that is known of it:
the other sizes keep their shape only, scaled by how much this one changed, with next to no weight,
and count as not measured. Sizes that were refused may be tried again.

Rejected: one rate of forgetting for everything. Where it is fast enough for a new phase, the mean
is as noisy as one window; and it leaves the sizes where the job is not as they were.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from elasticd.autoscale.seen import MeasuredWindow
from elasticd.records.autoscale.curve import SIZES_LIMIT, Curve, SizeMeasured

__all__ = [
    "STALE_STEPS",
    "UNKNOWN_SPREAD_SHARE",
    "is_measured",
    "refused",
    "spread_share",
    "standard_error_share",
    "with_windows",
]

KEPT = 0.6
"""What the past counts at each new window of a size: half of the mean is of the last 1.4 windows,
and nine tenths of a slow change are seen after 5."""
AGED = 0.99
"""What a size counts less at each window of another one."""
CHANGE_SHARE = 0.1
"""Nearer to the mean than by this part of it, a window is never the sign of another job."""
CHANGE_SPREADS = 3.0
UNKNOWN_SPREAD_SHARE = 0.05
"""Taken for the spread where no size has two windows yet."""
STALE_STEPS = 0.5
"""Weight of a size that was measured before the job changed; below that of one step."""
EFFECTIVE_WINDOWS = 4.0
"""So many windows stand behind a mean that forgets by `KEPT`: (1 + 0.6) / (1 - 0.6)."""


def with_windows(curve: Curve, windows: Iterable[MeasuredWindow], at_unix_s: float = 0.0) -> Curve:
    """Return the curve with these windows, oldest first; the fit is left as it is.

    Windows that are no measurement (no step, no time, no node, a number that is not finite) are
    passed over. At most `SIZES_LIMIT` sizes are kept, the newest.
    """
    for window in windows:
        if _is_valid(window):
            curve = _with_window(curve, window, at_unix_s)
    return curve


def refused(curve: Curve, nodes: int) -> Curve:
    """Return the curve that remembers a size as taken back."""
    return replace(curve, refused=tuple(sorted({*curve.refused, nodes})))


def is_measured(size: SizeMeasured) -> bool:
    """Return whether the job as it is now was measured at this size."""
    return size.steps > STALE_STEPS


def spread_share(curve: Curve, size: SizeMeasured) -> float:
    """Return the standard deviation of its windows as a part of the mean.

    With one window it is that of the noisiest other size, or `UNKNOWN_SPREAD_SHARE`.
    """
    if size.windows > 1:
        return size.spread_s / size.step_s
    others = [each.spread_s / each.step_s for each in curve.sizes if each.windows > 1]
    return max(others, default=UNKNOWN_SPREAD_SHARE)


def standard_error_share(curve: Curve, size: SizeMeasured) -> float:
    """Return how far its mean may be from the truth, as a part of it (one standard deviation)."""
    return spread_share(curve, size) / math.sqrt(min(float(size.windows), EFFECTIVE_WINDOWS))


def _is_valid(window: MeasuredWindow) -> bool:
    if window.nodes < 1 or window.steps < 1:
        return False
    return math.isfinite(window.seconds) and window.seconds > 0.0


def _with_window(curve: Curve, window: MeasuredWindow, at_unix_s: float) -> Curve:
    step_s = window.seconds / window.steps
    before = next((size for size in curve.sizes if size.nodes == window.nodes), None)
    if before is None or not is_measured(before):
        return _with_size(curve, _first(window, step_s, at_unix_s))
    is_near = _is_near(curve, before, step_s)
    if before.far_step_s > 0.0:
        is_same_side = (before.far_step_s > before.step_s) == (step_s > before.step_s)
        if is_same_side and not is_near:
            return _of_another_job(curve, before, window, at_unix_s)
        before = _blended(before, before.far_step_s, before.far_steps, at_unix_s)
    if is_near:
        return _with_size(curve, _blended(before, step_s, float(window.steps), at_unix_s))
    waiting = replace(before, far_step_s=step_s, far_steps=float(window.steps))
    return _with_size(curve, waiting)


def _first(window: MeasuredWindow, step_s: float, at_unix_s: float) -> SizeMeasured:
    return SizeMeasured(
        nodes=window.nodes, step_s=step_s, steps=float(window.steps), at_unix_s=at_unix_s
    )


def _is_near(curve: Curve, size: SizeMeasured, step_s: float) -> bool:
    limit = max(CHANGE_SHARE, CHANGE_SPREADS * spread_share(curve, size))
    return abs(step_s - size.step_s) <= limit * size.step_s


def _blended(size: SizeMeasured, step_s: float, steps: float, at_unix_s: float) -> SizeMeasured:
    """Move the weighted mean and variance on by one window."""
    old = size.steps * KEPT
    share = steps / (old + steps)
    away_s = step_s - size.step_s
    # As parts of the mean: squares of what takes microseconds or days stay within floats.
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
    )


def _of_another_job(
    curve: Curve, before: SizeMeasured, window: MeasuredWindow, at_unix_s: float
) -> Curve:
    """Begin anew with the two windows that lay far from the mean."""
    first = SizeMeasured(
        nodes=before.nodes, step_s=before.far_step_s, steps=before.far_steps, at_unix_s=at_unix_s
    )
    now = _blended(first, window.seconds / window.steps, float(window.steps), at_unix_s)
    ratio = now.step_s / before.step_s
    others = tuple(
        replace(
            size,
            step_s=size.step_s * ratio,
            spread_s=size.spread_s * ratio,
            steps=STALE_STEPS,
            far_step_s=0.0,
            far_steps=0.0,
        )
        for size in curve.sizes
    )
    return _with_size(replace(curve, sizes=others, refused=()), now)


def _with_size(curve: Curve, size: SizeMeasured) -> Curve:
    others = (
        # Age alone never makes a size one that was not measured.
        replace(other, steps=max(1.0, other.steps * AGED)) if is_measured(other) else other
        for other in curve.sizes
        if other.nodes != size.nodes
    )
    newest = sorted(others, key=lambda each: (each.at_unix_s, each.steps), reverse=True)
    kept = [*newest[: SIZES_LIMIT - 1], size]
    return replace(curve, sizes=tuple(sorted(kept, key=lambda each: each.nodes)))

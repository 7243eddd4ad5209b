"""Finds sizes to try although the curve promises nothing for them.

The fit is smooth, but a job need not be: the first node in another rack may cost more than all
others bring. So if a size is much worse than those below it predicted, the next doubling is tried
once, because a size behind a cliff may still be better than those before it. Then the sizes below
are tried downwards, one after the other, until one is as good as those before the cliff predicted,
or until the rates fall like those of a smooth curve. The search goes once upwards and once
downwards, so that a job does not alternate. If the job has settled before the cliff, and the sizes
measured behind it grow with the nodes so that more nodes would be better than all known sizes, the
next doubling is tried. When all this has settled, `telling` finds out whether another trial would
give useful information.
"""

import math
from collections.abc import Sequence

from elasticd.autoscale.curve.estimate import (
    SizeEstimate,
    elasticity,
    is_fit_right,
    measured_sizes,
    off_share,
    steps,
)
from elasticd.autoscale.curve.information_value import (
    MOST_TURNS,
    SIZES_MOST,
    TrialQuestion,
    rounded,
    shortened,
    trial_answer,
)
from elasticd.autoscale.curve.posterior import MeasuredStep
from elasticd.autoscale.curve.spread import is_measured, spread_share
from elasticd.autoscale.rules.size_worth import (
    ComparisonBasis,
    SizeWorth,
    size_worth,
    trial_loss_s,
)
from elasticd.records.autoscale.curve import Curve, SizeMeasured

__all__ = [
    "before_cliff",
    "behind_cliff",
    "below_start",
    "far_side",
    "further",
    "is_exact",
    "is_too_long",
    "lower",
    "only_known",
    "telling",
]

TRIAL_SHARE = 0.1
"""The part of the horizon that a trial may cost if only missing knowledge is a reason for it."""
FALL_SHARE = 0.1
"""The worth of a size must fall by this share before a size beyond it is tried. If only two sizes
are known, any fall suffices, since a smooth curve passes through both."""
CLIFF_SHARE = 0.22
"""A size is behind a cliff if it is slower by this share than the sizes below it predict; a smooth
curve bends by less within one doubling."""
LEAST_HOPE = 1.05
"""A size is tried if its highest possible worth exceeds the best worth by this factor."""
NEXT_HOPE = 1.02
"""The factor for a size next to a good one: 2 % more worth is 4 % more steps, and there are few
such sizes."""
SHARP_SHARE = 0.5
"""The factor if no size below shows how the rates grew, so that they count as proportional to the
nodes."""
SMOOTH_SIZES = 4
"""A fit that is right at this many sizes is trusted: three parameters fit any three sizes."""
EXACT_SHARE = 0.02
"""If the error of a fit is less than this everywhere, the curve is smooth, whatever the noise."""
LOSS_SHARE = 0.05
"""The share of the steps within the horizon that a search further down may cost."""
LEAST_GAIN = 0.2
"""The least growth of the rate with the nodes if it is not clear that fewer nodes are better."""
LARGEST_CLIFF = 2.5
"""The assumed factor between the steps behind and before a cliff, when a cliff is searched below
all known sizes."""
ROOM_SHARE = 0.25
"""The allowed sizes must be larger by at least this factor, so that a larger size gives
information."""
OTHERS_ERROR = 0.02
"""The error of sizes from before the job changed, as a part of the step."""
PARTS = 8
"""A gap between two measured sizes is searched in at most this many steps."""
HOPE_ALIKE, HOPE_STEPS = 0.01, 0.05
"""A larger size that may be worth nearly as much as the best one, and make this many more steps, is
tried as well: if the worth hardly differs, two nodes of eleven are a tenth of the steps."""
LOW_PART = 4
"""A job that trains on this part of its nodes has already tried smaller sizes."""
CHANGED_LOSS_SHARE = 0.1
"""The share of the steps within the horizon that the first trial after a change may cost if it is a
trial of fewer nodes."""
START_HOPE = 1.5
"""The factor by which a size below the first one may be better than the best known size, to be
tried."""


def behind_cliff(basis: ComparisonBasis, curve: Curve, low: int, high: int) -> SizeWorth | None:
    """Return the next size to try if a size is much worse than promised; None if there is none."""
    known = [size for size in measured_sizes(curve) if low <= size.nodes <= high]
    at = next((i for i, size in enumerate(known) if size.nodes == basis.now.nodes), 0)
    if at == 0 or is_too_long(basis) or is_exact(curve, known):
        return None
    # Only measured sizes count: the fit through both sides of a cliff is wrong everywhere.
    share = basis.rule.least_share
    worths = [1.0 / size.step_s / size.nodes**share for size in known]
    top = max(worths) / worths[at]
    if at == len(known) - 1 and not _is_smooth(curve, known):
        beyond = _beyond(basis, curve, known, high, top)
        if beyond is not None:
            return beyond
    # The size may be the last of several that lie next to each other behind the cliff.
    found = (_below(basis, curve, known, place, top, high) for place in range(at, 0, -1))
    return next(filter(None, found), None)


def before_cliff(basis: ComparisonBasis, curve: Curve, low: int, high: int) -> SizeWorth | None:
    """Return a size between the present and the next measured one, if that one is behind a cliff.

    The size is next to the present one: up to the cliff each size is better than the one before it,
    and downwards from the next measured size each would be a trial behind the cliff.
    """
    known = [size for size in measured_sizes(curve) if low <= size.nodes]
    at = next((i for i, size in enumerate(known) if size.nodes == basis.now.nodes), len(known))
    if at + 1 >= len(known) or is_too_long(basis) or _is_smooth(curve, known):
        return None
    # The nodes behind the cliff may be gone while some before it are still there.
    return _below(basis, curve, known, at + 1, 1.0, high, is_upwards=True)


def further(basis: ComparisonBasis, curve: Curve, high: int) -> SizeWorth | None:
    """Return the next doubling if the last one was worth it and the fit is wrong about it.

    This is also done if the sizes beyond were measured before the job changed: their present values
    are a guess, and the measurements since then show that nodes are worth it.
    """
    known = measured_sizes(curve)
    now = known[-1]
    if len(known) < 2 or now.nodes != basis.now.nodes or now.nodes >= high or is_too_long(basis):
        return None
    is_guess = any(size.nodes > now.nodes for size in curve.sizes)
    if is_fit_right(curve, known[-2:]) and not is_guess:
        return None
    nodes = min(high, 2 * now.nodes)
    gains = min(1.0, elasticity(known[-2], now))
    seconds = now.step_s * (now.nodes / nodes) ** gains
    size = size_worth(basis, curve, SizeEstimate(nodes=nodes, seconds=seconds, is_measured=False))
    hope = NEXT_HOPE if nodes == now.nodes + 1 else LEAST_HOPE
    return size if size.is_better and size.worth > hope else None


def far_side(basis: ComparisonBasis, curve: Curve, high: int) -> SizeWorth | None:
    """Return the next doubling behind a cliff; None if it cannot be better.

    The job has settled before the cliff. The search is considered again as nodes come: it may not
    be worth it with six nodes, but with twelve.
    """
    known = measured_sizes(curve)
    cliff = next((at for at in range(1, len(known)) if _is_cliff(curve, known, at)), None)
    if cliff is None or is_too_long(basis) or is_exact(curve, known):
        return None
    last = known[-1]
    if basis.now.nodes >= known[cliff].nodes or last.nodes >= high:
        return None
    gains = elasticity(known[-2], last) if cliff < len(known) - 1 else 1.0
    share = basis.rule.least_share
    worth = (basis.now.seconds / last.step_s) * (basis.now.nodes / last.nodes) ** share
    if worth * (high / last.nodes) ** (min(1.0, gains) - share) < LEAST_HOPE:
        return None
    nodes = min(high, 2 * last.nodes)
    seconds = last.step_s * (last.nodes / nodes) ** min(1.0, gains)
    size = size_worth(basis, curve, SizeEstimate(nodes=nodes, seconds=seconds, is_measured=False))
    return None if size.is_refused else size


def only_known(basis: ComparisonBasis, curve: Curve, low: int, high: int) -> SizeWorth | None:
    """Return a size to try if only one is known; None if more are known, or a trial costs too much.

    After the job changed there are other sizes whose shape is known, but perhaps not valid any
    more.
    """
    nodes = basis.now.nodes
    if len(measured_sizes(curve)) > 1 or is_too_long(basis):
        return None
    more = min(high, nodes + max(1, nodes // 2))
    fewer = max(low, nodes // 2)
    # A size next to the present one gives no information: a job behind a cliff would stay there.
    wished = {fewer} if fewer < nodes and more < nodes * (1.0 + ROOM_SHARE) else {fewer, more}
    others = sorted(other for other in wished - {nodes} if low <= other <= high)
    sizes = [size_worth(basis, curve, step) for step in steps(curve, others)]
    allowed = [size for size in sizes if not size.is_refused]
    # After a change a smaller size is tried first, since a cliff may lie below, and no size above
    # shows that. From there the rule moves upwards. Larger sizes come first if a window of few
    # nodes takes long.
    least = min(allowed, key=lambda size: size.nodes, default=None)
    if least is None or len(curve.sizes) == 1 or least.nodes >= nodes:
        return max(allowed, key=lambda size: size.nodes, default=None)
    loss_s = trial_loss_s(basis, basis.now.seconds * nodes / least.nodes, basis.now.seconds)
    if loss_s <= CHANGED_LOSS_SHARE * basis.horizon_s:
        return least
    return max(allowed, key=lambda size: size.nodes)


def below_start(basis: ComparisonBasis, curve: Curve, low: int, high: int) -> SizeWorth | None:
    """Return half of the smallest size of a job that only grew; None if it cannot be better.

    The job began with few nodes, and even those may be behind a cliff, which no larger size shows.
    The rule calls this if the job would stay, or turn to fewer nodes.
    """
    known = [size for size in measured_sizes(curve) if size.nodes <= high]
    has_only_grown = curve.way > 0 and curve.turns == 0
    # Another rule may have let the job shrink only part of the way, to an earlier size.
    is_halfway = curve.way < 0 and curve.turns == 1 and known[:1] and known[0].windows > 1
    if not (has_only_grown or is_halfway) or not 2 <= len(known) == len(curve.sizes):
        return None
    if any(_is_cliff(curve, known, at) for at in range(1, len(known))):
        return None  # The place of the cliff is known.
    least, share = known[0], basis.rule.least_share
    other = max(low, least.nodes // 2)
    if other >= least.nodes or is_too_long(basis):
        return None
    gains = min(1.0, elasticity(least, known[1]))
    worths = [1.0 / size.step_s / size.nodes**share for size in known]
    best = LARGEST_CLIFF * worths[0] * (other / least.nodes) ** (gains - share)
    loss_s = trial_loss_s(basis, least.step_s * least.nodes / other, basis.now.seconds)
    if best < START_HOPE * max(worths) or loss_s > LOSS_SHARE * basis.horizon_s:
        return None
    sizes = [size_worth(basis, curve, step) for step in steps(curve, (other,))]
    return next((size for size in sizes if not size.is_refused), None)


def lower(basis: ComparisonBasis, curve: Curve, low: int, high: int) -> SizeWorth | None:
    """Return half of the smallest measured size if the job trains there and it may be better.

    A job that shrank from MAX knows two sizes, and a smooth curve passes through both. Both may be
    behind a cliff, with the best size before it, and the growth of the rate behind the cliff does
    not show that. The trial costs one window with half of the nodes, once.
    """
    known = measured_sizes(curve)
    is_beginning = len(curve.sizes) == len(known) == 2
    if not is_beginning or known[0].nodes != basis.now.nodes or is_too_long(basis):
        return None
    gains, other = elasticity(*known), max(low, basis.now.nodes // 2)
    is_low = LOW_PART * basis.now.nodes <= high
    if is_low or gains <= LEAST_GAIN or other >= basis.now.nodes:
        return None
    step_s = basis.now.seconds * (basis.now.nodes / other) ** gains
    if trial_loss_s(basis, step_s, known[1].step_s) > LOSS_SHARE * basis.horizon_s:
        return None
    # The worth of the larger size, if the present one is 1, and the greatest worth of the smaller.
    share = basis.rule.least_share
    top = max(1.0, (known[1].nodes / known[0].nodes) ** (gains - share))
    best = LARGEST_CLIFF * (other / basis.now.nodes) ** (gains - share)
    if best < LEAST_HOPE * top:
        return None
    sizes = [size_worth(basis, curve, step) for step in steps(curve, (other,))]
    return next((size for size in sizes if not size.is_refused), None)


def telling(basis: ComparisonBasis, curve: Curve, low: int, high: int) -> SizeWorth | None:
    """Return the size whose trial gives most information for its cost; None if none is worth it.

    The rule calls this if the job would settle.
    """
    now = basis.now.nodes
    if curve.turns >= MOST_TURNS or not low <= now <= high or len(curve.sizes) > SIZES_MOST:
        return None
    if is_too_long(basis) or is_exact(curve, measured_sizes(curve)):
        return None
    unit_s = basis.now.seconds
    known = tuple(
        MeasuredStep(
            size.nodes,
            rounded(math.log(size.step_s / unit_s)),
            rounded(basis.errors[size.nodes]),
        )
        for size in curve.sizes
        if is_measured(size)
    )
    former = tuple(
        MeasuredStep(size.nodes, rounded(math.log(size.step_s / unit_s)), OTHERS_ERROR)
        for size in curve.sizes
        if not is_measured(size)
    )
    rule = basis.rule
    found = trial_answer(
        TrialQuestion(
            known=known,
            former=former,
            refused=curve.refused,
            now=now,
            low=low,
            high=high,
            turns=curve.turns,
            share=rule.least_share,
            probe=shortened(rule.probe_s / unit_s),
            horizon=shortened(basis.horizon_s / unit_s),
            cost=shortened(basis.cost_s / unit_s),
        )
    )
    if found is None:
        return None
    nodes, seconds = found
    seconds *= unit_s
    return size_worth(basis, curve, SizeEstimate(nodes=nodes, seconds=seconds, is_measured=False))


def is_too_long(basis: ComparisonBasis) -> bool:
    """Return whether a trial costs more than is allowed for a size that nothing recommends."""
    return basis.rule.probe_s + 2.0 * basis.cost_s > TRIAL_SHARE * basis.horizon_s


def _is_smooth(curve: Curve, known: Sequence[SizeMeasured]) -> bool:
    return len(known) >= SMOOTH_SIZES and is_fit_right(curve, known)


def is_exact(curve: Curve, known: Sequence[SizeMeasured]) -> bool:
    """Return whether the fit is so close that there can be no cliff between two sizes."""
    offs = (abs(off_share(curve, size) - 1.0) for size in known)
    return len(known) >= SMOOTH_SIZES and max(offs) <= EXACT_SHARE


def _beyond(
    basis: ComparisonBasis, curve: Curve, known: Sequence[SizeMeasured], high: int, top: float
) -> SizeWorth | None:
    """Return the next doubling after the first size that fell; None if it cannot be the best."""
    share = basis.rule.least_share
    worths = [1.0 / size.step_s / size.nodes**share for size in known]
    fall = FALL_SHARE if len(known) > 2 else 0.0
    has_fallen = worths[-1] < worths[-2] * (1.0 - fall)
    fell_before = len(known) > 2 and worths[-2] < worths[-3]
    now = known[-1]
    if not has_fallen or fell_before or now.nodes >= high:
        return None
    if (high / now.nodes) ** (1.0 - share) < LEAST_HOPE * top:
        return None
    nodes = min(high, 2 * now.nodes)
    seconds = now.step_s * now.nodes / nodes
    size = size_worth(basis, curve, SizeEstimate(nodes=nodes, seconds=seconds, is_measured=False))
    return None if size.is_refused else size


def _below(
    basis: ComparisonBasis,
    curve: Curve,
    known: Sequence[SizeMeasured],
    at: int,
    top: float,
    high: int,
    *,
    is_upwards: bool = False,
) -> SizeWorth | None:
    """Return a size to try below a measured one that is slower than smaller sizes predict.

    The size is next to that one, or, with `is_upwards`, next to the measured size below it.
    """
    now, last = known[at], known[at - 1]
    if now.nodes - last.nodes < 2 or not _is_cliff(curve, known, at):
        return None
    above = [size for size in known[at + 1 :] if size.nodes <= 2 * last.nodes]
    if above and above[-1].nodes - now.nodes >= 2:
        # A smooth curve bends down everywhere; behind a cliff the rates fall by more than between
        # the ends of the gap.
        furthest = above[-1]
        if elasticity(now, furthest) < elasticity(last, furthest):
            return None
    part = max(1, (now.nodes - last.nodes) // PARTS)
    nodes = min(high, last.nodes + part if is_upwards else now.nodes - part)
    if nodes <= last.nodes:
        return None
    seconds = last.step_s * (last.nodes / nodes) ** _gains(known, at)
    size = size_worth(basis, curve, SizeEstimate(nodes=nodes, seconds=seconds, is_measured=False))
    share = basis.rule.least_share
    best = max(known, key=lambda each: 1.0 / each.step_s / each.nodes**share)
    is_faster = nodes > best.nodes and seconds * (1.0 + HOPE_STEPS) < best.step_s
    hope = 1.0 - HOPE_ALIKE if is_faster else NEXT_HOPE
    return size if size.worth > top * hope and not size.is_refused else None


def _is_cliff(curve: Curve, known: Sequence[SizeMeasured], at: int) -> bool:
    """Return whether a measured size is slower than a smooth curve through smaller sizes."""
    now, last = known[at], known[at - 1]
    sharp = SHARP_SHARE
    if at >= 2:
        sharp = CLIFF_SHARE + spread_share(curve, now) + spread_share(curve, last)
    expected_s: float = last.step_s * (last.nodes / now.nodes) ** _gains(known, at)
    return now.step_s >= expected_s * (1.0 + sharp)


def _gains(known: Sequence[SizeMeasured], at: int) -> float:
    """Return the growth of the rate with the nodes below a measured size; 1 if nothing is known."""
    return min(1.0, elasticity(known[at - 2], known[at - 1])) if at >= 2 else 1.0

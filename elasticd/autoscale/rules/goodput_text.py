"""The goodput rule's texts: candidates for the record, and a sentence with its numbers."""

import math

from elasticd.autoscale.curve.estimate import SizeEstimate
from elasticd.autoscale.explain.quantity import counted, number, span
from elasticd.autoscale.rules.size_worth import ComparisonBasis, SizeWorth
from elasticd.records.autoscale.decision import Candidate

__all__ = [
    "CANDIDATES_LIMIT",
    "candidates_of",
    "why",
    "why_below",
    "why_cliff",
    "why_lower",
    "why_not",
    "why_telling",
    "why_trial",
]

CANDIDATES_LIMIT = 12
"""The number of the best candidates that a decision lists, since the decision is a record."""


def candidates_of(basis: ComparisonBasis, sizes: list[SizeWorth]) -> tuple[Candidate, ...]:
    """Return the sizes of the greatest worth and the present size, in the order of their nodes."""
    best = sorted(sizes, key=lambda size: (-size.worth, size.nodes))[: CANDIDATES_LIMIT - 1]
    found = [
        Candidate(
            nodes=size.nodes,
            steps_per_s=size.step.per_s,
            is_measured=size.step.is_measured,
            gain_steps=size.gain_steps,
            why=_verdict(basis, size),
        )
        for size in best
    ]
    now = Candidate(
        nodes=basis.now.nodes,
        steps_per_s=basis.now.per_s,
        is_measured=basis.now.is_measured,
        why="the size of now",
    )
    return tuple(sorted([*found, now], key=lambda candidate: candidate.nodes))


def _verdict(basis: ComparisonBasis, size: SizeWorth) -> str:
    if size.is_refused:
        return "taken back before"
    if size.is_better:
        return "worth the change"
    if size.nodes > basis.now.nodes and size.gain_steps <= 0.0:
        return "does not earn its change"
    if size.worth > 1.0:
        return "not more than may be noise"
    if size.nodes > basis.now.nodes:
        return f"one node more would add {number(_share(size.step, basis.now))} of an average one"
    return f"one node less would take {number(_share(basis.now, size.step))} of an average one"


def why(basis: ComparisonBasis, size: SizeWorth) -> str:
    """Return a sentence about the gain of a size that is worth a change."""
    rates = f"{_rate(size.step)}, against {_rate(basis.now)}"
    if size.nodes > basis.now.nodes:
        return (
            f"{rates}: within {span(basis.horizon_s)} that is {number(round(size.gain_steps))} "
            f"steps more, {_cost(basis)} paid."
        )
    if size.step.per_s >= basis.now.per_s:
        return f"{rates}: fewer nodes are faster."
    share = _share(basis.now, size.step)
    return (
        f"{rates}: from {size.nodes} to {basis.now.nodes} nodes one more added {number(share)} of "
        f"what a node adds on average, less than {number(basis.rule.least_share)} (least_share)."
    )


def why_cliff(basis: ComparisonBasis, size: SizeWorth) -> str:
    """Return a sentence about the trial of a size that no smooth curve recommends."""
    return (
        f"{_rate(basis.now)}, and the sizes that were measured do not lie on one smooth curve: "
        f"{counted(size.nodes, 'node')} {'is' if size.nodes == 1 else 'are'} tried for "
        f"{span(basis.rule.probe_s)}."
    )


def why_lower(basis: ComparisonBasis, size: SizeWorth) -> str:
    """Return a sentence about the trial of a smaller size, because the larger ones add little."""
    return (
        f"{_rate(basis.now)}, and of the larger size that was measured each node adds little: "
        f"{counted(size.nodes, 'node')} {'is' if size.nodes == 1 else 'are'} tried for "
        f"{span(basis.rule.probe_s)}, in case the best size lies below."
    )


def why_below(basis: ComparisonBasis, size: SizeWorth) -> str:
    """Return a sentence about the trial of a size below the one with which the job began."""
    return (
        f"{_rate(basis.now)}, and no size below the first one has been measured: "
        f"{counted(size.nodes, 'node')} {'is' if size.nodes == 1 else 'are'} tried for "
        f"{span(basis.rule.probe_s)}, in case all of them lie behind a cliff."
    )


def why_trial(basis: ComparisonBasis, size: SizeWorth) -> str:
    """Return a sentence about the trial of a size, because only one size is known."""
    return (
        f"No size but {counted(basis.now.nodes, 'node')} has been measured "
        f"({number(basis.now.per_s)} steps/s): {size.nodes} "
        f"{'is' if size.nodes == 1 else 'are'} tried for {span(basis.rule.probe_s)}."
    )


def why_telling(basis: ComparisonBasis, size: SizeWorth) -> str:
    """Return a sentence about the trial of a size for its information, before the job settles."""
    return (
        f"{_rate(basis.now)}, and of other sizes too little is known to settle: "
        f"{counted(size.nodes, 'node')} {'is' if size.nodes == 1 else 'are'} tried for "
        f"{span(basis.rule.probe_s)}, in case a better size is hidden by a cliff."
    )


def why_not(basis: ComparisonBasis, sizes: list[SizeWorth]) -> str:
    """Return a sentence about why the size stays, and about the next best size."""
    now = f"{_rate(basis.now)}"
    open_ones = [size for size in sizes if not size.is_refused]
    if not open_ones:
        return f"{now}: no other size is allowed or left to try."
    next_best = max(open_ones, key=lambda size: size.worth)
    return (
        f"{now}, and that stays: {_rate(next_best.step)}, {number(round(next_best.gain_steps))} "
        f"steps within {span(basis.horizon_s)} with {_cost(basis)} paid "
        f"({_verdict(basis, next_best)})."
    )


def _rate(step: SizeEstimate) -> str:
    how = "measured" if step.is_measured else "expected"
    makes = "makes" if step.nodes == 1 else "make"
    return f"{counted(step.nodes, 'node')} {makes} {number(step.per_s)} steps/s ({how})"


def _cost(basis: ComparisonBasis) -> str:
    how = "" if basis.is_cost_seen else ", assumed"
    return f"the change of {span(basis.cost_s)}{how}"


def _share(larger: SizeEstimate, smaller: SizeEstimate) -> float:
    """Return the gain of one more node as a part of an average node's, between two sizes."""
    return math.log(larger.per_s / smaller.per_s) / math.log(larger.nodes / smaller.nodes)

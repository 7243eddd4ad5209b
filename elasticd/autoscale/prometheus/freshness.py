"""How old the newest samples are that a query rests on, by Prometheus' own clock. Pure.

An instant query looks back five minutes and answers with the time of the question, so a series that
stopped looks alive. `timestamp()` of a plain selector tells the truth, and says nothing of a series
that has a staleness marker. So for each selector of a query one more query asks for the age of its
*oldest* series: a sum over nodes is as old as the node that fell silent first. A selector without
any series counts for nothing as long as another one of the query has some (`new_name or old_name`);
where none has, the answer rests on nothing (`sum(gone) or vector(0)`), and is stale.

Both times are Prometheus' own: its `time()` less the sample's timestamp. A Prometheus whose clock
is wrong by ten minutes gives samples that time as well, and the difference is right. Of a clock
that was put *back* it tells nothing, as such a Prometheus replays what it had scraped before: that
is `Clock`'s to see. Nor can it be asked of a selector of several names whose series are otherwise
the same, since `timestamp()` drops the name: Prometheus refuses that, and the number is held.
"""

import math
from collections.abc import Iterable

from elasticd.autoscale.prometheus.answer import QueryAnswer, QueryFailure, number
from elasticd.autoscale.prometheus.selector import selectors
from elasticd.records.autoscale.held import HoldReason

__all__ = ["Clock", "age_queries", "age_s"]

LOOKBACK_S = 300.0
"""How far Prometheus' instant selectors look back, unless it was set otherwise."""
BACK_S = 5.0
"""The clocks of two Prometheus servers behind one address may differ by this much."""


def age_queries(expression: str, max_age_s: float) -> tuple[str, ...]:
    """Return one query for each selector: the age in seconds of its oldest series, or nothing."""
    return tuple(f"time() - min({_stamps(each, max_age_s)})" for each in selectors(expression))


def _stamps(selector: str, max_age_s: float) -> str:
    if max_age_s <= LOOKBACK_S:
        return f"timestamp({selector})"
    # Samples that are too old for an instant selector: the newest of those that it found before.
    # A subquery looks at whole minutes alone, so what is newer comes first.
    before = f"timestamp({selector})[{max_age_s:.0f}s:{LOOKBACK_S / 5:.0f}s]"
    return f"timestamp({selector}) or max_over_time({before})"


def age_s(answers: Iterable[QueryAnswer | QueryFailure]) -> float | QueryFailure | None:
    """Return the age of the oldest series; None if no selector has any. One failure fails all."""
    ages = []
    for answer in answers:
        if isinstance(answer, QueryFailure):
            return answer
        if answer.warnings:
            # Where a part of the series is away, the old one may be in it.
            return QueryFailure(
                why=HoldReason.WARNING, detail=f"Prometheus warns: {answer.warnings[0]}"
            )
        if answer.samples:
            age = number(answer.samples[0].text)
            if age is not None and math.isfinite(age):
                ages.append(max(0.0, age))
    return max(ages, default=None)


class Clock:
    """Remember the latest time of one Prometheus, to see that its clock was put back."""

    def __init__(self) -> None:
        self._latest_s = 0.0

    def back_s(self, now_s: float | None) -> float:
        """Take note of its time; return how far it is behind an earlier one, or 0."""
        if now_s is None:
            return 0.0
        behind_s = self._latest_s - now_s
        self._latest_s = max(self._latest_s, now_s)
        return behind_s if behind_s > BACK_S else 0.0

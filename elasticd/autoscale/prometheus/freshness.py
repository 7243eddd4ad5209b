"""The age of the newest samples of a query's series, by Prometheus' own clock. Pure.

An instant query looks back five minutes and answers with the time of the query, so a series that
ended seems alive. `timestamp()` of a plain selector gives the real time, and gives nothing for a
series that has a staleness marker. So for each selector of a query one more query asks for the age
of its *oldest* series: a sum over nodes is as old as the last sample of the node that stopped
first. A selector without any series is ignored as long as another selector of the query has some
(`new_name or old_name`); if none has any, the answer has no basis (`sum(gone) or vector(0)`), and
is stale.

Both times are Prometheus' own: its `time()` minus the sample's timestamp. If its clock is wrong by
ten minutes, its samples have the same error, and the difference is right. The difference does not
show a clock that was put *back*, as such a Prometheus replays earlier samples: `Clock` detects
that. The age is also not available for a selector of several names whose series are otherwise the
same, since `timestamp()` drops the name: Prometheus refuses the query, and the number is not used.
"""

import math
from collections.abc import Iterable

from elasticd.autoscale.prometheus.answer import QueryAnswer, QueryFailure, number
from elasticd.autoscale.prometheus.selector import selectors
from elasticd.records.autoscale.held import HoldReason

__all__ = ["Clock", "age_queries", "age_s"]

LOOKBACK_S = 300.0
"""The time in seconds that Prometheus' instant selectors look back, by default."""
BACK_S = 5.0
"""The clocks of two Prometheus servers behind one address may differ by this many seconds."""


def age_queries(expression: str, max_age_s: float) -> tuple[str, ...]:
    """Return one query for each selector: the age in seconds of its oldest series, or nothing."""
    return tuple(f"time() - min({_stamps(each, max_age_s)})" for each in selectors(expression))


def _stamps(selector: str, max_age_s: float) -> str:
    if max_age_s <= LOOKBACK_S:
        return f"timestamp({selector})"
    # These samples are too old for an instant selector; it takes the newest of them. A subquery
    # looks at whole minutes alone, so newer samples come first.
    before = f"timestamp({selector})[{max_age_s:.0f}s:{LOOKBACK_S / 5:.0f}s]"
    return f"timestamp({selector}) or max_over_time({before})"


def age_s(answers: Iterable[QueryAnswer | QueryFailure]) -> float | QueryFailure | None:
    """Return the oldest series' age in seconds; None without series. One failure fails all."""
    ages = []
    for answer in answers:
        if isinstance(answer, QueryFailure):
            return answer
        if answer.warnings:
            # If a part of the series is missing, the oldest series may be in it.
            return QueryFailure(
                why=HoldReason.WARNING, detail=f"Prometheus warns: {answer.warnings[0]}"
            )
        if answer.samples:
            age = number(answer.samples[0].text)
            if age is not None and math.isfinite(age):
                ages.append(max(0.0, age))
    return max(ages, default=None)


class Clock:
    """The latest time of one Prometheus, to detect that its clock was put back."""

    def __init__(self) -> None:
        self._latest_s = 0.0

    def back_s(self, now_s: float | None) -> float:
        """Note Prometheus' time; return by how many seconds it is behind an earlier one, or 0."""
        if now_s is None:
            return 0.0
        behind_s = self._latest_s - now_s
        self._latest_s = max(self._latest_s, now_s)
        return behind_s if behind_s > BACK_S else 0.0

"""Turns Prometheus' answer into a number to use, or into the reason why there is none. Pure.

A missing number is never read as 0: that would give a job its least size whenever a metric is
missing, which is a known failure of other autoscalers.
"""

import math

from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.prometheus.answer import QueryAnswer, QueryFailure, Sample, number
from elasticd.records.autoscale.held import HoldReason

__all__ = ["reading"]

GREATEST = 1e30
"""Larger numbers are no real counts: a product with such a number could overflow."""
SHOWN_LABELS = 6


def reading(
    answer: QueryAnswer | QueryFailure,
    age_s: float | QueryFailure | None,
    *,
    max_age_s: float,
    back_s: float,
) -> QueryReading:
    """Return the reading of one query.

    Args:
        answer: the answer to the query itself.
        age_s: the age of the oldest series of the query; None if no series has a sample.
        max_age_s: the policy's limit for the age.
        back_s: the seconds by which Prometheus' clock is behind its earlier time.
    """
    if isinstance(answer, QueryFailure):
        return _none(answer.why, answer.detail)
    if answer.warnings:
        return _none(HoldReason.WARNING, f"Prometheus warns: {answer.warnings[0]}")
    if answer.kind not in ("vector", "scalar"):
        return _none(
            HoldReason.NOT_A_NUMBER,
            f"The query's result is a {answer.kind}: it must be one number, as of sum() or max().",
        )
    if not answer.samples:
        return _none(HoldReason.EMPTY, "The query has no series now.")
    if len(answer.samples) > 1:
        first, second = answer.samples[:2]
        return _none(
            HoldReason.MANY_SERIES,
            f"The query has {len(answer.samples)} series, {_named(first)} and {_named(second)} "
            "among them: make one of them, as by sum() or max().",
        )
    return _of_number(answer.samples[0].text, age_s, max_age_s, back_s)


def _of_number(
    text: str, age_s: float | QueryFailure | None, max_age_s: float, back_s: float
) -> QueryReading:
    value = number(text)
    if value is None or not math.isfinite(value) or value > GREATEST:
        what = text[:40] or "a histogram"
        return _none(
            HoldReason.NOT_A_NUMBER, f"The query's value is {what}, which is no number to go by."
        )
    if value < 0:
        return _none(HoldReason.NEGATIVE, f"The query's value is {value:g}, which is below 0.")
    if back_s:
        return _none(
            HoldReason.STALE,
            f"Prometheus' clock went back by {back_s:.0f} s: until it is there again, what it has "
            "may be of before.",
        )
    if isinstance(age_s, QueryFailure):
        return _none(age_s.why, f"Whether its series are fresh was not told: {age_s.detail}")
    if age_s is None:
        return _none(
            HoldReason.STALE,
            "No series that the query names has a sample now: its value is made up.",
        )
    if age_s > max_age_s:
        return QueryReading(
            value=None,
            why=HoldReason.STALE,
            detail=f"Its oldest series has had no sample for {age_s:.0f} s, and {max_age_s:g} s "
            "are allowed.",
            age_s=age_s,
        )
    return QueryReading(value=value + 0.0, age_s=age_s)  # This turns -0.0 into 0.0.


def _none(why: HoldReason, detail: str) -> QueryReading:
    return QueryReading(value=None, why=why, detail=detail)


def _named(sample: Sample) -> str:
    labels = sorted(sample.labels.items())
    shown = ", ".join(f'{name}="{value[:40]}"' for name, value in labels[:SHOWN_LABELS])
    return f"{{{shown}{', ...' if len(labels) > SHOWN_LABELS else ''}}}"

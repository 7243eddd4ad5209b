"""The queries that a policy sends to a metrics source. Pure."""

from elasticd.autoscale.metrics_source import Query
from elasticd.autoscale.rules.query import filled
from elasticd.records.autoscale.policy import PRICE, Policy

__all__ = ["queries_of"]


def queries_of(policy: Policy, job: str) -> tuple[Query, ...]:
    """Return the queries with job and window filled in, each with its metric's name."""
    asked = []
    if policy.target is not None:
        asked += [(each.name, each.query, each.max_age_s) for each in policy.target.metrics]
    if policy.budget is not None and policy.budget.price_query:
        asked.append((PRICE, policy.budget.price_query, PRICE_AGE_S))
    return tuple(
        Query(
            job=job,
            name=name,
            text=filled(query, job=job, window_s=policy.window_s),
            max_age_s=max_age_s,
            window_s=policy.window_s,
        )
        for name, query, max_age_s in asked
    )


PRICE_AGE_S = 600.0
"""The greatest age of a price, in seconds: a price changes seldom, and is scraped seldom."""

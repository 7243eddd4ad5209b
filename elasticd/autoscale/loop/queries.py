"""The questions that a policy asks of a metrics source. Pure."""

from elasticd.autoscale.rules.query import filled
from elasticd.autoscale.source import Query
from elasticd.records.autoscale.policy import PRICE, Policy

__all__ = ["queries_of"]


def queries_of(policy: Policy, job: str) -> tuple[Query, ...]:
    """Return the queries with the job's name and the window filled in, each under its metric's
    name.
    """
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
"""How old a price may be: it changes seldom, and is scraped seldom."""

"""Asks Prometheus for each query of a policy, before the policy is set: its value now and its
range in the last hour.
"""

from collections.abc import Iterator
from contextlib import closing

from elasticd.autoscale.explain.quantity import number
from elasticd.autoscale.loop.queries import queries_of
from elasticd.autoscale.prometheus.client import PrometheusClient
from elasticd.autoscale.prometheus.settings import PrometheusSettings
from elasticd.errors import CallError, Unavailable
from elasticd.records.autoscale.policy import Policy

__all__ = ["check_queries"]

PAST_S, STEP_S = 3600.0, 60.0
"""The queried past and its step, in seconds: the last hour shows whether a target makes sense."""


def check_queries(policy: Policy, job: str, settings: PrometheusSettings) -> list[str]:
    """Return one sentence for each query with its value now.

    Raises:
        CallError: Prometheus refuses a query, or a query can never be one number; the message has
            Prometheus' words.
        EnvironmentProblem: a file that was named cannot be used.
        Unavailable: Prometheus does not answer.
    """
    with closing(PrometheusClient(settings)) as client:
        try:
            return list(_trial_sentences(policy, job, client))
        except Unavailable as exc:
            raise Unavailable(
                f"{exc} Nothing was set; without --prometheus a policy is set unchecked."
            ) from exc


def _trial_sentences(policy: Policy, job: str, client: PrometheusClient) -> Iterator[str]:
    for query in queries_of(policy, job):
        reading = client.check(query)
        if reading.value is not None:
            yield f"{query.name} is {number(reading.value)} now{_before(query.text, client)}"
        else:
            yield f"{query.name} has no number now ({reading.why}): {reading.detail}"


def _before(text: str, client: PrometheusClient) -> str:
    """Return the range of a query's values in the last hour.

    The text is empty if the range is not known; then the query is not refused.
    """
    try:
        values = [point.value for point in client.past(text, PAST_S, STEP_S)]
    except (CallError, Unavailable):
        return ""
    if len(values) < 2:
        return ""
    return f", and was between {number(min(values))} and {number(max(values))} within the last hour"

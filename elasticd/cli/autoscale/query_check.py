"""Asks Prometheus about each query of a policy before it is set: what it says now, and
said lately.
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
"""The past that is asked for: the last hour tells whether a target makes sense."""


def check_queries(policy: Policy, job: str, settings: PrometheusSettings) -> list[str]:
    """Return what each query says now, as a sentence each.

    Raises:
        CallError: Prometheus refuses one, or it can never be one number; with Prometheus' words.
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
    """Return between which values it was; empty if nobody knows, which is no reason to refuse."""
    try:
        values = [point.value for point in client.past(text, PAST_S, STEP_S)]
    except (CallError, Unavailable):
        return ""
    if len(values) < 2:
        return ""
    return f", and was between {number(min(values))} and {number(max(values))} within the last hour"

"""Asks Prometheus once about each query of a policy, before the policy is set."""

from collections.abc import Iterator
from contextlib import closing

from elasticd.autoscale.explain.quantity import number
from elasticd.autoscale.loop.queries import queries_of
from elasticd.autoscale.prometheus.client import PrometheusClient
from elasticd.autoscale.prometheus.settings import PrometheusSettings
from elasticd.records.autoscale.policy import Policy

__all__ = ["check_queries"]


def check_queries(policy: Policy, job: str, settings: PrometheusSettings) -> list[str]:
    """Return what each query says now, as a sentence each.

    Raises:
        CallError: Prometheus refuses one, or it can never be one number; with Prometheus' words.
        EnvironmentProblem: a file that was named cannot be used.
        Unavailable: Prometheus does not answer.
    """
    with closing(PrometheusClient(settings)) as client:
        return list(_said(policy, job, client))


def _said(policy: Policy, job: str, client: PrometheusClient) -> Iterator[str]:
    for query in queries_of(policy, job):
        reading = client.check(query)
        if reading.value is not None:
            yield f"{query.name} is {number(reading.value)} now"
        else:
            yield f"{query.name} has no number now ({reading.why}): {reading.detail}"

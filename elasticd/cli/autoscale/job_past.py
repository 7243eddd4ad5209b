"""Asks Prometheus for the past values of a job's queries, for a simulation."""

import time
from collections.abc import Callable
from contextlib import closing

from elasticd.autoscale.loop.queries import queries_of
from elasticd.autoscale.prometheus.client import PrometheusClient
from elasticd.autoscale.prometheus.settings import PrometheusSettings
from elasticd.autoscale.rules.query import filled
from elasticd.autoscale.simulator.past import JobPast, PastValue
from elasticd.autoscale.simulator.replay import EVERY_S, MOST_S, JobHistory
from elasticd.goodput.cause import TimeCause
from elasticd.records.autoscale.policy import Policy

__all__ = ["job_past"]

SHARE_WINDOW_S = 60.0
"""The time over which the share of a cause is computed: agents write the account every 15 s, and
Prometheus scrapes them as often."""
_SLOTS = 'elasticd_slot_seconds_total{job_name="$job",cause'


def job_past(
    policy: Policy,
    history: JobHistory,
    settings: PrometheusSettings,
    unix_s: Callable[[], float] = time.time,
) -> JobPast:
    """Return the values that Prometheus has of the job's time, or of its first day.

    Raises:
        CallError: Prometheus refuses a query, or a query has several series; the message has
            Prometheus' words.
        EnvironmentProblem: a file that was named cannot be used.
        Unavailable: Prometheus does not answer.
    """
    lasted_s = max(EVERY_S, min(MOST_S, history.lasted_s))
    with closing(PrometheusClient(settings)) as client:

        def of(text: str) -> tuple[PastValue, ...]:
            ago_s = max(0.0, unix_s() - history.began_unix_s)
            points = client.past(text, lasted_s, EVERY_S, max(0.0, ago_s - lasted_s))
            return tuple(
                PastValue(at_s=max(0.0, ago_s - each.ago_s), value=each.value) for each in points
            )

        return JobPast(
            step_s=EVERY_S,
            readings={query.name: of(query.text) for query in queries_of(policy, history.job)},
            pause_share=of(_share(TimeCause.PAUSE, history.job)) if policy.idle else (),
            data_share=of(_share(TimeCause.DATA, history.job)) if policy.idle else (),
        )


def _share(cause: TimeCause, job: str) -> str:
    """Return PromQL for one cause's share of the job's slot time; spares do not count."""
    of_cause = f'{_SLOTS}="{cause.value}"}}'
    of_all = f'{_SLOTS}!="{TimeCause.SPARE.value}"}}'
    query = f"(sum(rate({of_cause}[$window])) or vector(0)) / sum(rate({of_all}[$window]))"
    return filled(query, job=job, window_s=SHARE_WINDOW_S)

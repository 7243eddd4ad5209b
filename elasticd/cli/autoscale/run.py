"""`elasticd autoscale run`: the daemon that sizes the jobs of a cluster that have a policy."""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import click

from elasticd.autoscale.seen import Reading
from elasticd.autoscale.source import Query
from elasticd.cli.autoscale.prometheus_flags import prometheus_options, prometheus_url
from elasticd.cli.connect import etcd_options, keys_of, open_store, settings_from
from elasticd.cli.number import duration
from elasticd.cli.secrecy import hide_from_user
from elasticd.errors import CallError
from elasticd.telemetry import log

__all__ = ["run"]

LEAST_PERIOD_S, LEAST_LEASE_TTL_S = 0.1, 2.0


class NoSource:
    """Answers nothing."""

    def read(self, queries: Sequence[Query]) -> Mapping[Query, Reading]:
        """Say of each query that nobody is there to be asked."""
        none = Reading(value=None, why="unreachable", detail="No Prometheus was named.")
        return dict.fromkeys(queries, none)

    def check(self, query: Query) -> None:
        """Take none."""

    def close(self) -> None:
        """There is nothing to close."""


@click.command()
@etcd_options
@prometheus_options
@click.option(
    "--period",
    "period_s",
    type=duration,
    metavar="TIME",
    default="15s",
    show_default=True,
    help="Between two evaluations.",
)
@click.option(
    "--lease-ttl",
    "ttl_s",
    type=duration,
    metavar="TIME",
    default="10s",
    show_default=True,
    help="A leader that is gone is followed within this time.",
)
@click.option("--log-level", type=click.Choice(list(log.LEVELS)), default="info")
@click.option("--log-json/--log-console", "is_log_json", default=None, help="[by terminal]")
def run(
    period_s: float,
    ttl_s: float,
    log_level: str,
    is_log_json: bool | None,
    **values: Any,
) -> int:
    """Size the jobs that have a policy (`elasticd autoscale set`), until it is stopped.

    Any number of these may run: one leads, the others stand by. SIGTERM gives the lead back.
    """
    settings = settings_from(values, os.environ)
    if settings is None:
        raise CallError(
            "An autoscaler needs etcd: give --etcd http://HOST:2379 or set ELASTICD_ETCD. (On one "
            "machine alone, `elasticd run --autoscale FILE` starts all of it.)"
        )
    prometheus_url(values)
    for flag, value, least in (
        ("--period", period_s, LEAST_PERIOD_S),
        ("--lease-ttl", ttl_s, LEAST_LEASE_TTL_S),
    ):
        if value < least:
            raise CallError(f"{flag} {value:g}s is below {least:g} seconds, the least possible.")
    log.configure(is_log_json, log_level, has_thread=True)
    if settings.password:
        hide_from_user()
    keys = keys_of(values, os.environ)
    with closing(open_store(settings, keys)) as store:
        from elasticd.autoscale.loop.daemon import Daemon
        from elasticd.autoscale.loop.evaluation import JobEvaluation
        from elasticd.autoscale.metrics.counts import AutoscalerCounts

        counts = AutoscalerCounts()
        daemon = Daemon(
            store,
            keys,
            lambda term: JobEvaluation(store, keys, NoSource(), counts, term),
            period_s=period_s,
            ttl_s=ttl_s,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: daemon.stop())
        daemon.run()
    return 0

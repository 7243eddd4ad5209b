"""`elasticd autoscale run`: the daemon that sizes the jobs of a cluster that have a policy."""

import os
import signal
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from elasticd.autoscale.prometheus.settings import PrometheusSettings, endpoint
from elasticd.cli.autoscale.prometheus_flags import (
    open_source,
    prometheus_options,
    prometheus_settings,
)
from elasticd.cli.daemons.agent import end_with
from elasticd.cli.daemons.listen_address import listen_address
from elasticd.cli.etcd_flags import etcd_options, keys_of, prepare_store, required_settings
from elasticd.cli.parse_value import check_range, duration, not_empty
from elasticd.net.listener import host_port
from elasticd.records.keys import Keys
from elasticd.store.api import LEAST_LEASE_TTL_S, MOST_LEASE_TTL_S, Store
from elasticd.telemetry import log

if TYPE_CHECKING:
    from elasticd.autoscale.loop.evaluation import JobEvaluation
    from elasticd.autoscale.metrics import AutoscalerCounts
    from elasticd.autoscale.metrics_source import MetricsSource
    from elasticd.leader.election import Term

__all__ = ["run"]

LEAST_PERIOD_S = 0.1
MOST_PERIOD_S = 86_400.0
LEAST_ANSWER_S = 5.0
"""The time that Prometheus has for one evaluation, in seconds, if the period is shorter."""

_log = log.get_logger()


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
    envvar="ELASTICD_PERIOD",
    help="Time between two evaluations.",
)
@click.option(
    "--lease-ttl",
    "ttl_s",
    type=duration,
    metavar="TIME",
    default="10s",
    show_default=True,
    help="If the leader ends, another process leads within this time.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    type=not_empty,
    default="127.0.0.1:9481",
    show_default=True,
    envvar="ELASTICD_LISTEN",
    help="Address of /metrics, /healthz and /readyz; port 0: any free port.",
)
@click.option(
    "--dry-run",
    "is_dry_run",
    is_flag=True,
    help="Record decisions for `explain`, but change no job's size.",
)
@click.option("--log-level", type=click.Choice(list(log.LEVELS)), default="info")
@click.option("--parent-pid", type=int, default=None, hidden=True)
@click.option("--log-json/--log-console", "is_log_json", default=None, help="[by terminal]")
def run(
    period_s: float,
    ttl_s: float,
    listen: str,
    is_dry_run: bool,
    log_level: str,
    is_log_json: bool | None,
    parent_pid: int | None,
    **values: Any,
) -> int:
    """Size the jobs that have a policy (`elasticd autoscale set`), until it is stopped.

    Several of these processes may run: one leads, the others stand by. After SIGTERM another one
    leads. Without --prometheus it asks the agents for the metrics that policies name. A process
    with --dry-run may lead like any other; while it leads, no process sizes a job.
    """
    if parent_pid is not None:
        end_with(parent_pid)
    hint = " (On one machine alone, `elasticd run --autoscale FILE` starts all of it.)"
    settings = required_settings(values, os.environ, who="An autoscaler", hint=hint)
    check_range("--period", period_s, LEAST_PERIOD_S, MOST_PERIOD_S)
    check_range("--lease-ttl", ttl_s, LEAST_LEASE_TTL_S, MOST_LEASE_TTL_S)
    host, port = listen_address(listen)
    prometheus = _prometheus(values, period_s)
    keys = keys_of(values, os.environ)
    log.configure(is_log_json, log_level, has_thread=True)
    with ExitStack() as stack:
        # These imports are slow (grpc, urllib3), so they come only now.
        from elasticd.autoscale.metrics import AutoscalerCounts
        from elasticd.autoscale.prometheus.credentials import Credentials
        from elasticd.leader.daemon import Daemon
        from elasticd.leader.http_server import MetricsServer

        if prometheus is not None:  # A missing file is reported before etcd is asked.
            Credentials(prometheus, endpoint(prometheus)).current()
        store = stack.enter_context(closing(prepare_store(settings)))
        source = stack.enter_context(closing(open_source(prometheus, store, keys, settings)))
        counts = AutoscalerCounts()
        daemon = Daemon(
            store,
            keys.autoscaler_election,
            partial(_evaluation, store, keys, source, counts, is_dry_run),
            period_s=period_s,
            ttl_s=ttl_s,
            told_lead=counts.leads,
            source=lambda: "agents" if prometheus is None else "prometheus",
        )
        server = MetricsServer(
            host, port, counts, is_alive=daemon.is_alive, why_unready=lambda: daemon.trouble
        )
        stack.callback(server.close)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: daemon.stop())
        at = host_port(host, server.port)
        _log.info("autoscaler.started", listen=at, period_s=period_s, is_dry_run=is_dry_run)
        daemon.run()
    _log.info("autoscaler.ended")
    return 0


def _evaluation(
    store: Store,
    keys: Keys,
    source: "MetricsSource",
    counts: "AutoscalerCounts",
    is_dry_run: bool,
    term: "Term",
) -> "JobEvaluation":
    from elasticd.autoscale.loop.evaluation import JobEvaluation

    return JobEvaluation(store, keys, source, counts, term, is_dry_run=is_dry_run)


def _prometheus(values: dict[str, Any], period_s: float) -> PrometheusSettings | None:
    """Return the settings of Prometheus, with a timeout so that no query delays an evaluation."""
    given = prometheus_settings(values)
    if given is None:
        return None
    limit_s = min(given.timeout_s, max(period_s, LEAST_ANSWER_S))
    return replace(given, timeout_s=limit_s)

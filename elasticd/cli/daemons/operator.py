"""`elasticd operator`: the daemon that makes jobs of the ElasticJobs of a Kubernetes cluster."""

import os
import signal
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import click

from elasticd.cli.daemons.listen_address import listen_address
from elasticd.cli.etcd_flags import etcd_options, keys_of, prepare_store, required_settings
from elasticd.cli.parse_value import check_range, duration, not_empty
from elasticd.net.listener import host_port
from elasticd.store.api import LEAST_LEASE_TTL_S, MOST_LEASE_TTL_S
from elasticd.telemetry import log

__all__ = ["operator"]

DEFAULT_KUBECONFIG = "~/.kube/config"

_log = log.get_logger()


@click.command()
@etcd_options
@click.option(
    "--kubeconfig",
    metavar="FILE",
    type=not_empty,
    envvar="KUBECONFIG",
    help=f"File that names the API server and the user.  [in a pod: its ServiceAccount; "
    f"else {DEFAULT_KUBECONFIG}]",
)
@click.option(
    "--context",
    metavar="NAME",
    type=not_empty,
    help="Context of the kubeconfig.  [its current one]",
)
@click.option(
    "--namespace",
    metavar="NAME",
    type=not_empty,
    envvar="ELASTICD_NAMESPACE",
    help="Run only the ElasticJobs of this namespace.  [all namespaces]",
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
    default="127.0.0.1:9482",
    show_default=True,
    envvar="ELASTICD_LISTEN",
    help="Address of /metrics, /healthz and /readyz; port 0: any free port.",
)
@click.option(
    "--journal",
    metavar="FILE",
    type=not_empty,
    help="Record all observations and decisions in this file, for a bug report.  [no]",
)
@click.option("--log-level", type=click.Choice(list(log.LEVELS)), default="info")
@click.option("--log-json/--log-console", "is_log_json", default=None, help="[by terminal]")
def operator(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    ttl_s: float,
    listen: str,
    journal: str | None,
    log_level: str,
    is_log_json: bool | None,
    **values: Any,
) -> int:
    """Run the ElasticJobs of a Kubernetes cluster as jobs, until it is stopped.

    Several of these processes may run: one leads, the others stand by. After SIGTERM another one
    leads. Jobs continue to train while no operator runs, and while the API server does not answer.
    """
    settings = required_settings(values, os.environ, who="An operator")
    check_range("--lease-ttl", ttl_s, LEAST_LEASE_TTL_S, MOST_LEASE_TTL_S)
    host, port = listen_address(listen)
    keys = keys_of(values, os.environ)
    log.configure(is_log_json, log_level, has_thread=True)
    with ExitStack() as stack:
        # These imports are slow (grpc, kubernetes, urllib3), so they come only now.
        from elasticd.kube.api.connection import open_connection
        from elasticd.kube.api.kubernetes_api import KubernetesApi
        from elasticd.kube.operator.counts import OperatorCounts
        from elasticd.kube.operator.journal_file import JournalFile
        from elasticd.kube.operator.process import OperatorProcess, check_server

        book = JournalFile(Path(journal)) if journal is not None else None
        counts = OperatorCounts()
        connection = open_connection(_kubeconfig(kubeconfig), context or "", told=counts.asked)
        api = stack.enter_context(closing(KubernetesApi(connection)))
        check_server(api, namespace or "")
        store = stack.enter_context(closing(prepare_store(settings)))
        process = OperatorProcess(
            store,
            keys,
            api,
            settings,
            counts,
            namespace=namespace or "",
            ttl_s=ttl_s,
            journal=book,
            listen=(host, port),
        )
        stack.callback(process.close)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: process.stop())
        _log.info(
            "operator.started",
            listen=host_port(host, process.port),
            api_server=connection.host,
            namespace=namespace or "",
        )
        process.run()
    _log.info("operator.ended")
    return 0


def _kubeconfig(given: str | None) -> str:
    """Return the path of the kubeconfig file; empty for the ServiceAccount of this pod."""
    if given:
        return given
    return (
        "" if os.environ.get("KUBERNETES_SERVICE_HOST") else os.path.expanduser(DEFAULT_KUBECONFIG)
    )

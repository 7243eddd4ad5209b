"""The flags for the Prometheus to ask and for its credentials, also read from the environment."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from elasticd.autoscale.metrics_source import MetricsSource
from elasticd.autoscale.prometheus.settings import PrometheusSettings, endpoint
from elasticd.cli.etcd_flags import Values
from elasticd.cli.parse_value import not_empty
from elasticd.errors import CallError
from elasticd.records.codec import decode
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.store.api import ReadableStore, StoreSettings

__all__ = ["open_source", "prometheus_options", "prometheus_settings"]

F = TypeVar("F", bound=Callable[..., Any])

_FLAGS = (
    ("prometheus", "URL", "Address of Prometheus, as in http://prometheus:9090."),
    ("token-file", "FILE", "File with the bearer token for Prometheus; read again for each query."),
    (
        "ca-file",
        "FILE",
        "File with the CA of its certificate (https), if the system does not have it.",
    ),
    ("cert-file", "FILE", "Client certificate, if Prometheus asks for one."),
    ("key-file", "FILE", "Key of that client certificate."),
    ("user", "NAME", "User in Prometheus (basic auth)."),
    ("password-file", "FILE", "File with that user's password."),
)


def prometheus_options(command: F) -> F:
    """Add the flags; `--prometheus` also reads ELASTICD_PROMETHEUS, and so on for the others."""
    for name, metavar, text in reversed(_FLAGS):
        variable = f"ELASTICD_{'' if name == 'prometheus' else 'PROMETHEUS_'}{name.upper()}"
        command = click.option(
            f"--{name}",
            metavar=metavar,
            type=not_empty,
            envvar=variable.replace("-", "_"),
            help=text,
        )(command)
    return command


def prometheus_settings(values: Values) -> PrometheusSettings | None:
    """Return the settings of Prometheus; None if no Prometheus was named.

    Raises: CallError: the address is malformed, or flags do not go together.
    """
    url = values.get("prometheus")
    if url is None:
        for name, _, _ in _FLAGS[1:]:
            if values.get(name.replace("-", "_")) is not None:
                raise CallError(f"--{name} is for Prometheus: give --prometheus URL as well.")
        return None
    if (values.get("user") is None) != (values.get("password_file") is None):
        raise CallError("--user and --password-file belong together: give both or none.")
    if values.get("user") is not None and values.get("token_file") is not None:
        raise CallError("--token-file and --user are two ways to log in: give one of them.")
    settings = PrometheusSettings(
        url=str(url),
        bearer_token_file=values.get("token_file") or "",
        username=values.get("user") or "",
        password_file=values.get("password_file") or "",
        ca_file=values.get("ca_file") or "",
        cert_file=values.get("cert_file") or "",
        key_file=values.get("key_file") or "",
    )
    endpoint(settings)
    return settings


def open_source(
    settings: PrometheusSettings | None, store: ReadableStore, keys: Keys, etcd: StoreSettings
) -> MetricsSource:
    """Return the source that answers a policy's queries: Prometheus, or else the registered agents.

    Raises: CallError: a file that was named cannot be used.
    """
    if settings is not None:
        from elasticd.autoscale.prometheus.client import PrometheusClient  # urllib3, ssl

        return PrometheusClient(settings)
    from elasticd.autoscale.direct.agents_source import AgentsSource

    return AgentsSource(
        lambda: [decode(Node, item.value) for item in store.list(keys.nodes).items], etcd
    )

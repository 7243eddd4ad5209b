"""The flags that say which Prometheus is asked, and as whom; also from the environment."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from elasticd.cli.connect import Values
from elasticd.cli.number import not_empty
from elasticd.errors import CallError

__all__ = ["prometheus_options", "prometheus_url"]

F = TypeVar("F", bound=Callable[..., Any])

_FLAGS = (
    ("prometheus", "URL", "Where Prometheus is, as in http://prometheus:9090."),
    ("token-file", "FILE", "Holds the bearer token for it; read again for each query."),
    ("ca-file", "FILE", "CA of its certificate (https), where the system's do not do."),
    ("user", "NAME", "User of it (basic auth)."),
    ("password-file", "FILE", "Holds that user's password."),
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


def prometheus_url(values: Values) -> str:
    """Return the address of Prometheus; empty where none was given.

    Raises:
        CallError: it is no address, or flags that need one were given without it.
    """
    url = str(values.get("prometheus") or "")
    if not url:
        for name, _, _ in _FLAGS[1:]:
            if values.get(name.replace("-", "_")) is not None:
                raise CallError(f"--{name} is for Prometheus: give --prometheus URL as well.")
        return ""
    scheme, _, rest = url.partition("://")
    if scheme not in ("http", "https") or not rest.strip("/"):
        raise CallError(f"--prometheus {url!r} is no address: write http://HOST:9090.")
    if (values.get("user") is None) != (values.get("password_file") is None):
        raise CallError("--user and --password-file belong together: give both or none.")
    if values.get("user") is not None and values.get("token_file") is not None:
        raise CallError("--token-file and --user are two ways to log in: give one of them.")
    return url.rstrip("/")

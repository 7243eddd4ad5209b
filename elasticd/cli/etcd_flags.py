"""The flags and variables that name an etcd, and the store that is opened with them."""

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from elasticd.cli import parse_value
from elasticd.cli.parse_value import LAST_PORT
from elasticd.cli.secrecy import hide_from_user, secret_in
from elasticd.errors import CallError, EnvironmentProblem
from elasticd.records.ids import checked_name
from elasticd.records.keys import Keys
from elasticd.store.address import parse_addresses
from elasticd.store.api import Store, StoreSettings

__all__ = [
    "ETCD_PASSWORD",
    "Values",
    "cluster_of",
    "endpoints",
    "etcd_options",
    "etcd_parameters",
    "keys_of",
    "log_dir_of",
    "open_store",
    "prepare_store",
    "required_settings",
    "settings_from",
    "where_options",
]

ETCD_PASSWORD = "ELASTICD_ETCD_PASSWORD"  # noqa: S105  # the name of a variable
Values = Mapping[str, Any]
"""The values that click parsed; None for a flag that was not given."""
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdFlag:
    name: str
    metavar: str
    help: str


FLAGS = (
    EtcdFlag(
        name="etcd",
        metavar="URL[,URL...]",
        help="etcd's endpoints, as in http://a:2379,http://b:2379.",
    ),
    EtcdFlag(name="etcd-user", metavar="NAME", help="User in etcd."),
    EtcdFlag(
        name="etcd-password-file",
        metavar="FILE",
        help="File with that user's password; or set ELASTICD_ETCD_PASSWORD.",
    ),
    EtcdFlag(name="etcd-cacert", metavar="FILE", help="CA of etcd's certificate (https)."),
    EtcdFlag(name="etcd-cert", metavar="FILE", help="Client certificate."),
    EtcdFlag(name="etcd-key", metavar="FILE", help="Key of the client certificate."),
    EtcdFlag(
        name="cluster",
        metavar="NAME",
        help="Name of the cluster: a prefix of its keys in etcd.  [default]",
    ),
)


def etcd_parameters() -> list[click.Parameter]:
    """Build the flags; each also reads ELASTICD_<NAME> from the environment."""
    return [click.Option([f"--{flag.name}"], **_settings(flag)) for flag in FLAGS]


def etcd_options(command: F) -> F:
    """Add the flags to a command."""
    for flag in reversed(FLAGS):
        command = click.option(f"--{flag.name}", **_settings(flag))(command)
    return command


def where_options(command: F) -> F:
    """Add the flags that say which cluster, or which folder of local runs."""
    command = click.option(
        "--log-dir", "--log_dir", metavar="DIR", help="Run folder of local runs.  [./elasticd-runs]"
    )(command)
    return etcd_options(command)


def settings_from(values: Values, environ: Mapping[str, str]) -> StoreSettings | None:
    """Build the settings from flags, then from the environment; None if no etcd was named.

    Raises: CallError: an endpoint, a password file or a set of certificates cannot be used.
    """
    urls = _given(values, environ, "etcd")
    if not urls:
        return None
    settings = StoreSettings(
        endpoints=endpoints(urls),
        user=_given(values, environ, "etcd_user"),
        password=_password(values, environ),
        ca_file=_given(values, environ, "etcd_cacert"),
        cert_file=_given(values, environ, "etcd_cert"),
        key_file=_given(values, environ, "etcd_key"),
    )
    if bool(settings.cert_file) != bool(settings.key_file):
        raise CallError("--etcd-cert and --etcd-key belong together: give both or none.")
    if settings.ca_file and not settings.endpoints[0].startswith("https://"):
        raise CallError("--etcd-cacert was given with an http:// endpoint: write https://.")
    if settings.user and not settings.password:
        raise CallError(
            f"--etcd-user {settings.user} needs a password: give --etcd-password-file or set "
            f"{ETCD_PASSWORD}."
        )
    for flag, path in (
        ("--etcd-cacert", settings.ca_file),
        ("--etcd-cert", settings.cert_file),
        ("--etcd-key", settings.key_file),
    ):
        if path:
            _readable(flag, path)
    return settings


def required_settings(
    values: Values, environ: Mapping[str, str], *, who: str, hint: str = ""
) -> StoreSettings:
    """Build the settings as `settings_from` does, for a daemon that cannot work without etcd.

    Raises: CallError: no etcd was named, or a setting cannot be used. The sentence begins with
        `who` and ends with `hint`.
    """
    settings = settings_from(values, environ)
    if settings is None:
        raise CallError(
            f"{who} needs etcd: give --etcd http://HOST:2379 or set ELASTICD_ETCD.{hint}"
        )
    return settings


def endpoints(urls: str) -> tuple[str, ...]:
    """Split and check a list of endpoints; `host:port` counts as http.

    Raises: CallError: an endpoint is malformed, there is none, or the schemes are not all equal.
    """
    found = []
    for url in filter(None, (part.strip() for part in urls.split(","))):
        if url.startswith("unix:///"):
            found.append(url)
            continue
        full = url if "://" in url else f"http://{url}"
        scheme, _, rest = full.partition("://")
        host, _, port = rest.rstrip("/").rpartition(":")
        is_port = re.fullmatch("[0-9]{1,5}", port) is not None and int(port) <= LAST_PORT
        if scheme not in ("http", "https") or not host or not is_port:
            raise CallError(
                f"--etcd {url!r} is not an endpoint: write http://HOST:PORT, several with commas."
            )
        parse_addresses((full,))
        found.append(f"{scheme}://{host}:{port}")
    if len({url.partition("://")[0] for url in found}) != 1:
        raise CallError(
            f"--etcd {urls!r} mixes http, https and unix or is empty: take one of them."
        )
    return tuple(found)


def log_dir_of(values: Values, environ: Mapping[str, str]) -> str:
    """Return the run folder from the flag, from our variable, or from torchrun's variable; empty if
    none of them is set.
    """
    return _given(values, environ, "log_dir") or environ.get("PET_LOG_DIR", "")


def cluster_of(values: Values, environ: Mapping[str, str]) -> str:
    return checked_name("--cluster", _given(values, environ, "cluster") or "default")


def keys_of(values: Values, environ: Mapping[str, str]) -> Keys:
    return Keys(cluster=cluster_of(values, environ))


def open_store(settings: StoreSettings, keys: Keys) -> Store:
    """Connect and make one request, so that a wrong address or password raises an error at once."""
    store = prepare_store(settings)
    try:
        store.get(keys.root)
    except BaseException:
        store.close()
        raise
    return store


def prepare_store(settings: StoreSettings) -> Store:
    """Return the store of a daemon without a request to etcd: etcd may start after the daemon.

    Raises: CallError: an address is malformed or a TLS file cannot be read.
    """
    from elasticd.store.etcd.store import EtcdStore  # grpc takes 150 ms, so only users import it

    return EtcdStore(settings)


def _hide_with_password(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Hide this process if it is about to know the password; click calls this for the flag.

    click calls the function before each command that takes the flags, even if none is given: before
    a daemon, a command that only reads, and a command that follows a run for days. Code that only
    parses the words of a command, outside the group, does not call a command, so nothing is hidden.
    """
    names = (ETCD_PASSWORD, f"{ETCD_PASSWORD}_FILE")
    is_called = ctx.parent is not None and not ctx.resilient_parsing
    if is_called and (value is not None or any(map(os.environ.get, names))):
        hide_from_user()
    return value


def _settings(flag: EtcdFlag) -> dict[str, Any]:
    return {
        "callback": _hide_with_password if flag.name == "etcd-password-file" else None,
        "metavar": flag.metavar,
        "default": None,
        "help": flag.help,
        "type": parse_value.not_empty,
    }


def _given(values: Values, environ: Mapping[str, str], name: str) -> str:
    flag = values.get(name)
    return str(flag) if flag is not None else environ.get(f"ELASTICD_{name.upper()}", "")


def _password(values: Values, environ: Mapping[str, str]) -> str:
    path = _given(values, environ, "etcd_password_file")
    if not path:
        return environ.get(ETCD_PASSWORD, "")
    try:
        return secret_in(path).rstrip("\n")
    except OSError as exc:
        raise EnvironmentProblem(
            f"--etcd-password-file {path} cannot be read: {exc.strerror}."
        ) from exc
    except ValueError as exc:
        raise EnvironmentProblem(
            f"--etcd-password-file {path} {exc}: give the file that holds the password and "
            "nothing else."
        ) from exc


def _readable(flag: str, path: str) -> None:
    try:
        with Path(path).open("rb") as file:
            is_device = stat.S_ISCHR(os.fstat(file.fileno()).st_mode)
        if is_device:
            raise EnvironmentProblem(f"{flag} {path} is a device: give a file.")
    except OSError as exc:
        raise EnvironmentProblem(f"{flag} {path} cannot be read: {exc.strerror}.") from exc

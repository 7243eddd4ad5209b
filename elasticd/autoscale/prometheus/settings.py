"""The address of a Prometheus, and the files of the credentials, never their contents."""

from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from elasticd.errors import CallError

__all__ = ["Endpoint", "PrometheusSettings", "endpoint"]

TIMEOUT_S = 10.0
HINT = "give its address as http://host:9090 or https://host/prefix"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings:
    """The settings that the person who runs the autoscaler gives."""

    url: str
    """The URL: `http` or `https`, with the path of the API if that is not `/`."""
    bearer_token_file: str = ""
    """The file of the token; it is read again when it changes, as all files here are. It excludes
    `username`."""
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    """The file of the CA for the server's certificate; if empty, the CAs that this machine trusts
    are used."""
    cert_file: str = ""
    """The client's certificate, with `key_file`; empty if there is none."""
    key_file: str = ""
    timeout_s: float = TIMEOUT_S
    """The time limit for all queries of one evaluation together, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The parsed address of one Prometheus."""

    host: str
    port: int
    is_tls: bool
    prefix: str
    """The path before the API's own, without a slash at its end; may be empty."""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}{self.prefix}"


def endpoint(settings: PrometheusSettings) -> Endpoint:
    """Parse the address, and check that the settings are consistent.

    Raises: CallError: the URL is no address of a Prometheus, or two settings contradict each other.
    """
    try:
        parts = urlsplit(settings.url)
        port = parts.port
    except ValueError as exc:
        raise CallError(f"{_shown(settings.url)!r} is no URL ({exc}): {HINT}.") from exc
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CallError(f"{_shown(settings.url)!r} is no URL of a Prometheus: {HINT}.")
    _refuse_more(parts)
    is_tls = parts.scheme == "https"
    if (settings.ca_file or settings.cert_file) and not is_tls:
        raise CallError(
            f"The address of Prometheus is {parts.scheme}://{parts.netloc}, where certificates "
            "count for nothing: give it with https://, or leave them out."
        )
    if bool(settings.cert_file) != bool(settings.key_file):
        raise CallError("A client certificate for Prometheus needs its key, and the other way.")
    if settings.bearer_token_file and settings.username:
        raise CallError("Prometheus takes a bearer token or a user name: give one of them.")
    if bool(settings.username) != bool(settings.password_file):
        raise CallError("A user name for Prometheus needs a file with the password, and it a name.")
    if ":" in settings.username or not settings.username.isprintable():
        raise CallError("A user name of basic auth has no colon and no control character.")
    if not 0 < settings.timeout_s <= 3600:
        raise CallError(f"A time limit of {settings.timeout_s:g} s for Prometheus is not usable.")
    return Endpoint(
        host=parts.hostname,
        port=port or (443 if is_tls else 80),
        is_tls=is_tls,
        prefix=parts.path.rstrip("/"),
    )


def _refuse_more(parts: SplitResult) -> None:
    if parts.username is not None or parts.password is not None:
        raise CallError(
            "The address of Prometheus holds a user name or a password, which everybody can read "
            "there: give them by a user name and a file with the password."
        )
    if parts.query or parts.fragment:
        raise CallError(f"The address of Prometheus ends with its path: {HINT}.")
    if not (parts.path.isascii() and parts.path.isprintable()) or " " in parts.path:
        raise CallError(f"The path {parts.path!r} of Prometheus' address is not usable: {HINT}.")


def _shown(url: str) -> str:
    """Return a URL without any part that may be a password."""
    return url.rpartition("@")[2][:200]

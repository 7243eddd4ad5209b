"""Where an etcd answers: one URL of the operator, as gRPC and the operator both need it.

One channel is kept per address, never one channel over all of them: So the name that TLS checks is
the name in the URL, and a member that runs but is useless (no leader) can be left for another.
gRPC's own balancing would stay with it as long as the connection stands.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from elasticd.errors import CallError

__all__ = ["DEFAULT_PORT", "Address", "parse_addresses"]

DEFAULT_PORT = 2379


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One endpoint of etcd."""

    host: str
    """A name, an IPv4 address, or an IPv6 address without brackets."""
    port: int
    is_tls: bool
    path: str = ""
    """The path of a unix socket, instead of host and port."""

    @property
    def url(self) -> str:
        if self.path:
            return f"unix://{self.path}"
        return f"{'https' if self.is_tls else 'http'}://{self._host_in_url}:{self.port}"

    @property
    def target(self) -> str:
        """The address as gRPC writes it. A name is looked up again at every reconnection."""
        if self.path:
            return f"unix:{self.path}"
        return f"dns:///{self._host_in_url}:{self.port}"

    @property
    def _host_in_url(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_addresses(endpoints: Sequence[str]) -> tuple[Address, ...]:
    """Parse the operator's list; each item may itself hold several, separated by commas.

    Raises: CallError: an endpoint is not a URL of etcd, there is none, or the schemes differ.
    """
    texts = [part.strip() for endpoint in endpoints for part in endpoint.split(",")]
    addresses = tuple(dict.fromkeys(_parse(text) for text in texts if text))
    if not addresses:
        raise CallError("No address of etcd was given: name one with --etcd http://host:2379.")
    if len({address.is_tls for address in addresses}) > 1:
        listed = ", ".join(address.url for address in addresses)
        raise CallError(f"The addresses of etcd mix http and https ({listed}): use one of them.")
    return addresses


def _parse(text: str) -> Address:
    if "@" in text:  # Not repeated in the message: it holds a password.
        raise CallError(
            "An address of etcd holds a user or a password: give them as settings of their own,"
            " addresses are shown in logs."
        )
    if text.startswith("unix:///"):
        path = text.removeprefix("unix://")
        return Address(host="localhost", port=DEFAULT_PORT, is_tls=False, path=path)
    # A bare host:port is what etcdctl takes, so operators write it.
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        # As a resolver takes it: `etcd..svc`, of an unset variable, raises UnicodeError there.
        (host or "").encode("idna")
    except ValueError:
        host, port, parts = None, None, SplitResult("", "", "", "", "")
    is_plain = parts.path in ("", "/") and not parts.query and not parts.fragment
    if parts.scheme not in ("http", "https") or not host or port == 0 or not is_plain:
        raise CallError(
            f"The address of etcd {text!r} is not understood: write http://host:{DEFAULT_PORT},"
            f" http://[fd00::1]:{DEFAULT_PORT}, the same with https, or unix:///path/of/socket."
        )
    return Address(host=host, port=port or DEFAULT_PORT, is_tls=parts.scheme == "https")

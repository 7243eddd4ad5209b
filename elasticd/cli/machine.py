"""Facts about this machine: its GPUs, CPUs, address and user. This module imports no torch."""

import ipaddress
import os
import pwd
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from elasticd.errors import CallError, EnvironmentProblem
from elasticd.net.listener import family_of
from elasticd_agent.worker_setup.gpus import visible_gpus

__all__ = [
    "cpu_count",
    "gpu_count",
    "own_address",
    "reachable_address",
    "says_loopback",
    "sources_towards",
    "submitter",
]


_ADDRESS_PREFERENCES, _PUBLIC = 72, 2
"""IPV6_ADDR_PREFERENCES and IPV6_PREFER_SRC_PUBLIC of <linux/in6.h> (RFC 5014)."""


def gpu_count(
    environ: Mapping[str, str], dev: Path = Path("/dev"), sys: Path = Path("/sys")
) -> int:
    """Count the GPUs of this machine that its environment leaves visible."""
    return len(visible_gpus(environ, dev, sys).names)


def cpu_count() -> int:
    """Return the number of CPUs that this process may use, as torchrun counts them."""
    return len(os.sched_getaffinity(0))


def submitter() -> str:
    """Return the caller as `user@host`; the user's number if the machine has no name for it."""
    number = os.getuid()
    try:
        user = pwd.getpwuid(number).pw_name
    except KeyError:  # The user of this container has no name.
        user = str(number)
    return f"{user}@{socket.gethostname()}"


def own_address(
    endpoints: Sequence[str],
    sources: Callable[[str, int], Iterable[str]] | None = None,
) -> str:
    """Return the address of the interface that leads to etcd; other nodes reach this machine there.

    The function tries each endpoint in turn, since an endpoint may be this machine itself. A
    machine's own name often resolves to 127.0.1.1, or does not resolve (pytorch#73380). A loopback
    address is returned only if every endpoint is written as loopback: otherwise other machines
    would read the address from etcd, and connect to themselves.

    Raises: EnvironmentProblem: no endpoint leads to an address that other machines can reach.
    """
    parsed = [urlsplit(endpoint) for endpoint in endpoints]
    hosts = [parts.hostname or "127.0.0.1" for parts in parsed]
    for host, parts in zip(hosts, parsed, strict=True):
        for source in (sources or sources_towards)(host, parts.port or 2379):
            if not _is_loopback(source):
                return source
    if all(says_loopback(host) for host in hosts):
        return "::1" if hosts[0] == "::1" else "127.0.0.1"
    raise EnvironmentProblem(
        f"The way from this machine to etcd ({', '.join(endpoints)}) shows no address of its own "
        "that other machines reach: no endpoint's name resolves, there is no route yet, or they "
        "all lead back to this machine. Give its address with --local-addr."
    )


def reachable_address(given: str, endpoints: Sequence[str]) -> str:
    """Return the value of `--local-addr` if other machines can reach this one there.

    An agent listens at what the name means here, and Debian's /etc/hosts maps a machine's own name
    to 127.0.1.1. Peers would find nobody at its real address, and declare this agent dead. A
    loopback address is right only if every endpoint is written as loopback.

    Raises:
        CallError: it is a loopback address here.
        EnvironmentProblem: the name does not resolve here.
    """
    try:
        found = socket.getaddrinfo(given, None, family_of(given), socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise EnvironmentProblem(
            f"--local-addr {given} does not resolve on this machine: give its address."
        ) from exc
    parts = [urlsplit(each) for each in endpoints]
    # The etcd of a run on this machine alone is behind a socket in a folder.
    if all(each.scheme == "unix" or says_loopback(each.hostname or "") for each in parts):
        return given
    for *_, target in found:
        address = str(target[0])
        known = ipaddress.ip_address(address.partition("%")[0])
        if known.is_loopback or known.is_unspecified:
            here = f"{address} on this machine" if address != given else "this machine alone"
            raise CallError(
                f"--local-addr {given} is {here}, where others do not reach it: give its address."
            )
    return given


def says_loopback(host: str) -> bool:
    """Return whether a host is written so that each machine finds only itself there."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def sources_towards(host: str, port: int) -> Iterator[str]:
    """Return the source addresses of connections to a host; none if its name does not resolve.

    Connecting a UDP socket sends nothing, but the kernel chooses a route and a source address: of
    IPv6 a public one, since a temporary one (RFC 8981) is gone after days, and the node with it.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return
    for family, kind, protocol, _, target in found:
        with suppress(OSError), socket.socket(family, kind, protocol) as probe:
            if family == socket.AF_INET6:
                with suppress(OSError):  # A sandbox that does not know it.
                    probe.setsockopt(socket.IPPROTO_IPV6, _ADDRESS_PREFERENCES, _PUBLIC)
            probe.connect(target)
            yield str(probe.getsockname()[0])


def _is_loopback(address: str) -> bool:
    """Return whether the address means each machine itself; so does a link-local address."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True
    return known.is_loopback or known.is_unspecified or (known.version == 6 and known.is_link_local)

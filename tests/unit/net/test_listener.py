"""Ports of all addresses, and of IPv6 alone."""

import ast
import socket
from contextlib import closing
from pathlib import Path

import pytest

from elasticd.net.listener import address_of, family_of, host_port, listen

HAVE_BRACKETS = {
    "elasticd/autoscale/prometheus/settings.py",
    "elasticd/cli/etcd_flags.py",
    "elasticd/net/listener.py",
    "elasticd/store/address.py",
}
"""They begin with brackets, or write what came with them."""


def has_ipv6() -> bool:
    """Return whether this machine has a loopback of IPv6."""
    try:
        listen("::1", 0).close()
    except OSError:
        return False
    return True


def test_a_port_of_all_addresses_is_one_of_both_families() -> None:
    """Kubernetes probes a pod at its address, which may be of either."""
    with closing(listen("*", 0)) as listener:
        _, port = address_of(listener)
        for host in ("127.0.0.1", *(["::1"] if has_ipv6() else [])):
            socket.create_connection((host, port)).close()


def test_a_port_that_is_taken_is_refused_and_not_shared() -> None:
    """The other family's would else be taken in silence."""
    with closing(listen("*", 0)) as listener, pytest.raises(OSError, match="in use"):
        listen("*", address_of(listener)[1])


def test_a_machine_without_ipv6_has_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    made = socket.create_server

    def refusing(*args: object, family: int = socket.AF_INET, **more: object) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return made(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "create_server", refusing)
    with closing(listen("*", 0)) as listener:
        socket.create_connection(("127.0.0.1", address_of(listener)[1])).close()


@pytest.mark.parametrize(
    ("host", "text"),
    [("10.0.0.1", "10.0.0.1:80"), ("fd00::1", "[fd00::1]:80"), ("a.b", "a.b:80"), ("*", "*:80")],
)
def test_an_address_of_ipv6_stands_in_brackets(host: str, text: str) -> None:
    assert host_port(host, 80) == text


SIX, FOUR = (socket.AF_INET6, 1, 6, "", ("fd00::1", 0, 0, 0)), (socket.AF_INET, 1, 6, "", ())


@pytest.mark.parametrize(
    ("host", "found", "family"),
    [
        ("fd00::1", [], socket.AF_INET6),
        ("10.0.0.1", [FOUR], socket.AF_INET),
        ("both", [SIX, FOUR], socket.AF_INET),
        ("six", [SIX], socket.AF_INET6),
        ("none", [], socket.AF_INET),
    ],
)
def test_name_of_an_ipv6_address_alone_is_listened_to_there(
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    found: list[tuple[object, ...]],
    family: socket.AddressFamily,
) -> None:
    """A node may give its name as its address, also in a cluster without IPv4."""

    def resolved(*_: object, **__: object) -> list[tuple[object, ...]]:
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    assert family_of(host) == family


def test_nobody_guesses_the_family_of_an_address() -> None:
    """A name has no colon, and may have no address of IPv4."""
    root = Path(__file__).parents[3]
    guessing = {
        str(path.relative_to(root))
        for folder in ("elasticd", "agent")
        for path in (root / folder).rglob("*.py")
        if 'AF_INET6 if ":" in' in path.read_text()
    }
    assert guessing == set()


def test_nobody_writes_an_address_before_a_port_by_hand() -> None:
    """`fd00::1:80` is another address, and no port; whoever reads a log cannot tell."""
    root = Path(__file__).parents[3]
    by_hand = {
        f"{path.relative_to(root)}: {ast.unparse(found)}"
        for folder in ("elasticd", "agent")
        for path in (root / folder).rglob("*.py")
        for found in ast.walk(ast.parse(path.read_text()))
        if isinstance(found, ast.JoinedStr) and _is_host_and_port(found)
    }
    assert {each.partition(":")[0] for each in by_hand} == HAVE_BRACKETS, by_hand


def _is_host_and_port(text: ast.JoinedStr) -> bool:
    """Whether `{...}:{...port}` stands in an f-string, and the first is not a port itself."""
    for host, colon, port in zip(text.values, text.values[1:], text.values[2:], strict=False):
        if not isinstance(host, ast.FormattedValue) or not isinstance(port, ast.FormattedValue):
            continue
        is_joined = isinstance(colon, ast.Constant) and colon.value == ":"
        if is_joined and ast.unparse(port.value).endswith("port"):
            return True
    return False

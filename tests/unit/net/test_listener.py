"""Ports of all addresses, and of IPv6 alone."""

import ast
import socket
from contextlib import closing
from pathlib import Path

import pytest

from elasticd.net.listener import address_of, host_port, listen

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

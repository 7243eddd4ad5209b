"""Ports of all addresses, and of IPv6 alone."""

import socket
from contextlib import closing

import pytest

from elasticd.net.listener import address_of, host_port, listen


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

"""The environment of a worker: the interface is that of the node's address, of either family."""

from pathlib import Path

import pytest

from elasticd_agent.worker_setup.worker_env import interface_of

TABLE = """\
fe8000000000000000fc00fffe000001 04 40 20 80     eth0
fe8000000000000000fc00fffe000001 0a 40 20 80  vlan10
fd000000000000000000000000000002 04 40 00 82     eth0
00000000000000000000000000000001 01 80 10 80       lo
"""


@pytest.mark.parametrize(
    ("address", "interface"),
    [
        ("fd00::2", "eth0"),
        ("FD00:0:0::0002", "eth0"),
        ("fd00::2%eth0", "eth0"),
        ("fd00::2%other", ""),
        ("fe80::fc:ff:fe00:1%vlan10", "vlan10"),
        ("fe80::fc:ff:fe00:1%10", "vlan10"),
        ("::1", "lo"),
        ("fd00::3", ""),
        ("node-1", ""),
    ],
)
def test_interface_of_an_ipv6_address_is_found(
    tmp_path: Path, address: str, interface: str
) -> None:
    """However it is spelled; of one address on two interfaces, the one of its zone."""
    table = tmp_path / "if_inet6"
    table.write_text(TABLE)
    assert interface_of(address, table) == interface


def test_interface_of_an_ipv4_address_is_found(tmp_path: Path) -> None:
    """Also where the kernel has no IPv6."""
    assert interface_of("127.0.0.1", tmp_path / "none") == "lo"
    assert interface_of("::1", tmp_path / "none") == ""

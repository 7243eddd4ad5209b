"""The network of a cluster: a namespace with the API server and a bridge, one for each node.

Nothing of it is reached from outside this machine, and no node reaches anything outside: there is
no default route. The machine itself has one end of a veth, so that a person's kubectl and the tests
reach the API server.

The machine has routes that lead nowhere for all these addresses, from before a cluster is there
until the machine is booted again. When a cluster goes, a kubectl or an operator may still want to
speak to it: that is to be an error, and no traffic of ours in the network around this machine.
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RANGES", "Network"]

RANGES = ("10.77.0.0/20", "10.78.0.0/16", "10.79.0.0/24")
"""Of the nodes, the pods and the services of all clusters that may be on one machine."""

_BRIDGE = "bridge"
_UPLINK = "eth0"
# The least preferred of all: a route of the machine's own for the very same range goes first.
_LAST_METRIC = "4294967295"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The names and addresses of one cluster; several clusters have several numbers (0 to 15)."""

    number: int
    nodes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The namespace of the API server and of the bridge."""
        return f"ekube{self.number}"

    @property
    def control_address(self) -> str:
        return f"10.77.{self.number}.1"

    @property
    def host_address(self) -> str:
        """This machine's own address in the cluster's network."""
        return f"10.77.{self.number}.254"

    def namespace(self, node: str) -> str:
        return f"{self.name}-{node}"

    def address(self, node: str) -> str:
        return f"10.77.{self.number}.{10 + self.nodes.index(node)}"

    def pod_range(self, node: str) -> str:
        """Return the addresses of a node's pods."""
        return f"10.78.{self.number * 16 + self.nodes.index(node)}.0/24"

    @property
    def enter(self) -> tuple[str, ...]:
        """The words that run a command beside the API server.

        Not `ip netns exec`: that mounts a /sys of its own.
        """
        return ("nsenter", f"--net=/run/netns/{self.name}")

    def up(self) -> None:
        """Make what is not there yet."""
        _close_way_out()
        if self.name not in _namespaces():
            self._make_control()
        for node in self.nodes:
            if self.namespace(node) not in _namespaces():
                self._make_node(node)

    def down(self) -> None:
        """Remove all of it; what still runs in it loses its network."""
        there = _namespaces()
        if self.left():
            _close_way_out()
        for name in (*map(self.namespace, self.nodes), self.name):
            if name in there:
                _ip("netns", "del", name)
        # It goes with its other end, but not at once.
        if Path("/sys/class/net", self._host_link).exists():
            subprocess.run(["ip", "link", "del", self._host_link], check=False, capture_output=True)

    def left(self) -> list[str]:
        """Return what there is of it on this machine, in words."""
        ours = [f"namespace {name}" for name in _namespaces() if self._is_ours(name)]
        links = json.loads(_ip("-json", "link", "show"))
        return ours + [
            f"link {link['ifname']}" for link in links if link["ifname"] == self._host_link
        ]

    def processes(self) -> list[int]:
        """Return the processes that live in one of its namespaces."""
        there = [name for name in _namespaces() if self._is_ours(name)]
        numbers = {Path("/run/netns", name).stat().st_ino for name in there}
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (folder / "ns" / "net").stat().st_ino in numbers:
                    found.append(int(folder.name))
        return found

    def cut(self, node: str) -> None:
        """Take a node's link down: it reaches nobody and nobody reaches it."""
        _ip("-n", self.name, "link", "set", node, "down")

    def mend(self, node: str) -> None:
        """Take a node's link up again."""
        _ip("-n", self.name, "link", "set", node, "up")

    @property
    def _host_link(self) -> str:
        return f"{self.name}-host"

    def _is_ours(self, namespace: str) -> bool:
        return namespace == self.name or namespace.startswith(f"{self.name}-")

    def _make_control(self) -> None:
        _ip("netns", "add", self.name)
        _ip("-n", self.name, "link", "set", "lo", "up")
        _ip("-n", self.name, "link", "add", _BRIDGE, "type", "bridge")
        _ip("-n", self.name, "address", "add", f"{self.control_address}/24", "dev", _BRIDGE)
        _ip("-n", self.name, "link", "set", _BRIDGE, "up")
        peer = ("type", "veth", "peer", "name", "host", "netns", self.name)
        _ip("link", "add", self._host_link, *peer)
        _ip("address", "add", f"{self.host_address}/24", "dev", self._host_link)
        _ip("link", "set", self._host_link, "up")
        _ip("-n", self.name, "link", "set", "host", "master", _BRIDGE, "up")
        for node in self.nodes:
            self._route(self.name, node)

    def _make_node(self, node: str) -> None:
        name = self.namespace(node)
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        peer = ("type", "veth", "peer", "name", _UPLINK, "netns", name)
        _ip("-n", self.name, "link", "add", node, *peer)
        _ip("-n", self.name, "link", "set", node, "master", _BRIDGE, "up")
        _ip("-n", name, "address", "add", f"{self.address(node)}/24", "dev", _UPLINK)
        _ip("-n", name, "link", "set", _UPLINK, "up")
        for other in self.nodes:
            if other != node:
                self._route(name, other)
        forwarding = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        _run(["nsenter", f"--net=/run/netns/{name}", "sh", "-c", forwarding])

    def _route(self, namespace: str, node: str) -> None:
        route = (self.pod_range(node), "via", self.address(node))
        _ip("-n", namespace, "route", "add", *route)


def _close_way_out() -> None:
    """Have this machine send nothing to a cluster's addresses but by the cluster's own link."""
    for each in RANGES:
        _ip("route", "replace", "unreachable", each, "metric", _LAST_METRIC)


def _namespaces() -> list[str]:
    folder = Path("/run/netns")
    return sorted(os.listdir(folder)) if folder.exists() else []


def _ip(*words: str) -> str:
    return _run(["ip", *words])


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout

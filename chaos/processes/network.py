"""Network namespaces for the nodes, joined by our own switch; all of it goes with `close`.

Names hold the runner's pid. What a runner that was killed left behind is swept by the next one.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from chaos.error import ChaosError
from elasticd.store.private_etcd.embedded import bound_to_us

__all__ = ["Network", "is_possible", "why_impossible"]

PREFIX = "chaos"
"""The begin of the namespaces' names: chaos-<pid>-<node>."""
HOST = "host"


def why_impossible() -> str:
    """Say what this machine lacks for network namespaces; empty: nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there is no /dev/net/tun"
    try:
        done = _ip("netns", "list", is_checked=False)
    except OSError:
        return "there is no `ip` (iproute2)"
    if done.returncode != 0:
        return f"`ip netns` does not work here: {done.stderr.strip()}"
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "this process may not make network namespaces"


def is_possible() -> bool:
    return not why_impossible()


class Network:
    """One namespace for each node."""

    def __init__(self, nodes: Sequence[str], env: dict[str, str]) -> None:
        """Make the namespaces and the switch between them.

        Raises:
            ChaosError: this machine cannot make them; the message says why.
        """
        if why := why_impossible():
            raise ChaosError(f"This scenario needs nodes with networks of their own, but {why}.")
        sweep()
        pid = os.getpid()
        # One of 16,384 subnets of the benchmark range that nobody routes (RFC 2544).
        self._subnet = f"198.{18 + pid % 2}.{pid // 2 % 256}"
        self._nodes = list(nodes)
        self._ports = {HOST: f"ch{pid}h"} | {
            node: f"ch{pid}x{number}" for number, node in enumerate(nodes)
        }
        macs = [f"{port}={self._mac(name)}" for name, port in self._ports.items()]
        self._switch = subprocess.Popen(
            bound_to_us([sys.executable, "-P", str(Path(__file__).with_name("switch.py")), *macs]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
        try:
            self._hear("ready")
            self._connect()
        except BaseException:
            self.close()
            raise

    @property
    def host_address(self) -> str:
        return self._address(HOST)

    def address(self, node: str) -> str:
        return self._address(node)

    def command(self, node: str) -> list[str]:
        """Return what to put before a command so that it runs in the node's namespace; its pid
        stays.
        """
        return [shutil.which("ip") or "ip", "netns", "exec", self._namespace(node)]

    def cut(self, node: str, *, is_mute: bool = True, is_deaf: bool = True) -> None:
        """Lose what the node sends, or what is sent to it."""
        self._set(node, out={"is_cut": is_mute}, back={"is_cut": is_deaf})

    def part(self, node: str, other: str) -> None:
        """Lose what these two send to each other."""
        for one, two in ((node, other), (other, node)):
            self._order({"from": self._ports[one], "to": self._ports[two], "is_cut": True})

    def delay(self, node: str, delay_s: float) -> None:
        """Delay what the node sends and what is sent to it."""
        self._set(node, out={"delay_s": delay_s}, back={"delay_s": delay_s})

    def repair(self, node: str) -> None:
        self._set(node, out={}, back={})

    def close(self) -> None:
        """Remove everything; the devices go with the switch."""
        self._switch.kill()
        self._switch.wait()
        for pipe in (self._switch.stdin, self._switch.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        for node in self._nodes:
            _ip("netns", "del", self._namespace(node), is_checked=False)

    def _connect(self) -> None:
        for node in self._nodes:
            space, port = self._namespace(node), self._ports[node]
            _ip("netns", "add", space)
            _ip("link", "set", port, "netns", space)
            _ip("-n", space, "link", "set", "lo", "up")
            self._raise(node, "-n", space)
        self._raise(HOST)

    def _raise(self, name: str, *where: str) -> None:
        port = self._ports[name]
        _ip(*where, "link", "set", port, "address", self._mac(name))
        _ip(*where, "addr", "add", f"{self._address(name)}/24", "dev", port)
        _ip(*where, "link", "set", port, "up")

    def _set(self, node: str, *, out: dict[str, object], back: dict[str, object]) -> None:
        for other, port in self._ports.items():
            if other != node:
                self._order({"from": self._ports[node], "to": port, **out})
                self._order({"from": port, "to": self._ports[node], **back})

    def _order(self, order: dict[str, object]) -> None:
        pipe: IO[bytes] | None = self._switch.stdin
        assert pipe is not None
        pipe.write(json.dumps(order).encode() + b"\n")
        pipe.flush()
        self._hear("done")

    def _hear(self, word: str) -> None:
        assert self._switch.stdout is not None
        said = self._switch.stdout.readline().decode().strip()
        if said != word:
            raise ChaosError(f"The network switch ended: it said {said!r} and not {word!r}.")

    def _namespace(self, node: str) -> str:
        return f"{PREFIX}-{os.getpid()}-{node}"

    def _number(self, name: str) -> int:
        return 1 if name == HOST else 2 + self._nodes.index(name)

    def _mac(self, name: str) -> str:
        return f"02:00:00:00:00:{self._number(name):02x}"

    def _address(self, name: str) -> str:
        return f"{self._subnet}.{self._number(name)}"


def sweep() -> None:
    """Remove the namespaces of runners that are dead."""
    for line in _ip("netns", "list", is_checked=False).stdout.splitlines():
        name = line.split()[0] if line.split() else ""
        parts = name.split("-")
        is_ours = parts[0] == PREFIX and len(parts) == 3 and parts[1].isdigit()
        if is_ours and not Path("/proc", parts[1]).exists():
            _ip("netns", "del", name, is_checked=False)


def _ip(*arguments: str, is_checked: bool = True) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if is_checked and done.returncode != 0:
        raise ChaosError(f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done

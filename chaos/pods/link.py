"""A node's link to all others: packets are dropped where they leave the node or come to it.

By the packet filter of the node's own network namespace, so that each direction is cut by itself,
and nobody is refused: the other side hears nothing, as of a cable that is out.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.error import ChaosError

__all__ = ["NodeLink"]

_OUT, _IN = "POSTROUTING", "PREROUTING"
_DEVICE = "eth0"
_COMMENT = "chaos"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLink:
    """The link of one node, and the packets that it is to lose."""

    kubelet_pid: int
    is_mute: bool = True
    """True if packets that go out are lost."""
    is_deaf: bool = True
    """True if packets that come in are lost."""
    other: str = ""
    """The only address whose packets are lost; empty: those of all addresses."""

    def cut(self) -> None:
        for rule in self._rules():
            self._change("-I", rule)

    def mend(self) -> None:
        for rule in self._rules():
            self._change("-D", rule)

    def _rules(self) -> Sequence[Sequence[str]]:
        rules: list[Sequence[str]] = []
        if self.is_mute:
            rules.append((_OUT, "-o", _DEVICE, *(("-d", self.other) if self.other else ())))
        if self.is_deaf:
            rules.append((_IN, "-i", _DEVICE, *(("-s", self.other) if self.other else ())))
        return rules

    def _change(self, how: str, rule: Sequence[str]) -> None:
        chain, *which = rule
        comment = ("-m", "comment", "--comment", _COMMENT)
        command = [
            *("nsenter", f"--net=/proc/{self.kubelet_pid}/ns/net"),
            *("iptables", "--wait", "10", "-t", "mangle", how, chain, *which, *comment),
            *("-j", "DROP"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ChaosError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")

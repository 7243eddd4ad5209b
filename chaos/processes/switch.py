"""An Ethernet switch in user space: every frame between two nodes passes here, late or never.

The kernel's netem does the same with fewer copies, but many kernels are built without it, and cuts
in one direction need a packet filter besides. A TAP device for each node and one for the host need
nothing but /dev/net/tun. Python forwards some 30,000 frames a second; the jobs need a few hundred.

A process of its own, so that the runner's work delays no frame. It makes the devices that its
arguments name, says `ready`, and then takes one JSON object a line on stdin: {"from": a, "to": b,
"delay_s": d} or {"from": a, "to": b, "is_cut": true}. Devices are named as ports; frames find
their port by the addresses that were given with them, `NAME=MAC`; others go to all.
"""

import fcntl
import heapq
import itertools
import json
import os
import selectors
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

__all__ = ["SwitchLink", "main"]

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
MTU_ROOM_BYTES = 65_600
MOST_WAITING = 100_000
"""Frames that are under way; more would only be a leak."""


@dataclass(slots=True, kw_only=True)
class SwitchLink:
    """The way from one port to another."""

    delay_s: float = 0.0
    is_cut: bool = False


class Switch:
    def __init__(self, macs: dict[str, bytes]) -> None:
        self._fds = {name: _open_tap(name) for name in macs}
        self._names = {mac: name for name, mac in macs.items()}
        self._links = {pair: SwitchLink() for pair in itertools.permutations(macs, 2)}
        self._waiting: list[tuple[float, int, str, bytes]] = []
        self._count = itertools.count()

    def serve(self) -> None:
        """Forward frames until stdin ends."""
        selector = selectors.DefaultSelector()
        for name, fd in self._fds.items():
            selector.register(fd, selectors.EVENT_READ, name)
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ, "")
        orders = b""
        while True:
            due_s = self._waiting[0][0] - time.monotonic() if self._waiting else None
            for key, _ in selector.select(None if due_s is None else max(0.0, due_s)):
                if key.data:
                    self._take(key.data)
                    continue
                text = os.read(sys.stdin.fileno(), 65536)
                if not text:
                    return
                *lines, orders = (orders + text).split(b"\n")
                for line in lines:
                    self._order(json.loads(line))
            self._deliver()

    def _order(self, order: dict[str, object]) -> None:
        link = self._links[str(order["from"]), str(order["to"])]
        link.delay_s = float(str(order.get("delay_s", 0.0)))
        link.is_cut = bool(order.get("is_cut", False))
        print("done", flush=True)

    def _take(self, source: str) -> None:
        with suppress(BlockingIOError):
            frame = os.read(self._fds[source], MTU_ROOM_BYTES)
            target = self._names.get(frame[:6])
            for name in [target] if target is not None else list(self._fds):
                if name == source:
                    continue
                link = self._links[source, name]
                if link.is_cut or len(self._waiting) > MOST_WAITING:
                    continue
                if link.delay_s <= 0:
                    self._put(name, frame)
                    continue
                due_s = time.monotonic() + link.delay_s
                heapq.heappush(self._waiting, (due_s, next(self._count), name, frame))

    def _deliver(self) -> None:
        now_s = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now_s:
            _, _, name, frame = heapq.heappop(self._waiting)
            self._put(name, frame)

    def _put(self, name: str, frame: bytes) -> None:
        # A device that is down or full loses the frame, as a cable does.
        with suppress(OSError):
            os.write(self._fds[name], frame)


def _open_tap(name: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


def main(arguments: Sequence[str]) -> None:
    """Be the switch; the arguments are the ports, each with its address."""
    macs = {}
    for argument in arguments:
        name, _, mac = argument.partition("=")
        macs[name] = bytes.fromhex(mac.replace(":", ""))
    switch = Switch(macs)
    print("ready", flush=True)
    switch.serve()


if __name__ == "__main__":
    main(sys.argv[1:])

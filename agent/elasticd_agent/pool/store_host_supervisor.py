"""The pool's side of the store host: it starts and restarts the host, and passes on which stores
are ready.
"""

import json
import signal
from collections.abc import Callable
from contextlib import suppress
from os import kill

from elasticd.channel.pool import FromPool, KeepStores, StoresReady
from elasticd.records.member import StoreAddress
from elasticd_agent.pool import store_host
from elasticd_agent.pool.launch import Launcher
from elasticd_agent.pool.link import Link

__all__ = ["StoreHostSupervisor"]

_RETRY_S = 0.5
"""The pause between the end of a store host and the next: a host that always dies must not use up
the node's CPU."""


class StoreHostSupervisor:
    def __init__(self, launcher: Launcher, send: Callable[[FromPool], None]) -> None:
        self.pid: int | None = None
        self._launcher = launcher
        self._send = send
        self._link: Link | None = None
        self._count = 0
        self._host = ""
        self._are_ports = False
        self._fresh: tuple[StoreAddress, ...] = ()
        self._start_at_s = 0.0
        self._is_ending = False

    @property
    def links(self) -> tuple[Link, ...]:
        return () if self._link is None else (self._link,)

    def apply(self, message: KeepStores) -> None:
        self._count = message.count
        self._host = message.host
        self._are_ports = message.are_ports
        self.reconcile(self._start_at_s)
        self._order(used=message.used, close=message.close)

    def reconcile(self, now_s: float) -> None:
        """Start the host if it is due, and pass on the host's reports."""
        if self._link is not None:
            for line in self._link.read_lines():
                ports = json.loads(line)
                self._publish(tuple(StoreAddress(host=self._host, port=port) for port in ports))
        is_due = self.pid is None and self._host and now_s >= self._start_at_s
        if is_due and not self._is_ending:
            try:
                self.pid, self._link = self._launcher.launch_store_host(store_host.serve)
            except OSError:
                self._start_at_s = now_s + _RETRY_S
                return
            self._order()

    def on_exit(self, now_s: float) -> None:
        """Take note that the host ended, and its stores with it."""
        self.pid = None
        for link in self.links:
            link.close()
        self._link = None
        self._start_at_s = now_s + _RETRY_S
        self._publish(())

    def end(self) -> None:
        self._is_ending = True
        if self.pid is not None:
            with suppress(ProcessLookupError):
                kill(self.pid, signal.SIGKILL)

    def _order(
        self, used: tuple[StoreAddress, ...] = (), close: tuple[StoreAddress, ...] = ()
    ) -> None:
        if self._link is not None:
            order = {
                "count": self._count,
                "used": [address.port for address in used],
                "close": [address.port for address in close],
                "are_ports": self._are_ports,
            }
            self._link.write(json.dumps(order).encode() + b"\n")

    def _publish(self, fresh: tuple[StoreAddress, ...]) -> None:
        if fresh != self._fresh:
            self._fresh = fresh
            self._send(StoresReady(stores=fresh))

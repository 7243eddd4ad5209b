"""A process that keeps TCPStores listening, so that the next world need not wait for one.

It is its own process, because a TCPStore server is a thread and the pool must not have any, and
because it must outlive every worker: the store of a world is not tied to rank 0's life. Each store
serves one generation: torch adds no prefix of its own for an attempt, so what an old generation
wrote would be read by the new one.

For a program that may not use torch (`--no-python`) it only reserves ports until their generation
begins; a program that wants a store listens there itself.
"""

import json
import os
import select
import socket
import sys
from datetime import timedelta
from typing import Any

from elasticd.net.framing import LineReader

__all__ = ["main", "serve"]

_OWN_CLIENT_TIMEOUT = timedelta(seconds=10)
_RETRY_S = 1.0
"""The pause after the system refused a port or a thread."""
_ORDER_BYTES = 1 << 16


def serve(read_fd: int, write_fd: int) -> None:
    """Keep as many fresh stores as ordered and report them; return when the pool ends."""
    shelf = _Shelf()
    orders = LineReader(_ORDER_BYTES)
    while True:
        wait_s = None if shelf.is_full else _RETRY_S
        if select.select([read_fd], [], [], wait_s)[0]:
            chunk = os.read(read_fd, _ORDER_BYTES)
            if not chunk:
                return
            orders.feed(chunk)
            for line in orders.lines():
                shelf.apply(json.loads(line))
        shelf.fill()
        os.write(write_fd, json.dumps(shelf.fresh).encode() + b"\n")


def main(*arguments: str) -> None:
    """Serve in a freshly spawned interpreter, for when a fork is not safe."""
    from elasticd_agent.pool.process.inheritance import drop_inherited

    drop_inherited({3, 4}, int(arguments[2]))
    serve(3, 4)


class _Shelf:
    def __init__(self) -> None:
        self.fresh: list[int] = []
        self._count = 0
        self._are_ports = False
        self._stores: dict[int, Any] = {}

    @property
    def is_full(self) -> bool:
        return len(self.fresh) >= self._count

    def apply(self, order: dict[str, Any]) -> None:
        self._count = int(order["count"])
        gone = {*order["used"], *order["close"]}
        self.fresh = [port for port in self.fresh if port not in gone]
        self._are_ports = bool(order["are_ports"])
        # A port is for others from the moment that its generation begins, a store serves that.
        for port in gone if self._are_ports else order["close"]:
            self._stores.pop(port, None)

    def fill(self) -> None:
        if self._are_ports:
            self._fill_with_ports()
        else:
            self._fill_with_stores()

    def _fill_with_ports(self) -> None:
        while not self.is_full:
            try:
                held = socket.socket()
                # It does not listen, so whoever says the same may listen there at any time.
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.bind(("", 0))
            except OSError as exc:
                print(f"elasticd store host: no port: {exc}", file=sys.stderr)  # noqa: T201
                return
            port = held.getsockname()[1]
            self._stores[port] = held
            self.fresh.append(port)

    def _fill_with_stores(self) -> None:
        # Not from the top: an import of this module must not cost an import of torch.
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        while not self.is_full:
            try:
                # The server listens on all interfaces whatever its host name says; that names only
                # where our own client finds it. Port 0: the system picks one that is free.
                store = TCPStore(
                    "127.0.0.1",
                    0,
                    is_master=True,
                    wait_for_workers=False,
                    timeout=_OWN_CLIENT_TIMEOUT,
                )
            except (RuntimeError, OSError) as exc:
                print(f"elasticd store host: no TCPStore: {exc}", file=sys.stderr)  # noqa: T201
                return
            self._stores[store.port] = store
            self.fresh.append(store.port)

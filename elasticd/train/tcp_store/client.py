"""Connects to a generation's store in a way that can always be interrupted.

The constructor of TCPStore tries until its timeout, and reads without one: a store host that is
stopped takes the connection and never answers. So a plain connection is tried first, which finds a
host that is gone without a word on stderr, and the constructor gets slices of time: when its socket
is shut down from another thread it gives up at the end of a slice, not of the whole time.

The plain connection is begun anew every two seconds: the kernel asks again after 1, 2, 4, 8 and 16
seconds, so a network that is whole again after 16 would be noticed after 31. A host that answers
none of several tries in a row is out of reach, and the rank reports this long before the deadline:
the other ranks wait for this rank, and only it knows why it does not arrive. A rank that has
arrived, and waits at the store for others, sends nothing: there the kernel's keepalive asks whether
the host still answers.
"""

import errno
import os
import selectors
import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from elasticd.errors import ElasticdError
from elasticd.net.listener import host_port
from elasticd.train.tcp_store import open_sockets
from elasticd.train.tcp_store.open_sockets import Address, plain_host

__all__ = ["StoreLost", "connect", "is_of_silent_host", "keepalive"]

_SLICE_S = 0.3
_LOOK_S = 0.02
"""How often a connection attempt asks whether it is still wanted."""

_REFUSED_PAUSE_S = 0.05

_TRY_S = 2.0
"""The time for one connection: the kernel asks at once and after a second. A way there and back
that takes longer is no network to train on."""

SILENT_TRIES = 5
"""After so many tries in a row without an answer the host is out of reach: 10 s, which is what
ranks that have all come get to connect to each other (`process_group/group.py`). Tries are counted
and not seconds, since this process may have stood still."""

STORE_SILENCE_S = round(SILENT_TRIES * _TRY_S)

_SILENCES = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)


class StoreLost(ElasticdError):
    """No process listens at the store's address, or the store does not answer."""

    def __init__(self, why: str, *, is_silent: bool = False) -> None:
        super().__init__(why)
        self.is_silent = is_silent
        """True if its host answered to nothing, not even with a refusal."""


def connect(
    host: str,
    port: int,
    *,
    deadline_s: float,
    is_over: Callable[[], bool],
    found: Callable[[str, Address], None],
) -> Any:
    """Connect to a generation's TCPStore and return the client.

    Before it is made, `found` is called with our own address on the way to the store and the
    store's, so that another thread can shut the socket of a client that is stuck.

    Raises: StoreLost: the deadline passed, the host is silent, or the attempt is not wanted any
    more.
    """
    why, silent_tries = "the time was over", 0
    while not is_over() and (left_s := deadline_s - time.monotonic()) > 0:
        try_until_s = min(deadline_s, time.monotonic() + _TRY_S)
        try:
            found(*_probe(host, port, try_until_s, is_over))
            silent_tries = 0
            # This one reads without a timeout; the guard shuts its socket when it is over.
            return dist.TCPStore(  # type: ignore[attr-defined]
                host,
                port,
                is_master=False,
                timeout=timedelta(seconds=min(_SLICE_S, left_s)),
                wait_for_workers=False,
            )
        except (OSError, RuntimeError) as exc:
            why = str(exc).splitlines()[0] if str(exc) else repr(exc)
            silent_tries = silent_tries + 1 if _is_unreachable(exc) else 0
            if silent_tries >= SILENT_TRIES:
                break
            # A router that says at once that there is no way may know one a second later.
            pause_until_s = try_until_s if silent_tries else time.monotonic() + _REFUSED_PAUSE_S
            _pause(min(pause_until_s, deadline_s), is_over)
    raise StoreLost(
        f"its store at {host_port(host, port)} cannot be reached ({why}).",
        is_silent=silent_tries >= SILENT_TRIES,
    )


@contextmanager
def keepalive(store: Address | None, known: Collection[int]) -> Iterator[None]:
    """End connections to this store, but for the `known` sockets, once its host is silent, as long
    as the block lasts. Afterwards a cut is for the group's own connections to tell.
    """
    links = open_sockets.store_links(store, known) if store is not None else []
    for link in links:
        open_sockets.set_keepalive(link, STORE_SILENCE_S)
    try:
        yield
    finally:
        for link in links:
            open_sockets.set_keepalive(link, 0)


def is_of_silent_host(exc: BaseException) -> bool:
    """Return whether this error means that the store's host answered no packet."""
    return isinstance(exc, StoreLost) and exc.is_silent


def _pause(until_s: float, is_over: Callable[[], bool]) -> None:
    while (left_s := until_s - time.monotonic()) > 0 and not is_over():
        time.sleep(min(left_s, _LOOK_S))


def _is_unreachable(exc: OSError | RuntimeError) -> bool:
    """Return whether the error means that no answer came; a refusal is an answer."""
    return isinstance(exc, TimeoutError) or (isinstance(exc, OSError) and exc.errno in _SILENCES)


def _probe(
    host: str, port: int, deadline_s: float, is_over: Callable[[], bool]
) -> tuple[str, Address]:
    """Connect and hang up."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as one, selectors.DefaultSelector() as ready:
        one.setblocking(False)
        ready.register(one, selectors.EVENT_WRITE)
        # In progress is an answer as well; how it went says SO_ERROR. Without a route there is
        # no attempt, and SO_ERROR says nothing.
        code = one.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            raise ConnectionError(code, os.strerror(code))
        while not ready.select(_LOOK_S):
            if is_over() or time.monotonic() >= deadline_s:
                raise TimeoutError("no answer to the connection")
        if error := one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise ConnectionError(error, "the connection failed")
        own, peer = one.getsockname(), one.getpeername()
    return plain_host(own[0]), (plain_host(peer[0]), int(peer[1]))

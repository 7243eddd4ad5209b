"""The sockets that Gloo and a store client of this process hold, found in /proc/self and shut down.

Neither Gloo nor TCPStore offers a way to wake a call that waits for a silent peer. Both read an end
of file when their socket is shut down, and raise. So this module finds those sockets without help
from the libraries. A store client's socket is connected to the store's address. Gloo's sockets are
registered in an epoll instance together with a pipe and with the listening socket of the same
group; the kernel lists an instance's sockets in /proc/self/fdinfo. That tells Gloo's sockets from
all others of the process, also while they still connect, also those of groups that the script made
itself. A server of the script's may have a pipe and one listener, too: one on libuv (uvloop, a
TCPStore of torch's own) or on Python's `select.epoll` (Twisted). These register each descriptor
under its own number, and Gloo registers the address of an object, which no number of a descriptor
can be.

The module closes no descriptor that it did not make, and each shutdown goes to a duplicate whose
inode was compared, so that a number that was closed and given out again does no harm.
"""

import os
import select
import socket
import stat
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

__all__ = [
    "Address",
    "OpenSocket",
    "GlooLoop",
    "duplicate_of",
    "gloo_loops",
    "inodes",
    "is_gone",
    "fail_pending_accepts",
    "set_user_timeout",
    "plain_host",
    "shutdown",
    "store_links",
    "set_keepalive",
]

Address = tuple[str, int]

_LISTEN = 10
"""TCP_LISTEN in the first byte of tcp_info; shutting such a socket of Gloo's ends the process."""

_KNOCK_LIMIT_S = 0.2
_LOWER_HALF = (1 << 32) - 1
_MAPPED = "::ffff:"
_DIRECTORY = "/proc/self/fd"


@dataclass(frozen=True, slots=True)
class OpenSocket:
    """A TCP socket of this process that is connected or connects."""

    number: int
    inode: int


@dataclass(frozen=True, slots=True)
class GlooLoop:
    """One epoll instance of Gloo's, which is one group."""

    listener: OpenSocket
    links: tuple[OpenSocket, ...]


def inodes() -> frozenset[int]:
    """Return the inodes of the sockets that this process has now."""
    return frozenset(inode for _, inode, kind in _descriptors() if kind == "socket")


def gloo_loops(known: Collection[int]) -> list[GlooLoop]:
    """Return all groups of Gloo's in this process, except those whose listener's inode is known."""
    descriptors = {number: (inode, kind) for number, inode, kind in _descriptors()}
    loops = []
    for number, (_, kind) in descriptors.items():
        if kind != "epoll":
            continue
        members = [each for each in _gloo_members(number) if each in descriptors]
        if not any(descriptors[each][1] == "pipe" for each in members):
            continue
        listeners: list[OpenSocket] = []
        links: list[OpenSocket] = []
        for member in members:
            inode, member_kind = descriptors[member]
            if member_kind == "socket" and (state := _tcp_state(member, inode)) is not None:
                (listeners if state == _LISTEN else links).append(OpenSocket(member, inode))
        if len(listeners) == 1 and listeners[0].inode not in known:
            loops.append(GlooLoop(listeners[0], tuple(links)))
    return loops


def store_links(address: Address, known: Collection[int]) -> list[OpenSocket]:
    """Return sockets that are connected to a store, except those whose inode is known."""
    found = []
    for number, inode, kind in _descriptors():
        if kind == "socket" and inode not in known:
            with suppress(OSError), _duplicate(number, inode) as one:
                if _peer(one) == address:
                    found.append(OpenSocket(number, inode))
    return found


def duplicate_of(link: OpenSocket) -> socket.socket | None:
    """Return a new descriptor of the connection, for the caller to close; None if it is gone."""
    try:
        return _duplicate(link.number, link.inode)
    except OSError:
        return None


def shutdown(link: OpenSocket) -> None:
    """Make the thread that waits on this socket read an end of file; do nothing if it is gone."""
    with suppress(OSError), _duplicate(link.number, link.inode) as one:
        if _state(one) != _LISTEN:
            one.shutdown(socket.SHUT_RDWR)


def set_user_timeout(link: OpenSocket, silence_s: int) -> None:
    """End the connection when sent bytes are not acknowledged for `silence_s` seconds."""
    with suppress(OSError), _duplicate(link.number, link.inode) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence_s * 1000)


def set_keepalive(link: OpenSocket, silence_s: int) -> None:
    """End the connection, though nothing is sent on it, when its other end has not answered for so
    long; with 0, never.
    """
    pause_s = max(1, silence_s // 4)
    with suppress(OSError), _duplicate(link.number, link.inode) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, pause_s)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, pause_s)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence_s * 1000)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, silence_s > 0)


def is_gone(link: OpenSocket) -> bool:
    """Return whether the other side ended this connection, or it was closed here because of an
    error.
    """
    try:
        with _duplicate(link.number, link.inode) as one:
            poll = select.poll()
            poll.register(one, select.POLLRDHUP)
            return bool(poll.poll(0))
    except OSError:
        return True


def fail_pending_accepts(listener: OpenSocket, count: int) -> None:
    """Connect to this listener of Gloo's in place of peers that never did, and hang up.

    While a rank of Gloo's waits for a peer to connect, it has no socket that could be shut down. A
    connection begins with the number of the pair that it belongs to, from 0 on; a pair whose
    connection ends fails, and with it the forming. For a pair that is connected already this does
    nothing.
    """
    with suppress(OSError):
        with _duplicate(listener.number, listener.inode) as one:
            address = one.getsockname()[:2]
        for pair in range(count):
            with socket.create_connection(address, timeout=_KNOCK_LIMIT_S) as visitor:
                visitor.sendall(struct.pack("=q", pair))


def plain_host(host: str) -> str:
    """Return an IPv4 address that is written as an IPv6 one as IPv4."""
    return host.removeprefix(_MAPPED)


def _descriptors() -> Iterator[tuple[int, int, str]]:
    """Return number, inode and kind of this process's sockets, pipes and epoll instances."""
    for name in os.listdir(_DIRECTORY):
        try:
            target = os.readlink(f"{_DIRECTORY}/{name}")
            if target.startswith(("socket:[", "pipe:[")):
                kind, _, rest = target.partition(":[")
                yield int(name), int(rest.rstrip("]")), kind
            elif target == "anon_inode:[eventpoll]":
                yield int(name), 0, "epoll"
        except OSError:
            continue  # Closed meanwhile.


def _gloo_members(number: int) -> list[int]:
    """Return the descriptors in an epoll instance; none if it cannot be one of Gloo's."""
    try:
        with open(f"/proc/self/fdinfo/{number}") as file:
            rows = [line.split() for line in file if line.startswith("tfd:")]
    except OSError:
        return []
    # A number fills the lower half of the data; Python leaves the upper one to chance.
    data = {int(row[1]): int(row[5], 16) & _LOWER_HALF for row in rows}
    return [] if all(member == given for member, given in data.items()) else list(data)


def _duplicate(number: int, inode: int) -> socket.socket:
    """Return a new descriptor for this socket.

    Raises: OSError: the number is closed, or means something else by now.
    """
    own = os.dup(number)
    try:
        status = os.fstat(own)
        if not stat.S_ISSOCK(status.st_mode) or status.st_ino != inode:
            raise OSError(f"descriptor {number} is another one now")
        return socket.socket(fileno=own)
    except BaseException:
        os.close(own)
        raise


def _tcp_state(number: int, inode: int) -> int | None:
    with suppress(OSError), _duplicate(number, inode) as one:
        return _state(one)
    return None


def _state(one: socket.socket) -> int | None:
    is_tcp = one.type == socket.SOCK_STREAM and one.family in (socket.AF_INET, socket.AF_INET6)
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] if is_tcp else None


def _peer(one: socket.socket) -> Address | None:
    if _state(one) is None:
        return None
    host, port = one.getpeername()[:2]
    return plain_host(host), port

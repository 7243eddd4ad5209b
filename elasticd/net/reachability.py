"""Which other nodes this one can reach, asked when a group did not form.

Two nodes that both reach etcd may not reach each other: no lease runs out, nobody has died, and no
library says for which rank one waited. The agents of a world listen as long as they live, so
connections to them show it. A refusal is an answer too: the machine is reached.
"""

import errno
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterable

from elasticd.records.ids import NodeId
from elasticd.records.member import Peer

__all__ = ["PROBE_S", "unreachable"]

PROBE_S = 1.5
"""The time limit of a probe: on a working network it takes a round trip, or one second more if its
first packet is lost."""
AT_ONCE = 256
"""How many connections are made at once: all ranks of a large world ask all of its agents
together."""
_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN)
"""With these a connection is not even begun, and its socket says nothing of it."""


def unreachable(peers: Iterable[Peer], *, limit_s: float = PROBE_S) -> tuple[NodeId, ...]:
    """Return the nodes that did not answer within the time limit; many are tried at a time.

    A node for which this process has no descriptor left, or whose name no resolver looks up at
    present, is not named, since nothing is known of it.
    """
    waiting = deque(peers)
    silent: dict[socket.socket, tuple[NodeId, float]] = {}
    lost: set[NodeId] = set()
    with selectors.DefaultSelector() as ready:
        try:
            while waiting or silent:
                while waiting and len(silent) < AT_ONCE:
                    try:
                        one = _begin(waiting[0])
                    except _NoResolver:  # It took its time, and would take it for each name.
                        waiting.clear()
                        break
                    except _NoDescriptor:
                        if not silent:  # Nobody who answers will give one back.
                            waiting.clear()
                        break
                    peer = waiting.popleft()
                    if one is None:
                        lost.add(peer.node)
                        continue
                    silent[one] = (peer.node, time.monotonic() + limit_s)
                    ready.register(one, selectors.EVENT_WRITE)
                first_s = min((until_s for _, until_s in silent.values()), default=0.0)
                answered = ready.select(max(0.0, first_s - time.monotonic())) if silent else []
                for key, _ in answered:
                    assert isinstance(key.fileobj, socket.socket)
                    if not _is_answer(key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
                        lost.add(silent[key.fileobj][0])
                    _end(ready, silent, key.fileobj)
                now_s = time.monotonic()
                for one in [each for each, (_, until_s) in silent.items() if until_s <= now_s]:
                    lost.add(silent[one][0])
                    _end(ready, silent, one)
            return tuple(sorted(lost))
        finally:
            for one in silent:
                one.close()


class _NoDescriptor(Exception):
    pass


class _NoResolver(Exception):
    pass


def _end(
    ready: selectors.BaseSelector,
    silent: dict[socket.socket, tuple[NodeId, float]],
    one: socket.socket,
) -> None:
    ready.unregister(one)
    del silent[one]
    one.close()


def _begin(peer: Peer) -> socket.socket | None:
    """Begin to connect; return None if there is no route.

    Raises:
        _NoDescriptor: this process has none left.
        _NoResolver: nobody says which address a name has.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            peer.address, peer.port, type=socket.SOCK_STREAM
        )[0]
        one = socket.socket(family, kind, protocol)
    except OSError as exc:
        if isinstance(exc, socket.gaierror) and exc.errno == socket.EAI_AGAIN:
            raise _NoResolver from exc
        if exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            raise _NoDescriptor from exc
        return None
    except (OverflowError, ValueError):
        return None
    one.setblocking(False)
    try:
        code = one.connect_ex(address)
    except OSError:
        code = errno.EHOSTUNREACH
    if code in _NO_ROUTE:
        one.close()
        return None
    return one  # In progress is an answer as well; how it went says SO_ERROR.


def _is_answer(error: int) -> bool:
    return error in (0, errno.ECONNREFUSED, errno.ECONNRESET)

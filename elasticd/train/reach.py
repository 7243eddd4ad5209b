"""Which other nodes this one can reach, asked when a group did not form.

Two nodes that both reach etcd may not reach each other: no lease runs out, nobody has died, and no
library says whom a rank waited for. The agents of a world listen as long as they live, so a
connection to each of them tells. A refusal is an answer too: the machine is reached.
"""

import errno
import selectors
import socket
import time
from collections.abc import Iterable

from elasticd.records.ids import NodeId
from elasticd.records.member import Peer

__all__ = ["PROBE_S", "unreachable"]

PROBE_S = 1.5
"""A connection on a network that works takes a round trip, or one second more if the first packet
of it is lost."""


def unreachable(peers: Iterable[Peer], *, limit_s: float = PROBE_S) -> tuple[NodeId, ...]:
    """Return the nodes of those that did not answer in time; tries all of them at once."""
    deadline_s = time.monotonic() + limit_s
    silent: dict[socket.socket, NodeId] = {}
    lost: list[NodeId] = []
    with selectors.DefaultSelector() as ready:
        try:
            for peer in peers:
                one = _begin(peer)
                if one is None:
                    lost.append(peer.node)
                    continue
                silent[one] = peer.node
                ready.register(one, selectors.EVENT_WRITE)
            while silent and (left_s := deadline_s - time.monotonic()) > 0:
                for key, _ in ready.select(left_s):
                    done = key.fileobj
                    assert isinstance(done, socket.socket)
                    ready.unregister(done)
                    node = silent.pop(done)
                    if not _is_answer(done.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
                        lost.append(node)
                    done.close()
            return tuple(sorted({*lost, *silent.values()}))
        finally:
            for one in silent:
                one.close()


def _begin(peer: Peer) -> socket.socket | None:
    """Begin to connect; None where there is no way there."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            peer.address, peer.port, type=socket.SOCK_STREAM
        )[0]
        one = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, ValueError):
        return None
    one.setblocking(False)
    try:
        one.connect_ex(address)  # In progress is an answer as well; how it went says SO_ERROR.
    except OSError:
        one.close()
        return None
    return one


def _is_answer(error: int) -> bool:
    return error in (0, errno.ECONNREFUSED, errno.ECONNRESET)

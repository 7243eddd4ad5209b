"""Which process is at the other end of a unix socket, by the kernel: any process of the machine can
connect to an abstract one.
"""

import socket
import struct
from typing import NamedTuple

__all__ = ["Peer", "peer_of"]

_CREDENTIALS = struct.Struct("iII")


class Peer(NamedTuple):
    pid: int
    """0 if it is in another pid namespace."""
    uid: int


def peer_of(sock: socket.socket) -> Peer:
    """Return the process and the user that connected, as of then (SO_PEERCRED).

    Raises: OSError: the connection is closed.
    """
    told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(told)
    return Peer(pid=pid, uid=uid)

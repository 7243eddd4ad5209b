"""Connections between agents, held only to feel their end.

When a process dies, its kernel closes its sockets at once; a lease takes seconds to run out. So
members hold a connection to each proposer. When one breaks, the other end is *probed*: if nobody
listens at its address any more ("connection refused"), that agent is dead; anything else (a
time-out, a reset, an answer) proves nothing, and the lease decides. An agent's listening socket
lives exactly as long as its process. The address is the one that etcd has, never what a visitor
says of itself: else anybody who can connect could have any node declared dead.
"""

import json
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread

from elasticd.records.ids import Life, NodeId
from elasticd.records.member import Peer

__all__ = ["Peers", "is_refused"]

PROBE_TIMEOUT_S = 1.0
_HELLO_LIMIT_BYTES = 1024
_BACKLOG = 1024
_RETRY_S = 0.5
_FULL_PAUSE_S = 0.05
LINKS_LIMIT = 8192
"""More connections than this are refused: each member of a job holds one to each proposer."""

Told = Callable[[NodeId, Life], None]
_Name = tuple[NodeId, Life]


@dataclass(slots=True)
class _Link:
    """One end of a connection; `peer` if we made it, `said` once an accepted one said who it is."""

    sock: socket.socket
    peer: Peer | None
    said: _Name | None = None
    heard: bytes = b""


class Peers:
    """The listening socket and all connections, in one thread.

    `died` is called from that thread when a peer's death is proved, `broke` when somebody who said
    who he is hung up: `probe` him, if he is known and then at the address that is known.
    """

    def __init__(self, node: NodeId, life: Life, address: str, died: Told, broke: Told) -> None:
        self._me: _Name = (node, life)
        self._died, self._broke = died, broke
        self._lock = Lock()
        self._wanted: dict[_Name, Peer] = {}
        self._suspects: list[Peer] = []
        self._held: dict[_Name, _Link] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = _listen(address)
        self._listener.setblocking(False)
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_out.setblocking(False)
        self._wake_in.setblocking(False)
        self._is_closing = False
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        self._thread = Thread(target=self._run, name="peers", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def hold(self, peers: tuple[Peer, ...]) -> None:
        """Keep a connection to each of these, drop those that are wanted no more."""
        with self._lock:
            self._wanted = {(peer.node, peer.life): peer for peer in peers}
        self._wake()

    def probe(self, peer: Peer) -> None:
        """Find out whether anybody listens there, and tell `died` if nobody does."""
        with self._lock:
            self._suspects.append(peer)
        self._wake()

    def close(self) -> None:
        self._is_closing = True
        self._wake()
        self._thread.join(2.0)

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # A full pipe wakes it as well.
            self._wake_in.send(b"w")

    # --- on the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closing:
            self._probe()
            is_short = self._dial()
            for key, _ in self._selector.select(_RETRY_S if is_short else None):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._wake_out:
                    self._wake_out.recv(4096)
                else:
                    self._hear(key.data)
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def _probe(self) -> None:
        with self._lock:
            suspects, self._suspects = self._suspects, []
        for peer in suspects:
            if is_refused(peer.address, peer.port):
                self._accuse(peer)

    def _dial(self) -> bool:
        """Bring the held connections into line with the wanted ones; True if one is missing."""
        with self._lock:
            wanted = dict(self._wanted)
        for key in [k for k in self._held if k not in wanted]:
            self._drop(self._held.pop(key))
        is_short = False
        for key, peer in wanted.items():
            if key in self._held:
                continue
            link = self._connect(peer)
            if link is None:
                is_short = True
            else:
                self._held[key] = link
        return is_short

    def _connect(self, peer: Peer) -> _Link | None:
        try:
            sock = socket.create_connection((peer.address, peer.port), timeout=PROBE_TIMEOUT_S)
            node, life = self._me
            hello = {"node": node, "life": life}
            sock.sendall(json.dumps(hello).encode() + b"\n")
        except ConnectionRefusedError:
            self._accuse(peer)
            return None
        except (OSError, ValueError, OverflowError):
            return None
        sock.setblocking(False)
        link = _Link(sock=sock, peer=peer)
        self._selector.register(sock, selectors.EVENT_READ, link)
        return link

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            time.sleep(_FULL_PAUSE_S)  # Out of descriptors: the listener stays readable.
            return
        if len(self._selector.get_map()) >= LINKS_LIMIT:
            sock.close()
            return
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ, _Link(sock=sock, peer=None))

    def _hear(self, link: _Link) -> None:
        try:
            heard = link.sock.recv(_HELLO_LIMIT_BYTES)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if heard and link.peer is None and link.said is None:
            link.heard += heard
            link.said = _name_in(link.heard)
            if link.said is None and len(link.heard) >= _HELLO_LIMIT_BYTES:
                self._drop(link)
            return
        if heard:
            return
        self._drop(link)
        peer = link.peer
        if link.said is not None:
            self._broke(*link.said)
        if peer is None:
            return
        if self._held.get((peer.node, peer.life)) is link:
            del self._held[(peer.node, peer.life)]
        if is_refused(peer.address, peer.port):
            self._accuse(peer)

    def _accuse(self, peer: Peer) -> None:
        with self._lock:
            self._wanted.pop((peer.node, peer.life), None)
        self._died(peer.node, peer.life)

    def _drop(self, link: _Link) -> None:
        self._selector.unregister(link.sock)
        link.sock.close()


def is_refused(address: str, port: int) -> bool:
    """True if the machine answers that nobody listens there; False if that cannot be known."""
    try:
        socket.create_connection((address, port), timeout=PROBE_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return False


def _name_in(hello: bytes) -> _Name | None:
    """Read who connected; None if the line is not complete or makes no sense."""
    if not hello.endswith(b"\n"):
        return None
    try:
        plain = json.loads(hello)
        return NodeId(str(plain["node"])), Life(str(plain["life"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _listen(address: str) -> socket.socket:
    """Listen on the advertised address alone; on all if it is not one of this machine's own."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, 0), backlog=_BACKLOG, family=family)
    except OSError:
        return socket.create_server(("", 0), backlog=_BACKLOG, family=family)

"""Connections between agents, which show at once that the process of an agent has died.

When a process dies, its kernel closes its sockets at once; a lease takes seconds to run out. So
members hold a connection to each proposer. When one breaks, the other end is *probed*: if nobody
listens at its address any more ("connection refused"), that agent is dead; anything else (a
time-out, a reset, an answer) proves nothing, and the lease decides. An agent's listening socket
lives exactly as long as its process. The address is the one that etcd has, never what a client says
of itself; otherwise anybody who can connect could have any node declared dead.
"""

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from threading import Lock, Thread

from elasticd.net.listener import family_of
from elasticd.net.socket_selector import SocketSelector
from elasticd.records.ids import Life, NodeId
from elasticd.records.member import Peer
from elasticd_agent.loop.clock import now_s

__all__ = ["PeerLinks", "is_refused"]

PROBE_TIMEOUT_S = 1.0
_HELLO_LIMIT_BYTES = 1024
_BACKLOG = 1024
_RETRY_S = 0.5
LINKS_LIMIT = 8192
"""More connections than this are refused: each member of a job holds one to each proposer."""

HELLO_LIMIT_S = 10.0
"""A client that does not say who it is within this time is disconnected: its place is for
members."""
SHORT_S, REDIAL_PAUSE_S = 1.0, 1.0
"""A connection that ended so soon (because the other side is full, say) is made again only after
the pause."""
AGAIN_S = (0.01, 0.05, 0.2)
"""When to probe again an agent that seems to listen still. A process that dies closes its sockets
one by one, with pauses on a busy machine, so its connections may end before its listening socket
does."""
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 120_000),
)
"""Nothing is ever sent on these connections. Without this a firewall forgets them after some
minutes (AWS: 350 s, GCP: 600 s) and swallows the end that they are held to feel, and those of
machines that vanished stay for ever."""

Told = Callable[[NodeId, Life], None]
_Name = tuple[NodeId, Life]


@dataclass(slots=True, eq=False)
class _PeerLink:
    """One end of a connection. `peer` is set if we made it, `said` once a client said who it is."""

    sock: socket.socket
    begun_s: float
    peer: Peer | None
    said: _Name | None = None
    heard: bytes = b""


class PeerLinks:
    """Keep the listening socket and all connections, in one thread.

    That thread calls `died` when a peer's death is proved, and `broke` when a client that had said
    who it is hung up. Then `probe` it, if it is known, at the address that is known.
    """

    def __init__(self, node: NodeId, life: Life, address: str, died: Told, broke: Told) -> None:
        self._me: _Name = (node, life)
        self._died, self._broke = died, broke
        self._lock = Lock()
        self._wanted: dict[_Name, Peer] = {}
        self._suspects: list[Peer] = []
        self._again: dict[_Name, tuple[float, Peer, tuple[float, ...]]] = {}
        """The peers to probe again: when, and after which pauses if they still seem to listen."""
        self._held: dict[_Name, _PeerLink] = {}
        self._unnamed: dict[_PeerLink, float] = {}
        """Accepted, and until when they may say who they are; in the order of their coming."""
        self._redial_s: dict[_Name, float] = {}
        self._tried_s: dict[_Name, float] = {}
        listener = _listen(address)
        self.port = int(listener.getsockname()[1])
        self._selector: SocketSelector[_PeerLink] = SocketSelector(listener)
        self._is_closing = False
        self._thread = Thread(target=self._run, name="peers", daemon=True)
        self._thread.start()

    def hold(self, peers: tuple[Peer, ...]) -> None:
        """Keep a connection to each of these, and drop those that are not wanted any more."""
        with self._lock:
            self._wanted = {(peer.node, peer.life): peer for peer in peers}
        self._selector.wake()

    def probe(self, peer: Peer) -> None:
        """Find out whether anybody listens there, and call `died` if nobody does."""
        with self._lock:
            self._suspects.append(peer)
        self._selector.wake()

    def close(self) -> None:
        self._is_closing = True
        self._selector.wake()
        self._thread.join(2.0)

    # --- on the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closing:
            probe_s = 0.0 if self._probe() else None
            again_s = self._ask_again()
            dial_s = self._dial()
            self._drop_unnamed()
            pause_s = self._wait_s(probe_s, again_s, dial_s)
            self._selector.serve(pause_s, self._accept, self._read_hello)
        self._selector.close()

    def _wait_s(self, *pauses_s: float | None) -> float | None:
        first = next(iter(self._unnamed.values()), None)
        waits = [pause_s for pause_s in pauses_s if pause_s is not None]
        waits += [] if first is None else [max(0.0, first - now_s())]
        return min(waits, default=None)

    def _drop_unnamed(self) -> None:
        at_s = now_s()
        for link in [link for link, until_s in self._unnamed.items() if until_s <= at_s]:
            self._drop(link)

    def _probe(self) -> bool:
        """Probe the peer that was suspected first; return True if others are to be
        probed as well.
        """
        with self._lock:
            suspects = [self._suspects.pop(0)] if self._suspects else []
        for peer in suspects:
            self._ask(peer, AGAIN_S)
        return bool(self._suspects)

    def _ask(self, peer: Peer, pauses_s: tuple[float, ...]) -> None:
        answer = _try_connect(peer.address, peer.port)
        if answer is _Answer.REFUSED:
            self._declare_dead(peer)
        elif answer is _Answer.ACCEPTED and pauses_s:
            at_s = now_s() + pauses_s[0]
            self._again[(peer.node, peer.life)] = (at_s, peer, pauses_s[1:])

    def _ask_again(self) -> float | None:
        """Probe again those whose time has come; return how long to wait for the next."""
        at_s = now_s()
        for name, (due_s, peer, pauses_s) in list(self._again.items()):
            if due_s <= at_s:
                del self._again[name]
                self._ask(peer, pauses_s)
        first_s = min((due_s for due_s, _, _ in self._again.values()), default=None)
        return None if first_s is None else max(0.0, first_s - now_s())

    def _dial(self) -> float | None:
        """Match the held connections to the wanted ones; return when to go on with it.

        A peer that does not answer costs a second. So one is dialled at a time, in turn, and
        messages are read in between.
        """
        with self._lock:
            wanted = dict(self._wanted)
        for key in [k for k in self._held if k not in wanted]:
            self._drop(self._held.pop(key))
        at_s = now_s()
        self._redial_s = {key: t for key, t in self._redial_s.items() if t > at_s}
        self._tried_s = {key: t for key, t in self._tried_s.items() if key in wanted}
        missing = [key for key in wanted if key not in self._held]
        due = [key for key in missing if key not in self._redial_s]
        for key in sorted(due, key=lambda key: self._tried_s.get(key, 0.0)):
            self._tried_s[key] = now_s()
            link = self._connect(wanted[key])
            if link is None:
                self._redial_s[key] = now_s() + _RETRY_S
                return 0.0
            self._held[key] = link
        return _RETRY_S if len(due) < len(missing) else None

    def _connect(self, peer: Peer) -> _PeerLink | None:
        try:
            sock = socket.create_connection((peer.address, peer.port), timeout=PROBE_TIMEOUT_S)
            _keep_alive(sock)
            node, life = self._me
            hello = {"node": node, "life": life}
            sock.sendall(json.dumps(hello).encode() + b"\n")
        except ConnectionRefusedError:
            self._declare_dead(peer)
            return None
        except (OSError, ValueError, OverflowError):
            return None
        sock.setblocking(False)
        link = _PeerLink(sock=sock, begun_s=now_s(), peer=peer)
        self._selector.register(sock, link)
        return link

    def _accept(self, sock: socket.socket) -> None:
        if len(self._selector) >= LINKS_LIMIT:
            sock.close()
            return
        _keep_alive(sock)
        link = _PeerLink(sock=sock, begun_s=now_s(), peer=None)
        self._unnamed[link] = link.begun_s + HELLO_LIMIT_S
        self._selector.register(sock, link)

    def _read_hello(self, link: _PeerLink, _: int) -> None:
        try:
            heard = link.sock.recv(_HELLO_LIMIT_BYTES)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if heard and link.peer is None and link.said is None:
            link.heard += heard
            link.said = _name_in(link.heard)
            if link.said is not None:
                self._unnamed.pop(link, None)
            elif len(link.heard) >= _HELLO_LIMIT_BYTES:
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
        name = (peer.node, peer.life)
        if self._held.get(name) is link:
            del self._held[name]
        if now_s() - link.begun_s < SHORT_S:
            self._redial_s[name] = now_s() + REDIAL_PAUSE_S
        self._ask(peer, AGAIN_S)

    def _declare_dead(self, peer: Peer) -> None:
        with self._lock:
            self._wanted.pop((peer.node, peer.life), None)
        self._again.pop((peer.node, peer.life), None)
        self._died(peer.node, peer.life)

    def _drop(self, link: _PeerLink) -> None:
        self._unnamed.pop(link, None)
        self._selector.unregister(link.sock)
        link.sock.close()


def _keep_alive(sock: socket.socket) -> None:
    for level, option, value in _KEEPALIVE:
        with suppress(OSError):  # Not each kernel has each of them.
            sock.setsockopt(level, option, value)


class _Answer(Enum):
    """What a machine answers to an attempt to connect."""

    REFUSED = auto()
    ACCEPTED = auto()
    NONE = auto()


def is_refused(address: str, port: int) -> bool:
    """Return True if the machine answers that nobody listens there, and False if that cannot be
    known.
    """
    return _try_connect(address, port) is _Answer.REFUSED


def _try_connect(address: str, port: int) -> _Answer:
    try:
        socket.create_connection((address, port), timeout=PROBE_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return _Answer.REFUSED
    except (OSError, ValueError, OverflowError):
        return _Answer.NONE
    return _Answer.ACCEPTED


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
    family = family_of(address)
    try:
        return socket.create_server((address, 0), backlog=_BACKLOG, family=family)
    except OSError:
        return socket.create_server(("", 0), backlog=_BACKLOG, family=family)

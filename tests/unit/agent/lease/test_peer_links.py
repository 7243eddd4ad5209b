"""Connections between agents: what they prove, and what strangers can do to them."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Semaphore

import pytest

from elasticd.records.ids import Life, NodeId
from elasticd.records.member import Peer
from elasticd_agent.lease import peer_links
from elasticd_agent.lease.peer_links import PeerLinks
from tests.fixtures.cluster import until
from tests.fixtures.patience import patience_s
from tests.fixtures.ports import free_port

HERE = "127.0.0.1"
WAIT_S = patience_s(30.0)


class Scene:
    """Peers whose owner knows some addresses, as an agent does."""

    def __init__(self) -> None:
        self.died: Queue[tuple[str, str]] = Queue()
        self.known: dict[tuple[str, str], Peer] = {}
        self.peers = PeerLinks(
            NodeId("me"), Life("m1"), HERE, lambda *peer: self.died.put(peer), self._broke
        )

    def knows(self, node: str, life: str, port: int) -> None:
        peer = Peer(node=NodeId(node), life=Life(life), address=HERE, port=port)
        self.known[(node, life)] = peer

    def _broke(self, node: NodeId, life: Life) -> None:
        if (node, life) in self.known:
            self.peers.probe(self.known[(node, life)])


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.peers.close()


def say(scene: Scene, line: bytes) -> None:
    """Connect, say something, and hang up."""
    with socket.create_connection((HERE, scene.peers.port), timeout=WAIT_S) as stranger:
        stranger.sendall(line)


def hello(node: str = "other", life: str = "o1", **more: object) -> bytes:
    return json.dumps({"node": node, "life": life, **more}).encode() + b"\n"


@pytest.mark.parametrize(
    "nonsense", [b"[" * 1023 + b"\n", b'{"node": 1}\n', b"\xff\xfe\n", b"x" * 5000, b""]
)
def test_nonsense_from_a_stranger_ends_nothing(scene: Scene, nonsense: bytes) -> None:
    """The thread lives on: a death that is told afterwards is still found."""
    scene.knows("other", "o1", free_port())
    say(scene, nonsense)
    say(scene, hello())
    assert scene.died.get(timeout=WAIT_S) == ("other", "o1")


def test_broken_connection_alone_accuses_nobody(scene: Scene) -> None:
    """Who still listens is alive; only the second, whom nobody answers for, is accused."""
    with socket.create_server((HERE, 0)) as alive:
        scene.knows("alive", "a1", alive.getsockname()[1])
        scene.knows("other", "o1", free_port())
        say(scene, hello("alive", "a1"))
        say(scene, hello())
        assert scene.died.get(timeout=WAIT_S) == ("other", "o1")
    assert scene.died.empty()


def test_visitor_cannot_have_another_node_declared_dead(scene: Scene) -> None:
    """It may say whose end this is and where to look: what counts is the address in etcd."""
    with socket.create_server((HERE, 0)) as alive:
        scene.knows("alive", "a1", alive.getsockname()[1])
        scene.knows("other", "o1", free_port())
        say(scene, hello("alive", "a1", address=HERE, port=free_port()))
        say(scene, hello("alive", "a0", address=HERE, port=free_port()))
        say(scene, hello())
        assert scene.died.get(timeout=WAIT_S) == ("other", "o1")
    assert scene.died.empty()


def test_full_wake_up_pipe_does_not_block_the_owner(scene: Scene) -> None:
    """However often it is told, and however slow the thread is."""
    for _ in range(5000):
        scene.peers.hold(())


def test_thread_that_ended_already_is_no_mistake(scene: Scene) -> None:
    """It sees that it is to close before it is woken, if it is at something."""
    scene.peers.close()
    scene.peers.hold(())
    scene.peers.close()


def test_connections_are_kept_alive_where_firewalls_forget_them(scene: Scene) -> None:
    """On both ends: the one that we made and the one that we accepted."""
    with socket.create_server((HERE, 0)) as other:
        peer = Peer(
            node=NodeId("other"), life=Life("o1"), address=HERE, port=other.getsockname()[1]
        )
        scene.peers.hold((peer,))
        with (
            other.accept()[0] as made,
            socket.create_connection((HERE, scene.peers.port)) as visitor,
        ):
            ends = {made.getpeername(), visitor.getpeername()}
            until(lambda: ends <= kept_alive(), kept_alive)


def kept_alive() -> set[tuple[str, int]]:
    """Own addresses of this process's connections whose keepalive timer runs, by the kernel."""
    found = set()
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "01" and fields[5].startswith("02:"):
            host, port = fields[1].split(":")
            address = socket.inet_ntoa(bytes.fromhex(host)[::-1])
            found.add((address, int(port, 16)))
    return found


def test_who_connects_and_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """8,192 of them would shut the door for members."""
    monkeypatch.setattr(peer_links, "HELLO_LIMIT_S", 0.0)
    scene = Scene()
    with socket.create_connection((HERE, scene.peers.port), timeout=WAIT_S) as stranger:
        assert stranger.recv(1) == b""
    scene.peers.close()


def test_who_says_who_he_is_stays(monkeypatch: pytest.MonkeyPatch, scene: Scene) -> None:
    """However long he says nothing more."""
    with socket.create_connection((HERE, scene.peers.port), timeout=WAIT_S) as member:
        member.sendall(hello("member", "m1"))
        until(lambda: not scene.peers._unnamed, lambda: "it was not heard")
        monkeypatch.setattr(peer_links, "now_s", lambda: 1e12)
        scene.knows("other", "o1", free_port())
        say(scene, hello())
        assert scene.died.get(timeout=WAIT_S) == ("other", "o1")
        member.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            member.recv(1)


def test_a_connection_that_ends_at_once_is_not_made_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proposer with no place left would be dialled as fast as the processor goes."""
    monkeypatch.setattr(peer_links, "now_s", lambda: 100.0)
    scene = Scene()
    with socket.create_server((HERE, 0)) as full:
        peer = Peer(node=NodeId("full"), life=Life("f1"), address=HERE, port=full.getsockname()[1])
        scene.peers.hold((peer,))
        full.accept()[0].close()
        until(lambda: not scene.peers._held, lambda: "its end was not felt")
        # One who is found dead afterwards shows that the thread went on.
        full.accept()[0].close()  # The probe: does anybody listen there?
        scene.knows("other", "o1", free_port())
        say(scene, hello())
        assert scene.died.get(timeout=WAIT_S) == ("other", "o1")
        full.setblocking(False)
        with pytest.raises(BlockingIOError):
            full.accept()
    scene.peers.close()


def test_one_whose_connection_ends_before_he_stops_to_listen_is_found_dead(
    monkeypatch: pytest.MonkeyPatch, scene: Scene
) -> None:
    """As the kernel closes the sockets of a process that dies, one by one."""
    monkeypatch.setattr(peer_links, "REDIAL_PAUSE_S", 1e6)
    with socket.create_server((HERE, 0)) as dying:
        port = dying.getsockname()[1]
        scene.peers.hold((Peer(node=NodeId("d"), life=Life("d1"), address=HERE, port=port),))
        dying.accept()[0].close()
        dying.accept()[0].close()  # The first question, which finds him listening.
    assert scene.died.get(timeout=WAIT_S) == ("d", "d1")


def test_one_who_hung_up_and_listens_is_asked_some_times_and_left_alone(scene: Scene) -> None:
    """He may have dropped the connection for want of room."""
    with socket.create_server((HERE, 0)) as alive:
        scene.knows("other", "o1", alive.getsockname()[1])
        say(scene, hello())
        for _ in range(1 + len(peer_links.AGAIN_S)):
            alive.accept()[0].close()
        until(lambda: not scene.peers._again, lambda: "there is no end to it")
    assert scene.died.empty()


def test_peers_that_do_not_answer_hold_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand machines that came back at other addresses are asked at their old ones."""
    connect, tried, given_up = socket.create_connection, Queue[str](), Semaphore(0)

    def slow(address: tuple[str, int], timeout: float) -> socket.socket:
        if address[0] == HERE:
            return connect(address, timeout=timeout)
        tried.put(address[0])
        given_up.acquire(timeout=WAIT_S)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", slow)
    scene = Scene()
    silent = [
        Peer(node=NodeId(f"n{i}"), life=Life(f"l{i}"), address=f"10.9.9.{i}", port=1)
        for i in range(100)
    ]
    scene.peers.hold(tuple(silent))
    tried.get(timeout=WAIT_S)
    scene.knows("other", "o1", free_port())
    say(scene, hello())
    given_up.release(10)  # Each of them costs a second.
    assert scene.died.get(timeout=WAIT_S) == ("other", "o1")
    given_up.release(1000)
    scene.peers.close()

"""Connections between agents: what they prove, and what strangers can do to them."""

import json
import socket
from collections.abc import Iterator
from queue import Queue

import pytest

from elasticd.records.ids import Life, NodeId
from elasticd.records.member import Peer
from elasticd_agent.peers import Peers

HERE = "127.0.0.1"
WAIT_S = 30.0


class Scene:
    """Peers whose owner knows some addresses, as an agent does."""

    def __init__(self) -> None:
        self.died: Queue[tuple[str, str]] = Queue()
        self.known: dict[tuple[str, str], Peer] = {}
        self.peers = Peers(
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


def closed_port() -> int:
    with socket.create_server((HERE, 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize(
    "nonsense", [b"[" * 1023 + b"\n", b'{"node": 1}\n', b"\xff\xfe\n", b"x" * 5000, b""]
)
def test_nonsense_from_a_stranger_ends_nothing(scene: Scene, nonsense: bytes) -> None:
    """The thread lives on: a death that is told afterwards is still found."""
    scene.knows("other", "o1", closed_port())
    say(scene, nonsense)
    say(scene, hello())
    assert scene.died.get(timeout=WAIT_S) == ("other", "o1")


def test_broken_connection_alone_accuses_nobody(scene: Scene) -> None:
    """Who still listens is alive; only the second, whom nobody answers for, is accused."""
    with socket.create_server((HERE, 0)) as alive:
        scene.knows("alive", "a1", alive.getsockname()[1])
        scene.knows("other", "o1", closed_port())
        say(scene, hello("alive", "a1"))
        say(scene, hello())
        assert scene.died.get(timeout=WAIT_S) == ("other", "o1")
    assert scene.died.empty()


def test_visitor_cannot_have_another_node_declared_dead(scene: Scene) -> None:
    """It may say whose end this is and where to look: what counts is the address in etcd."""
    with socket.create_server((HERE, 0)) as alive:
        scene.knows("alive", "a1", alive.getsockname()[1])
        scene.knows("other", "o1", closed_port())
        say(scene, hello("alive", "a1", address=HERE, port=closed_port()))
        say(scene, hello("alive", "a0", address=HERE, port=closed_port()))
        say(scene, hello())
        assert scene.died.get(timeout=WAIT_S) == ("other", "o1")
    assert scene.died.empty()


def test_full_wake_up_pipe_does_not_block_the_owner(scene: Scene) -> None:
    """However often it is told, and however slow the thread is."""
    for _ in range(5000):
        scene.peers.hold(())

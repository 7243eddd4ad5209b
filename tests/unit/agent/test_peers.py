"""Connections between agents: what they prove, and what strangers can do to them."""

import json
import socket
from collections.abc import Iterator
from queue import Queue

import pytest

from elasticd.records.ids import Life, NodeId
from elasticd_agent.peers import Peers

HERE = "127.0.0.1"
WAIT_S = 30.0


@pytest.fixture
def died() -> Queue[tuple[str, str]]:
    return Queue()


@pytest.fixture
def peers(died: Queue[tuple[str, str]]) -> Iterator[Peers]:
    peers = Peers(NodeId("me"), Life("m1"), HERE, lambda node, life: died.put((node, life)))
    yield peers
    peers.close()


def say(port: int, line: bytes) -> None:
    """Connect, say something, and hang up."""
    with socket.create_connection((HERE, port), timeout=WAIT_S) as stranger:
        stranger.sendall(line)


def hello(port: int, address: str = HERE) -> bytes:
    plain = {"node": "other", "life": "o1", "address": address, "port": port}
    return json.dumps(plain).encode() + b"\n"


def closed_port() -> int:
    with socket.create_server((HERE, 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize(
    "nonsense",
    [
        b"[" * 1023 + b"\n",
        hello(1, address="a..b"),
        hello(1, address="\0"),
        hello(10**9),
        b"\xff\xfe\n",
        b"x" * 5000,
        b"",
    ],
)
def test_nonsense_from_a_stranger_ends_nothing(
    peers: Peers, died: Queue[tuple[str, str]], nonsense: bytes
) -> None:
    """The thread lives on: a death that is told afterwards is still found."""
    say(peers.port, nonsense)
    say(peers.port, hello(closed_port()))
    assert died.get(timeout=WAIT_S) == ("other", "o1")


def test_broken_connection_alone_accuses_nobody(peers: Peers, died: Queue[tuple[str, str]]) -> None:
    """Who still listens is alive; only the second, whom nobody answers for, is accused."""
    with socket.create_server((HERE, 0)) as alive:
        say(peers.port, hello(alive.getsockname()[1]).replace(b"other", b"alive"))
        say(peers.port, hello(closed_port()))
        assert died.get(timeout=WAIT_S) == ("other", "o1")
    assert died.empty()


def test_full_wake_up_pipe_does_not_block_the_owner(peers: Peers) -> None:
    """However often it is told, and however slow the thread is."""
    for _ in range(5000):
        peers.hold(())

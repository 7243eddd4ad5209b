"""Which nodes answer, and which do not."""

import errno
import socket

import pytest

from elasticd.net import reachability
from elasticd.net.reachability import unreachable
from elasticd.records.ids import Life, NodeId
from elasticd.records.member import Peer
from tests.fixtures.patience import patience_s

HERE = "127.0.0.1"


def peer(name: str, address: str, port: int) -> Peer:
    return Peer(node=NodeId(name), life=Life("l"), address=address, port=port)


def test_who_listens_or_refuses_is_reached() -> None:
    """A machine that refuses a connection is there."""
    with socket.create_server((HERE, 0)) as listener, socket.create_server((HERE, 0)) as other:
        port, closed = listener.getsockname()[1], other.getsockname()[1]
        other.close()
        assert unreachable([peer("a", HERE, port), peer("b", HERE, closed)]) == ()


def test_who_does_not_answer_in_time_is_named() -> None:
    """A listener that is full drops what comes, as a cut does."""
    with socket.create_server((HERE, 0), backlog=0) as full:
        address = full.getsockname()
        visitors = [socket.socket() for _ in range(8)]
        for visitor in visitors:
            visitor.setblocking(False)
            visitor.connect_ex(address)
        with socket.create_server((HERE, 0)) as listener:
            peers = [peer("full", *address), peer("well", HERE, listener.getsockname()[1])]
            assert unreachable(peers, limit_s=patience_s(0.3)) == ("full",)
        for visitor in visitors:
            visitor.close()


def test_what_is_no_address_is_out_of_reach() -> None:
    assert unreachable([peer("x", "\0", 1), peer("y", "a..b", 1)]) == ("x", "y")


def test_who_cannot_be_sent_to_is_named() -> None:
    """The kernel says at once that there is no way there, and its socket says nothing of it."""
    assert unreachable([peer("x", "255.255.255.255", 1)]) == ("x",)


def test_who_cannot_be_asked_for_want_of_descriptors_is_not_accused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rank of a large world with the usual limit of 1,024 has none left; all nodes are well."""

    def none_left(*args: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", none_left)
    assert unreachable([peer("a", HERE, 1), peer("b", HERE, 2)]) == ()


def test_nobody_is_accused_where_no_resolver_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked once: each name would take as long again."""
    asked = []

    def later(host: str, *args: object, **kwargs: object) -> None:
        asked.append(host)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", later)
    assert unreachable([peer("a", "a.example", 1), peer("b", "b.example", 2)]) == ()
    assert asked == ["a.example"]


def test_all_are_asked_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who answers makes room for the next."""
    monkeypatch.setattr(reachability, "AT_ONCE", 2)
    with socket.create_server((HERE, 0)) as listener:
        port = listener.getsockname()[1]
        peers = [peer(f"n{number}", HERE, port) for number in range(7)]
        assert unreachable([*peers[:3], peer("x", "a..b", 1), *peers[3:]]) == ("x",)

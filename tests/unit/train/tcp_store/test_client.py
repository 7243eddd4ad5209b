"""Connecting to a generation's store: what is tried again, and when its host is out of reach."""

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch.distributed as dist

from elasticd.train.group_broken import GroupBroken
from elasticd.train.process_group import group
from elasticd.train.process_group.group import Group
from elasticd.train.process_group.peer_failure import is_peer_unreachable
from elasticd.train.tcp_store import client, open_sockets
from elasticd.train.tcp_store.client import StoreLost, connect
from elasticd.train.tcp_store.open_sockets import Address
from elasticd.train.tcp_store.start_barrier import Arrivals
from tests.fixtures.patience import patience_s
from tests.fixtures.ports import free_port
from tests.fixtures.ranks import entered

HERE = "127.0.0.1"
LIMIT_S = patience_s(20.0)
TRY_S = 0.2


@contextmanager
def silent_listener() -> Iterator[tuple[int, list[socket.socket]]]:
    """A listener that is full drops what comes, as a cut does."""
    with socket.create_server((HERE, 0), backlog=0) as full:
        visitors = [socket.socket() for _ in range(8)]
        for visitor in visitors:
            visitor.setblocking(False)
            visitor.connect_ex(full.getsockname())
        yield full.getsockname()[1], visitors
        for visitor in visitors:
            visitor.close()


def store_here() -> dist.TCPStore:  # type: ignore[name-defined]
    return dist.TCPStore(HERE, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]


def ignored(own: str, store: Address) -> None:
    pass


def lost(port: int, limit_s: float = LIMIT_S) -> StoreLost:
    deadline_s = time.monotonic() + limit_s
    with pytest.raises(StoreLost) as told:
        connect(HERE, port, deadline_s=deadline_s, is_over=lambda: False, found=ignored)
    return told.value


def test_host_that_answers_to_nothing_is_out_of_reach_long_before_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rank that is cut off from the store is the only one that knows why it does not come."""
    monkeypatch.setattr(client, "_TRY_S", TRY_S)
    began_s = time.monotonic()
    with silent_listener() as (port, _):
        told = lost(port)
    assert told.is_silent
    assert time.monotonic() - began_s < LIMIT_S


def test_host_that_refuses_is_tried_until_the_deadline() -> None:
    """Its machine is reached, and its store may be yet to come."""
    assert not lost(free_port(), 0.5).is_silent


@pytest.mark.parametrize("word", [errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT])
def test_route_that_is_not_there_is_silence(word: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_route(*arguments: object) -> tuple[str, Address]:
        raise ConnectionError(word, "the connection failed")

    monkeypatch.setattr(client, "_TRY_S", TRY_S)
    monkeypatch.setattr(client, "_probe", no_route)
    began_s = time.monotonic()
    assert lost(1).is_silent
    assert time.monotonic() - began_s > TRY_S * (client.SILENT_TRIES - 1)


def test_way_that_is_not_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says so at once, and the socket says nothing of it."""
    monkeypatch.setattr(client, "_TRY_S", TRY_S)
    deadline_s = time.monotonic() + LIMIT_S
    with pytest.raises(StoreLost) as told:
        connect("255.255.255.255", 1, deadline_s=deadline_s, is_over=lambda: False, found=ignored)
    assert told.value.is_silent


def test_answer_in_between_ends_the_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only tries in a row count: a network that loses some packets is no cut."""
    words = iter([errno.ETIMEDOUT, errno.ECONNREFUSED] * 2 * client.SILENT_TRIES)

    def now_and_then(*arguments: object) -> tuple[str, Address]:
        if (word := next(words, None)) is None:
            raise KeyboardInterrupt
        raise ConnectionError(word, "the connection failed")

    monkeypatch.setattr(client, "_TRY_S", 0.0)
    monkeypatch.setattr(client, "_probe", now_and_then)
    with pytest.raises(KeyboardInterrupt):
        lost(1)


def test_each_try_is_a_connection_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel doubles its pauses: after a cut of 16 s one connection would wait for 15 more."""
    monkeypatch.setattr(client, "_TRY_S", TRY_S)
    made = []
    real = client._probe

    def counted(*arguments: object) -> tuple[str, Address]:
        made.append(arguments)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(client, "_probe", counted)
    with silent_listener() as (port, _):
        lost(port)
    assert len(made) == client.SILENT_TRIES


def test_group_whose_store_is_silent_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """So this rank asks which nodes it cannot reach, and says so."""
    monkeypatch.setattr(client, "_TRY_S", TRY_S)
    with silent_listener() as (port, _):
        late = Group(entered(1, 3, port, 2), backend="gloo", timeout_s=LIMIT_S)
        with pytest.raises(GroupBroken, match="cannot be reached") as told:
            late.form()
    assert told.value.is_timed_out


def test_rank_that_waits_for_others_hears_of_a_store_that_falls_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has sent what it had to say, so only the kernel can ask; and only until all have come."""
    told: list[tuple[bool, int]] = []
    server = store_here()
    made = Group(entered(1, 3, server.port, 2), backend="gloo", timeout_s=LIMIT_S)
    before = open_sockets.inodes()

    def look() -> None:
        for link in open_sockets.store_links((HERE, server.port), before):
            with contextlib.closing(open_sockets.duplicate_of(link)) as one:  # type: ignore[type-var]
                assert one is not None
                is_asked = bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
                told.append((is_asked, one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)))

    def gathered(*arguments: object, **given: object) -> Arrivals:
        look()
        return Arrivals()

    def make() -> None:
        look()
        raise GroupBroken("enough")

    monkeypatch.setattr(group, "gather", gathered)
    monkeypatch.setattr(made, "_make", make)
    with pytest.raises(GroupBroken, match="enough"):
        made.form()
    assert told == [(True, 1000 * client.STORE_SILENCE_S), (False, 0)]


def test_connection_that_ends_by_silence_while_others_are_awaited_is_told_as_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then the rank asks which nodes it cannot reach. The words are the kernel's."""

    def silent(*arguments: object, **given: object) -> Arrivals:
        raise dist.DistNetworkError(os.strerror(errno.ETIMEDOUT))

    server = store_here()
    made = Group(entered(1, 3, server.port, 2), backend="gloo", timeout_s=LIMIT_S)
    monkeypatch.setattr(group, "gather", silent)
    with pytest.raises(GroupBroken) as told:
        made.form()
    assert is_peer_unreachable(told.value)

"""No step is made from collectives of a group that lost a rank, whoever swallowed the error."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from elasticd.channel.worker import Leave
from elasticd.train.interrupt import Interrupted
from elasticd.train.process_group.gloo_connections import GlooConnections
from elasticd.train.process_group.group import GroupBroken
from elasticd.train.session import agent_session
from elasticd.train.tcp_store.open_sockets import OpenSocket
from tests.fixtures.patience import patience_s
from tests.unit.train.session.session_bench import Bench, bench, enter

__all__ = ["bench"]


@contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        with ours, theirs:
            yield ours, theirs


def link_of(one: socket.socket) -> OpenSocket:

    return OpenSocket(one.fileno(), os.fstat(one.fileno()).st_ino)


def test_end_of_one_connection_is_seen_among_many() -> None:
    """And what the peer sent before it, unread or not, is no end."""
    with connection() as (first, _), connection() as (second, other_end):
        ends = GlooConnections([link_of(first), link_of(second)])
        assert not ends.has_any()
        other_end.sendall(b"half a gradient")
        assert not ends.has_any()
        other_end.close()
        assert ends.has_any() and ends.has_any()
        ends.close()


def test_end_is_seen_although_the_owner_closed_its_side() -> None:
    """Gloo closes a socket that failed, from a thread of its own."""
    with connection() as (ours, theirs):
        ends = GlooConnections([link_of(ours)])
        theirs.close()
        ours.close()
        assert ends.has_any()
        ends.close()


def test_connection_that_is_gone_already_counts_as_ended() -> None:
    """Its number may be another file's by now."""
    with connection() as (ours, _):
        link = link_of(ours)
    ends = GlooConnections([link])
    assert ends.has_any()
    ends.close()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step of a test is long because its thread had to wait for a core."""
    monkeypatch.setattr(agent_session, "SHORT_STEP_S", patience_s(20.0))
    monkeypatch.setattr(agent_session, "EXPLANATION_S", patience_s(20.0))


def test_no_step_is_made_when_a_rank_is_gone_and_nobody_says_why(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradients may be half reduced."""
    monkeypatch.setattr(agent_session, "EXPLANATION_S", 0.01)
    bench.begin()
    monkeypatch.setattr(bench.group, "has_ended", lambda: True)
    with pytest.raises(GroupBroken):
        bench.session.synchronize()


def test_step_is_made_when_all_that_its_collectives_gave_has_come(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that ends after its part of them takes nothing from it; nobody waits to be told."""
    bench.begin()
    bench.session.committed((1, 0))
    bench.group.has_results = True
    monkeypatch.setattr(bench.group, "has_ended", lambda: True)
    bench.session.synchronize()
    bench.session.synchronize()  # The same step has another optimizer.


def test_one_step_only_is_made_when_a_rank_is_gone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one had no collective with it: this rank would train alone, for ever."""
    monkeypatch.setattr(agent_session, "EXPLANATION_S", 0.01)
    bench.begin()
    bench.session.committed((1, 0))
    bench.group.has_results = True
    monkeypatch.setattr(bench.group, "has_ended", lambda: True)
    bench.session.synchronize()
    bench.session.committed((2, 0))
    with pytest.raises(GroupBroken):
        bench.session.synchronize()


def test_step_of_a_rank_that_stood_still_is_not_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was sent waited in its sockets; meanwhile the others may train without it."""
    monkeypatch.setattr(agent_session, "EXPLANATION_S", 0.01)
    bench.begin()
    bench.session.committed((1, 0))
    bench.session.committed_at_s -= agent_session.SHORT_STEP_S
    bench.group.has_results = True
    monkeypatch.setattr(bench.group, "has_ended", lambda: True)
    with pytest.raises(GroupBroken):
        bench.session.synchronize()


def test_step_is_made_when_a_rank_left_as_agreed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It left after the last step that all make, so this rank's part of that step is whole."""
    bench.begin()
    bench.hears(Leave(at_step=1))
    monkeypatch.setattr(bench.group, "has_ended", lambda: True)
    bench.session.synchronize()


def test_step_is_made_although_what_was_agreed_comes_later_than_news_do(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other rank knew it a moment before, and left by it."""
    bench.group.is_agreed.clear()
    bench.begin()
    bench.hears(Leave(at_step=1))
    monkeypatch.setattr(bench.group, "has_ended", lambda: True)
    later = threading.Timer(0.2, bench.group.is_agreed.set)
    later.start()
    bench.session.synchronize()
    later.join()


def test_no_step_is_made_by_a_rank_that_had_no_word_from_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planned change is on its way, and a peer that dies before it explains nothing by it."""
    monkeypatch.setattr(agent_session, "EXPLANATION_S", 0.05)
    bench.group.others = None
    bench.begin()
    bench.hears(Leave(at_step=1))
    monkeypatch.setattr(bench.group, "has_ended", lambda: True)
    with pytest.raises(GroupBroken):
        bench.session.synchronize()


def test_news_that_come_after_the_end_of_the_connection_decide(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket is quicker than etcd."""
    bench.begin()
    monkeypatch.setattr(bench.group, "has_ended", lambda: True)
    bench.wire.tell(enter(2))
    with pytest.raises(Interrupted):
        bench.session.synchronize()

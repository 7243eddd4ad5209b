"""Lines over a descriptor that never blocks."""

import os
import socket
from collections.abc import Iterator

import pytest

from elasticd.channel.wire import LINE_LIMIT_BYTES
from elasticd_agent.pool.link import Link


@pytest.fixture
def pair() -> Iterator[tuple[Link, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield Link(ours.fileno()), theirs
    ours.close()
    theirs.close()


def test_lines_come_whole_however_they_are_cut(pair: tuple[Link, socket.socket]) -> None:
    """A line that came in part waits for its rest."""
    link, other = pair
    assert link.read_lines() == []
    other.sendall(b"one\ntw")
    assert link.read_lines() == [b"one"]
    other.sendall(b"o\nthree\n")
    assert link.read_lines() == [b"two", b"three"]


def test_last_lines_are_read_before_the_end_counts(pair: tuple[Link, socket.socket]) -> None:
    """A worker that reports and dies is heard."""
    link, other = pair
    other.sendall(b"last\n")
    other.close()
    assert link.read_lines() == [b"last"]
    assert link.is_over


def test_line_without_end_ends_the_link(pair: tuple[Link, socket.socket]) -> None:
    """Memory has a bound."""
    link, other = pair
    other.setblocking(False)
    sent = 0
    while not link.is_over and sent < 2 * LINE_LIMIT_BYTES:
        sent += other.send(b"x" * 100_000)
        link.read_lines()
    assert link.is_over


def test_what_is_not_taken_now_is_kept_in_order(pair: tuple[Link, socket.socket]) -> None:
    """An agent that is stopped for a while misses nothing and stops nobody."""
    link, other = pair
    lines = [b"%d" % n * 1000 + b"\n" for n in range(1000)]
    for line in lines:
        link.write(line)
    assert link.has_unsent
    got = b""
    while len(got) < sum(map(len, lines)):
        got += other.recv(1 << 20)
        link.flush()
    assert got == b"".join(lines)
    assert not link.has_unsent


def test_broken_connection_is_an_end_not_an_error(pair: tuple[Link, socket.socket]) -> None:
    """Writing to nobody is allowed."""
    link, other = pair
    other.close()
    link.write(b"x\n")
    assert link.is_over
    assert os.fstat(link.read_fd)

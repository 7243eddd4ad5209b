"""Whole messages and lines out of a stream that arrives in any pieces."""

import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from elasticd.errors import InvariantBroken
from elasticd.net import framing
from elasticd.net.framing import LENGTH, LineReader, read_exactly, read_message, send_message


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_are_whole_in_whatever_pieces_they_come(size: int) -> None:
    reader = LineReader(100)
    found: list[bytes] = []
    text = b"one\n\ntwo words\nthree"
    for start in range(0, len(text), size):
        reader.feed(text[start : start + size])
        found += reader.lines()
    assert found == [b"one", b"", b"two words"]
    reader.feed(b"\n")
    assert list(reader.lines()) == [b"three"]


def test_lines_that_nobody_took_stay() -> None:
    reader = LineReader(100)
    reader.feed(b"one\ntwo\n")
    assert next(reader.lines()) == b"one"
    assert list(reader.lines()) == [b"two"]


def test_line_without_an_end_is_told_beyond_the_limit() -> None:
    reader = LineReader(4)
    reader.feed(b"1234\n1234")
    assert list(reader.lines()) == [b"1234"] and not reader.is_too_long
    reader.feed(b"5")
    assert list(reader.lines()) == [] and reader.is_too_long


def test_message_comes_as_it_was_sent(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    for message in (b"", b"one", b"\n" * 1000):
        send_message(ours, message)
        assert read_message(theirs, limit_bytes=1000) == message


def test_message_beyond_the_limit_is_not_read(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    ours.sendall(LENGTH.pack(1 << 62))
    with pytest.raises(InvariantBroken, match=f"A message of {1 << 62} bytes is announced"):
        read_message(theirs, limit_bytes=1000)


def test_end_in_the_middle_is_no_message(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    ours.sendall(LENGTH.pack(10) + b"half")
    ours.close()
    with pytest.raises(EOFError):
        read_message(theirs, limit_bytes=1000)


def test_what_comes_byte_by_byte_does_not_move_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(framing, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    class Slow:
        """A connection on which each byte takes a second."""

        def settimeout(self, value: float) -> None:
            assert value > 0.0

        def recv_into(self, place: memoryview) -> int:
            clock[0] += 1.0
            place[0] = 7
            return 1

    with pytest.raises(TimeoutError):
        read_exactly(Slow(), 10, deadline_s=5.0)  # type: ignore[arg-type]
    assert clock[0] == 5.0

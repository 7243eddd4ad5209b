"""The part of a log whose room was given back."""

from hypothesis import given
from hypothesis import strategies as st

from elasticd.control.logs.log_hole import BLOCK_BYTES, Gap, find_gap


@given(
    head=st.integers(0, 5),
    hole=st.integers(1, 200),
    tail=st.integers(1, 3 * BLOCK_BYTES),
    chunk=st.integers(1, 40),
)
def test_hole_is_found_in_whatever_is_read(head: int, hole: int, tail: int, chunk: int) -> None:
    """By the first read that reaches it, and to its end, in a few small reads."""
    log = b"a" * (head * BLOCK_BYTES) + bytes(hole * BLOCK_BYTES) + b"z" * tail
    reads = []

    def read(offset: int, count: int) -> bytes:
        reads.append(offset)
        return log[offset : offset + count]

    offset = max(0, head - chunk + 1) * BLOCK_BYTES
    data = log[offset : offset + chunk * BLOCK_BYTES]
    gap = find_gap(read, data, offset, len(log))
    assert gap == Gap(head * BLOCK_BYTES, (head + hole) * BLOCK_BYTES)
    assert len(reads) <= 9


def test_reader_that_was_overtaken_begins_in_the_middle_of_the_hole() -> None:
    """It stood where the disk was given back meanwhile; it shows no zero of it."""
    log = b"a" * BLOCK_BYTES + bytes(9 * BLOCK_BYTES) + b"z"
    offset = 2 * BLOCK_BYTES + 100
    found = find_gap(lambda at, count: log[at : at + count], log[offset:], offset, len(log))
    assert found == Gap(offset, 10 * BLOCK_BYTES)


def test_zeros_that_a_script_wrote_are_no_hole() -> None:
    """Unless there are as many as a block, on a block's border."""
    data = b"a" * 100 + bytes(2 * BLOCK_BYTES - 200) + b"b" * 100
    assert find_gap(lambda offset, count: b"", data, 0, len(data)) is None
    assert find_gap(lambda offset, count: b"", b"", 0, 0) is None


def test_borders_are_those_of_the_log_and_not_of_what_was_read() -> None:
    """A reader that follows stands anywhere."""
    log = b"a" * BLOCK_BYTES + bytes(BLOCK_BYTES) + b"z"
    for offset in (1, 100, BLOCK_BYTES):
        found = find_gap(lambda at, count: log[at : at + count], log[offset:], offset, len(log))
        assert found == Gap(BLOCK_BYTES, 2 * BLOCK_BYTES)

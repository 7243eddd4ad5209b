"""Where the last lines of a log begin."""

from hypothesis import given
from hypothesis import strategies as st

from elasticd.control.logs import log_tail
from elasticd.control.logs.log_tail import tail_offset


@given(
    text=st.lists(st.sampled_from([b"", b"a", b"bc" * 9, b"\n"]), max_size=40).map(b"".join),
    lines=st.integers(0, 12),
    block=st.integers(1, 30),
)
def test_last_lines_are_those_that_splitting_gives(text: bytes, lines: int, block: int) -> None:
    """Wherever the blocks end that are read from behind."""
    before, log_tail.BLOCK_BYTES = log_tail.BLOCK_BYTES, block
    try:
        at = tail_offset(lambda offset, count: text[offset : offset + count], len(text), lines)
    finally:
        log_tail.BLOCK_BYTES = before
    whole = text.split(b"\n") if text else []
    if whole and not whole[-1]:
        whole.pop()
    wanted = whole[len(whole) - lines :] if 0 < lines <= len(whole) else whole if lines else []
    end = b"\n" if text.endswith(b"\n") and wanted else b""
    assert text[at:] == b"\n".join(wanted) + end


def test_a_log_that_cannot_be_read_is_shown_from_where_it_could() -> None:
    """Its node went away in between."""
    assert tail_offset(lambda offset, count: b"", 100, 5) == 100

"""A worker's name is found in what /proc shows of an environment."""

import ctypes

from elasticd_agent.pool.process.mark import (
    MARK,
    NAME_LIMIT_BYTES,
    has_room,
    read_mark,
    write_environment,
)

ROOM = "_" * NAME_LIMIT_BYTES


def test_name_written_over_the_room_is_read() -> None:
    """The rest of the room is zeros, as between variables."""
    environ = b"A=1\0" + f"{MARK}=job/3/0_".encode().ljust(220, b"\0") + b"\0B=2\0"
    assert read_mark(environ) == "job/3/0_"


def test_room_without_a_name_is_no_mark() -> None:
    """The pool's own environment, and the store host's."""
    assert has_room({MARK: ROOM})
    assert read_mark(f"A=1\0{MARK}={ROOM}\0".encode()) == ""


def test_no_mark_in_other_environments() -> None:
    """A value that looks like one is another variable's."""
    assert read_mark(b"") == ""
    assert read_mark(f"A={MARK}=x\0".encode()) == ""
    assert not has_room({})


def test_environment_written_into_its_room_is_read_variable_by_variable() -> None:
    """What does not fit is left out, and nothing is written behind the room."""
    buffer = ctypes.create_string_buffer(b"_" * 64, 80)
    room = (ctypes.addressof(buffer), 64)
    write_environment(room, {"A": "1", "LONG": "x" * 60, "B": "2 3"})
    entries = buffer.raw[:64].split(b"\0")
    assert [entry for entry in entries if entry] == [b"A=1", b"B=2 3"]
    assert entries[0] == b""
    assert buffer.raw[64:] == b"\0" * 16


def test_environment_without_a_room_is_written_nowhere() -> None:
    write_environment((0, 0), {"A": "1"})

"""A log that is read as it grows."""

from pathlib import Path

import pytest

from elasticd_agent.output_monitor.disk_limit import HEAD_BYTES, keep_below
from elasticd_agent.output_monitor.followed_log import LINE_BYTES, LOOK_BYTES, FollowedLog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank-0.out"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_lines_are_given_once_and_whole(path: Path) -> None:
    """Also one that comes in two looks, and the last, which never ends."""
    log = FollowedLog(path)
    assert list(log.read()) == [], "it is not there yet"
    append(path, b"a\n\nb")
    assert list(log.read()) == [b"a", b""]
    append(path, b"c\nd")
    assert list(log.read()) == [b"bc"]
    assert list(log.read()) == []
    assert list(log.end()) == [b"d"]


def test_a_log_that_is_renamed_is_read_to_its_end_before_the_next(path: Path) -> None:
    log = FollowedLog(path)
    append(path, b"a\n")
    assert list(log.read()) == [b"a"]
    append(path, b"b")
    path.rename(path.with_suffix(".1"))
    append(path, b"c\n")
    assert list(log.read()) == [b"b", b"c"]


def test_a_log_that_is_made_shorter_is_read_anew_and_one_that_is_removed_to_its_end(
    path: Path,
) -> None:
    log = FollowedLog(path)
    append(path, b"a long line\n")
    assert list(log.read()) == [b"a long line"]
    path.write_bytes(b"b\n")
    assert list(log.read()) == [b"b"]
    append(path, b"c\n")
    path.unlink()
    assert list(log.read()) == [b"c"]


def test_of_more_than_one_look_takes_the_last_part_is_given_and_the_rest_told(path: Path) -> None:
    line = b"x" * 99 + b"\n"
    count = 3 * LOOK_BYTES // len(line)
    append(path, line * count)
    first, *lines = FollowedLog(path).read()
    missing = int(first.split()[1])
    assert set(lines) == {line[:-1]} and missing + len(lines) * len(line) == count * len(line)
    assert len(lines) * len(line) <= LOOK_BYTES


def test_room_that_was_given_back_is_told_and_not_shown(path: Path) -> None:
    """`--log-max`, of a rank that prints faster than it is read."""
    append(path, b"x" * 99 + b"\n")
    log = FollowedLog(path)
    assert len(list(log.read())) == 1
    append(path, (b"y" * 99 + b"\n") * 6_000)
    assert keep_below(path, HEAD_BYTES) > 0
    lines = list(log.read())
    assert any(b"bytes are not shown here" in each for each in lines)
    assert not any(b"\0" in each for each in lines) and lines[-1] == b"y" * 99


def test_a_line_without_an_end_takes_no_more_memory_than_a_piece(path: Path) -> None:
    log = FollowedLog(path)
    append(path, b"z" * (2 * LINE_BYTES + 5))
    assert [len(each) for each in log.read()] == [LINE_BYTES, LINE_BYTES]
    assert list(log.end()) == [b"z" * 5]


def test_what_could_not_be_passed_on_is_told_with_the_next_line(path: Path) -> None:
    log = FollowedLog(path)
    append(path, b"a\n")
    assert list(log.read()) == [b"a"]
    log.lose(17)
    append(path, b"b\n")
    told, line = log.read()
    assert b" 17 bytes are not shown" in told and line == b"b"

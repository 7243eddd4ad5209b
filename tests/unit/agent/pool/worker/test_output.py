"""A full disk costs a worker its output, not its life."""

import io
import os
from pathlib import Path

import pytest

from elasticd_agent.pool.worker.output import OutputFile, open_output


def printer(fd: int) -> io.TextIOWrapper:
    """A stream as a worker's: every print is written at once."""
    return io.TextIOWrapper(OutputFile(fd, "w", closefd=False), write_through=True)


def test_a_full_disk_does_not_raise_where_the_script_prints() -> None:
    """Under plain python it would."""
    with open("/dev/full", "wb", buffering=0) as full:
        stream = printer(full.fileno())
        print("x" * 100_000, file=stream, flush=True)
        stream.detach()


def test_what_is_missing_is_said_when_there_is_room_again(tmp_path: Path) -> None:
    """In the place where it is missing; disk quotas count as well."""
    fd = open_output(str(tmp_path / "gen-1" / "rank-0.out"))
    stream = printer(fd)
    print("first", file=stream)
    kept = os.dup(fd)
    with open("/dev/full", "wb", buffering=0) as full:
        os.dup2(full.fileno(), fd)
        print("lost", file=stream)
        print("lost", file=stream)
    os.dup2(kept, fd)
    print("last", file=stream)
    os.close(kept)
    stream.detach()
    os.close(fd)
    written = (tmp_path / "gen-1" / "rank-0.out").read_text()
    gap = "\n[elasticd] 10 bytes of output are missing here: disk full\n"
    assert written == f"first\n{gap}last\n"


def test_another_error_is_the_scripts_own() -> None:
    """A descriptor that it closed, say."""
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    stream = printer(write_fd)
    with pytest.raises(BrokenPipeError):
        print("x", file=stream)
    stream.detach()
    os.close(write_fd)


def test_a_log_that_finds_no_room_goes_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file cannot even be made there; where it may not be made is another matter."""

    def full(path: str, exist_ok: bool) -> None:
        raise OSError(28, "No space left on device", path)

    with pytest.raises(OSError, match="File exists"):
        open_output("/dev/null/rank-0.out")
    monkeypatch.setattr(os, "makedirs", full)
    fd = open_output(str(tmp_path / "rank-0.out"))
    os.write(fd, b"hello")
    os.close(fd)
    assert list(tmp_path.iterdir()) == []

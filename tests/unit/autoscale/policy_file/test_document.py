"""A policy file that is none."""

import os
from pathlib import Path

import pytest

from elasticd.autoscale.policy_file.document import LIMIT_BYTES, document
from elasticd.errors import CallError, NotFound


def test_a_file_is_read_with_and_without_a_mark_of_its_order(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(b"\xef\xbb\xbf[goodput]\r\n")
    assert document(str(path)) == "[goodput]\r\n"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"There is no policy file .*/policy.toml': check its name"):
        document(str(tmp_path / "policy.toml"))
    (tmp_path / "file").touch()
    with pytest.raises(NotFound):
        document(str(tmp_path / "file" / "policy.toml"))


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(CallError, match=r"is a folder: name the policy file\."):
        document(str(tmp_path))
    (tmp_path / "mine.toml").touch()
    with pytest.raises(CallError, match=r"is a folder: name the policy file, as in .*/mine.toml\."):
        document(str(tmp_path))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CallError, match="is a device or a pipe"):
        document(str(tmp_path / "pipe"))
    with pytest.raises(CallError, match="is a device or a pipe"):
        document("/dev/zero")


def test_a_huge_file(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"#" * LIMIT_BYTES)
    assert len(document(str(path))) == LIMIT_BYTES
    path.write_bytes(b"#" * (LIMIT_BYTES + 1))
    with pytest.raises(CallError, match="has more than 64 KiB, which no policy has"):
        document(str(path))


def test_what_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(b"x = \xff\xfe")
    with pytest.raises(CallError, match=r"is not text in UTF-8 \(at byte 4\)"):
        document(str(path))


def test_a_name_that_no_file_has() -> None:
    with pytest.raises(CallError, match=r"cannot be read: embedded null byte\."):
        document("a\0b")
    with pytest.raises(CallError, match=r"cannot be read: File name too long\."):
        document("a" * 5000)


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "I/O")])
def test_a_file_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def refusing(path: str, flags: int) -> int:
        raise error

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(CallError, match=rf"cannot be read: {error.strerror}\."):
        document(str(tmp_path / "policy.toml"))

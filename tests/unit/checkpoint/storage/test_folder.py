"""What only a file system does: full disks, permissions, folders that go, links that fail."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from elasticd.checkpoint.storage.bucket import ObjectMissing
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.errors import ElasticdError, EnvironmentProblem, Refused, Unavailable


def failing(code: int) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, EnvironmentProblem), (errno.EDQUOT, EnvironmentProblem),
        (errno.EROFS, Refused), (errno.EACCES, Refused), (errno.EIO, Unavailable),
        (errno.ESTALE, Unavailable), (errno.EMFILE, Unavailable),
    ],
)  # fmt: skip
@pytest.mark.parametrize("call", ["write", "fdatasync", "fsync"])
def test_failing_write_leaves_nothing_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[ElasticdError], call: str
) -> None:
    """Neither half an object nor a hidden file; in a sentence with the path."""
    bucket = FolderBucket(str(tmp_path))
    bucket.create("a/first", b"x")
    for write in (bucket.create, bucket.replace):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing(code))
            with pytest.raises(kind) as caught:
                write("a/second", b"x")
        said = str(caught.value)
        assert type(caught.value) is kind
        assert "a/second" in said and said.endswith(".") and "\n" not in said
        assert not [path for path in (tmp_path / "a").iterdir() if path.name.startswith(".")]
        if call != "fsync":
            with pytest.raises(ObjectMissing):
                bucket.read("a/second", 1)
        bucket.delete(["a/second"])


def test_write_that_is_accepted_in_bits_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """write() may take less than it was given."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda line, data: real(line, data[:3]))
    bucket = FolderBucket(str(tmp_path))
    assert bucket.create("a", b"0123456789")
    assert bucket.read("a", 100) == b"0123456789"


def test_object_is_on_the_disk_before_its_name_and_its_name_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order, or a loss of power leaves a name without bytes; new folders are names too."""
    done: list[str] = []

    def watched(name: str) -> Any:
        real = getattr(os, name)

        def call(*args: Any, **more: Any) -> Any:
            is_folder = name == "fsync" and os.readlink(f"/proc/self/fd/{args[0]}")
            done.append(f"sync {Path(is_folder).name}" if is_folder else name)
            return real(*args, **more)

        return call

    for name in ("fdatasync", "link", "fsync", "replace"):
        monkeypatch.setattr(os, name, watched(name))
    bucket = FolderBucket(str(tmp_path / "root"))
    bucket.create("a/b/one", b"x")
    assert done == [f"sync {tmp_path.name}", "sync root", "sync a", "fdatasync", "link", "sync b"]
    done.clear()
    bucket.replace("a/b/one", b"y")
    assert done == ["fdatasync", "replace", "sync b"]
    done.clear()
    assert not bucket.create("a/b/one", b"other")
    assert done[-2:] == ["link", "sync b"], "who wrote the first may have died before its own"


def test_folder_that_was_removed_meanwhile_is_made_again(tmp_path: Path) -> None:
    """By who deletes the last object in it, on another node."""
    one, other = FolderBucket(str(tmp_path)), FolderBucket(str(tmp_path))
    one.create("steps/a/1", b"x")
    other.delete(["steps/a/1"])
    assert not (tmp_path / "steps" / "a").exists()
    assert one.create("steps/a/1", b"y")


def test_folder_that_goes_as_often_as_it_is_made_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As something to try again; ObjectMissing is no answer to a write."""
    monkeypatch.setattr(os, "open", failing(errno.ENOENT))
    monkeypatch.setattr(FolderBucket, "_make", lambda self, folder: None)
    with pytest.raises(Unavailable):
        FolderBucket(str(tmp_path)).create("steps/a/1", b"x")


def test_file_where_a_folder_should_be_is_told(tmp_path: Path) -> None:
    """A wrong URL, perhaps."""
    (tmp_path / "file").write_bytes(b"x")
    bucket = FolderBucket(str(tmp_path / "file"))
    for _ in range(2):
        with pytest.raises(EnvironmentProblem, match="a file stands"):
            bucket.create("steps/a/1", b"x")
    with pytest.raises(ObjectMissing):
        bucket.read("steps/a/1", 1)


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
def test_file_system_without_hard_links_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """It is not a matter of permissions, which is what the system says."""
    monkeypatch.setattr(os, "link", failing(code))
    with pytest.raises(EnvironmentProblem, match="hard links"):
        FolderBucket(str(tmp_path)).create("a", b"x")


def test_link_whose_answer_was_lost_counts_as_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS asks again and is told that the name is taken: by ourselves."""
    real = os.link

    def twice(*args: Any) -> None:
        real(*args)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "link", twice)
    assert FolderBucket(str(tmp_path)).create("a", b"mine")
    monkeypatch.setattr(os, "link", real)
    assert not FolderBucket(str(tmp_path)).create("a", b"theirs")

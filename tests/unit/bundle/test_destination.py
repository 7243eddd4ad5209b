"""Where a bundle goes, and in which words it cannot."""

import os
import stat
from pathlib import Path

import pytest

from elasticd.bundle import destination
from elasticd.bundle.destination import Destination, check_writable, destination_of, write
from elasticd.errors import CallError, ElasticdError, Unavailable
from tests.fixtures.s3 import give_keys
from tests.fixtures.scripted_s3 import ScriptedS3


@pytest.mark.parametrize(
    ("text", "folder", "name"),
    [
        ("/tmp/x", "file:///tmp/x", ""),
        ("/tmp/x.tar.gz", "file:///tmp", "x.tar.gz"),
        ("/x.tgz", "file:///", "x.tgz"),
        ("s3://b/x", "s3://b/x", ""),
        ("s3://b/x/y.tar.gz", "s3://b/x", "y.tar.gz"),
        ("s3://b/", "s3://b", ""),
    ],
)
def test_a_file_ends_as_one_and_all_else_is_a_folder(text: str, folder: str, name: str) -> None:
    place = destination_of(text, "--to")
    assert (place.folder, place.name) == (folder, name)


def test_a_plain_path_is_one_below_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert destination_of(".", "--to").folder == f"file://{tmp_path}"
    assert destination_of("a/b.tgz", "--to").named("x").url == f"{tmp_path}/a/b.tgz"
    assert Destination(folder="file:///").named("x").url == "/x"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names nothing"),
        ("foo://x/y", "no kind of storage"),
        ("s3://user:hunter22@b/x", "leave credentials"),
        ("s3://b/x?token=hunter22", "leave credentials"),
        ("s3://x.tar.gz", "names no bucket"),
        ("s3://", "names no bucket"),
    ],
)
def test_what_is_no_place_is_refused_with_the_flag(text: str, said: str) -> None:
    """One sentence, in which no password stands."""
    with pytest.raises(CallError, match=said) as told:
        destination_of(text, "--to")
    assert "--to" in str(told.value) and "hunter22" not in str(told.value)


def test_a_folder_is_made_and_its_file_is_the_owners_alone(tmp_path: Path) -> None:
    """It holds logs. An older one of the name is replaced."""
    place = Destination(folder=f"file://{tmp_path}/new", name="x.tgz")
    for data in (b"one", b"two"):
        write(place, data, {}, {})
    path = tmp_path / "new" / "x.tgz"
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["x.tgz"]


def check(text: str, **options: str) -> None:
    check_writable(destination_of(text, "--to"), "--to", options, {})


def test_a_place_that_takes_no_files_is_refused_before_anything_is_gathered(tmp_path: Path) -> None:
    """A file, a system of files that takes none."""
    (tmp_path / "file").write_text("")
    for text, said in ((f"{tmp_path}/file/x", "is a file"), ("/proc/nowhere", "in /proc")):
        with pytest.raises(CallError, match=said) as told:
            check(text)
        assert str(told.value).startswith("--to /")


def test_a_folder_that_can_be_made_is_not_made_for_the_trial(tmp_path: Path) -> None:
    check(f"{tmp_path}/new/folder")
    assert os.listdir(tmp_path) == []


def test_a_storage_is_asked_with_an_object_that_is_gone_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who may not delete keeps one small object; a bucket that cannot be reached is refused."""
    give_keys(monkeypatch)
    with ScriptedS3() as s3:
        check(f"{s3.place.url}/x", **s3.place.options)
        assert s3.count("PUT", "/x/") == 1 and not s3.objects
    with pytest.raises(ElasticdError, match=r"^--to cannot be written: http://127\.0\.0\.1:1/"):
        check("http://127.0.0.1:1/x")


def test_storage_that_only_takes_new_objects_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may make them need not be allowed to write over one or to delete it."""
    names: list[str] = []

    class CreateOnly:
        def replace(self, name: str, data: bytes) -> None:
            if name in names:
                raise Unavailable(name)
            names.append(name)

        def delete(self, gone: list[str]) -> None:
            raise Unavailable("not allowed")

    monkeypatch.setattr(destination, "RetryingBucket", lambda *_: CreateOnly())
    for _ in range(2):
        check("s3://only/new")
    assert len(names) == 2


def test_what_a_storage_refuses_is_one_sentence(tmp_path: Path) -> None:
    """And the class of the error says what the caller can do."""
    (tmp_path / "file").write_text("")
    for place in (
        Destination(folder=f"file://{tmp_path}/file", name="x.tgz"),
        Destination(folder="file:///proc/nowhere", name="x.tgz"),
    ):
        with pytest.raises(ElasticdError, match=r"^No bundle was written: "):
            write(place, b"x", {}, {})


def test_anything_that_fsspec_reaches_is_written() -> None:
    """Without a trial of what only checkpoints need."""
    import fsspec

    write(Destination(folder="memory://bundles/x", name="y.tgz"), b"data", {}, {})
    system = fsspec.filesystem("memory")
    assert system.cat("/bundles/x/y.tgz") == b"data"
    assert system.ls("/bundles/x", detail=False) == ["/bundles/x/y.tgz"]


def test_place_that_no_file_can_get_is_refused_before_anything_is_gathered(tmp_path: Path) -> None:
    """A run would find it out only when the job has failed, and would make no bundle."""
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "x")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "d.tgz").mkdir()
    os.mkfifo(tmp_path / "fifo.tgz")
    long = "a" * 300
    for text, said in (
        ("dangling", "a link to nothing"),
        ("loop/x", "a link to nothing"),
        ("d.tgz", "d.tgz is a folder"),
        ("fifo.tgz", "fifo.tgz is no regular file"),
        (f"{long}.tgz", "--to has a name of 304 characters between two slashes"),
        (long, "--to has a name of 300 characters between two slashes"),
    ):
        with pytest.raises(CallError, match=said):
            check(f"{tmp_path}/{text}")
    (tmp_path / "old.tgz").write_text("")
    (tmp_path / "link.tgz").symlink_to("old.tgz")
    for text in ("old.tgz", "link.tgz", "new.tgz"):
        check(f"{tmp_path}/{text}")

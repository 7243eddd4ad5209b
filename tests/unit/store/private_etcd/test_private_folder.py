"""Where a private etcd listens, and where it finds room."""

import stat
from pathlib import Path

import pytest

from elasticd.store.private_etcd.etcd_log import last_words
from elasticd.store.private_etcd.private_folder import free_bytes, private_folder


def test_a_private_folder_is_for_its_owner_and_has_a_short_path(tmp_path: Path) -> None:
    """Whatever TMPDIR is: a path that is too long for a socket is passed over."""
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    made = private_folder(places=[str(deep), str(tmp_path / "nowhere"), "/tmp"])
    assert made is not None and made.parent == Path("/tmp")
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert list(deep.iterdir()) == []
    made.rmdir()


def test_a_disk_without_room_is_passed_over() -> None:
    """None where no disk has enough."""
    assert private_folder(1 << 62) is None
    assert free_bytes(Path("/no/such/folder")) == 0 < free_bytes(Path("/"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"level":"fatal","msg":"failed to save","error":"no space"}', "failed to save: no space"),
        ("panic: runtime error", "panic: runtime error"),
        ('{"level":"warn","msg":"slow"}', ""),
        ("[]", ""),
        ("garbage", ""),
    ],
)
def test_the_end_of_etcd_is_read_from_its_log(tmp_path: Path, line: str, words: str) -> None:
    """The newest line that tells of an end, behind whatever came after it."""
    log = tmp_path / "etcd.log"
    log.write_text(f"{line}\ngoroutine 1 [running]:\n")
    assert last_words(log) == words
    assert last_words(tmp_path / "nothing") == ""

"""The records of a run that is over, as they are read at its very end."""

import errno
import os
from pathlib import Path

import pytest

from elasticd.control.local_run.archive import archive, last_records
from elasticd.errors import EnvironmentProblem, Unavailable
from elasticd.records.ids import JobName
from elasticd.records.keys import Keys
from elasticd.store.api import KeyValue, Put, Txn, WatchSnapshot
from elasticd.store.memory import MemoryStore

JOB, KEYS = JobName("job"), Keys()
WORLD = KEYS.world(JOB)


class Ending(MemoryStore):
    """Ends as often as it is told to while it is read."""

    def __init__(self, ends: int) -> None:
        super().__init__()
        self.is_gone, self._ends = False, ends
        self.commit(Txn(then=(Put(key=WORLD, value=b"{}"),)))

    def list(self, prefix: str) -> WatchSnapshot:
        if self._ends:
            self._ends, self.is_gone = self._ends - 1, True
        if self.is_gone:
            raise Unavailable("etcd has ended")
        return super().list(prefix)

    def revive(self) -> None:
        self.is_gone = False


def found_by(store: Ending) -> dict[str, KeyValue] | None:
    return last_records(store, KEYS, JOB, store.revive)


def test_records_are_read_from_an_etcd_that_has_just_ended() -> None:
    """A disk that was full as the workers ended their output took its history with it."""
    gone = Ending(0)
    gone.is_gone = True
    for store in (Ending(0), gone, Ending(1)):
        found = found_by(store)
        assert found is not None and list(found) == [WORLD]


def test_etcd_that_cannot_be_read_is_given_up() -> None:
    """So that it can be said: also one that the guard is tired of."""
    assert found_by(Ending(2)) is None

    def tired() -> None:
        raise EnvironmentProblem("again and again")

    assert last_records(MemoryStore(), KEYS, JOB, tired) is None


def test_records_are_on_the_disk_before_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without power in between the name was left with an empty file."""
    path, synced = tmp_path / "records.json", []

    def fsync(fd: int) -> None:
        assert not path.exists()
        synced.append(os.fstat(fd).st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    archive([], path)
    assert synced == [path.stat().st_size] and synced[0] > 0


def test_archive_that_finds_no_room_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full, and no command knows the file that was not finished."""

    def refuse(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "records.json").write_text("old")
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        archive([], tmp_path / "records.json")
    assert [path.name for path in tmp_path.iterdir()] == ["records.json"]
    assert (tmp_path / "records.json").read_text() == "old"

"""A local job's folder and what is kept in it."""

import errno
import fcntl
import os
import shutil
import stat
from pathlib import Path

import pytest

from elasticd.control.local_run.archive import archive, load, records_of
from elasticd.control.local_run.run_folder import JobFolder, local_jobs
from elasticd.control.report.report import read_job
from elasticd.errors import CallError, NotSupported, Refused
from elasticd.records.ids import JobName
from elasticd.records.job import JobStatus
from elasticd.store.memory import MemoryStore
from elasticd_agent.worker_setup.log_folder import claim
from tests.unit.control.world_case import JOB, KEYS, SPEC, node, put, world


def test_a_name_in_use_is_refused_while_its_run_lasts(tmp_path: Path) -> None:
    """The lock goes with its owner, however that ends."""
    first, second = JobFolder(tmp_path, JOB), JobFolder(tmp_path, JOB)
    first.take()
    assert second.is_live()
    with pytest.raises(Refused, match="choose another --job"):
        second.take()
    first.release()
    assert not second.is_live()
    second.take()
    second.release()


def test_a_lock_that_was_removed_meanwhile_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who opened it just before must not own a run that nobody else can see to be in progress."""
    first, second = JobFolder(tmp_path, JOB), JobFolder(tmp_path, JOB)
    first.take()
    first.records.write_text("{}")
    first.release()
    real, opened = os.open, []

    def open_then_lose(path: os.PathLike[str], *args: int) -> int:
        opened.append(real(path, *args))
        if len(opened) == 1:
            monkeypatch.setattr(os, "open", real)
            first.remove(has_logs=False)
        return opened[-1]

    monkeypatch.setattr(os, "open", open_then_lose)
    second.take()
    assert first.is_live()
    second.release()


def test_a_second_run_keeps_the_logs_of_the_first(tmp_path: Path) -> None:
    """They are moved aside; a script's own files stay where they are."""
    for number in range(3):
        folder = JobFolder(tmp_path, JOB)
        folder.take()
        (folder.path / "gen-1").mkdir()
        (folder.path / "gen-1" / "rank-0.out").write_text(str(number))
        (folder.path / "checkpoint").write_text("mine")
        folder.release()
    texts = [path.read_text() for path in sorted(tmp_path.glob("j/earlier-*/gen-1/rank-0.out"))]
    assert texts == ["0", "1"]
    assert (tmp_path / "j" / "gen-1" / "rank-0.out").read_text() == "2"
    assert (tmp_path / "j" / "checkpoint").exists()


def test_runs_go_on_when_an_earlier_one_was_deleted(tmp_path: Path) -> None:
    """Somebody needed the room; the numbers go on from the highest."""
    for number in range(3):
        folder = JobFolder(tmp_path, JOB)
        folder.take()
        folder.records.write_text(str(number))
        folder.release()
    shutil.rmtree(folder.path / "earlier-1")
    folder.take()
    folder.release()
    names = sorted(path.name for path in folder.path.glob("earlier-*"))
    assert names == ["earlier-2", "earlier-3"]
    assert (folder.path / "earlier-3" / "records.json").read_text() == "2"


def test_nothing_of_an_earlier_run_is_mixed_with_a_new_one(tmp_path: Path) -> None:
    """A process of the same name would append to the old log, and be blamed for the old error."""
    folder = JobFolder(tmp_path, JOB)
    kept = ["prepared/a.0", "incidents/gen-1.a.stacks.txt", "gen-1/rank-0.err"]
    for name in kept:
        path = folder.path / name
        path.parent.mkdir(parents=True)
        path.touch()
    claim(folder.path, "uid-1")
    assert all((folder.path / "earlier-1" / name).exists() for name in kept)
    assert not any((folder.path / name).exists() for name in kept)
    claim(folder.path, "uid-1")
    assert not (folder.path / "earlier-2").exists()


def test_only_the_owner_looks_into_a_run(tmp_path: Path) -> None:
    """Under any umask: records hold the values of --env, logs whatever the script prints."""
    before = os.umask(0)
    try:
        folder = JobFolder(tmp_path / "new", JOB)
        folder.take()
        archive([], folder.records)
        folder.release()
        claim(tmp_path / "daemon" / JOB, "uid")
    finally:
        os.umask(before)
    for private in (folder.path, folder.agents, tmp_path / "daemon" / JOB):
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.records.stat().st_mode) == 0o600


def test_what_a_killed_run_left_of_its_etcd_is_removed(tmp_path: Path) -> None:
    """A new run begins with an empty etcd, and nobody asks a dead one."""
    folder = JobFolder(tmp_path, JOB)
    folder.etcd.mkdir(parents=True)
    (folder.etcd / "data").touch()
    folder.write_endpoint("http://127.0.0.1:1")
    folder.take()
    assert folder.endpoint is None and not folder.etcd.exists()
    folder.release()


def test_a_run_folder_that_cannot_be_written_is_said_in_one_sentence(tmp_path: Path) -> None:
    """With what to do."""
    (tmp_path / "file").touch()
    with pytest.raises(CallError, match="--log-dir"):
        JobFolder(tmp_path / "file", JOB).take()


def test_local_runs_are_found_by_their_records_or_endpoint(tmp_path: Path) -> None:
    """Other folders are no runs."""
    JobFolder(tmp_path, JobName("a")).path.mkdir()
    JobFolder(tmp_path, JobName("a")).write_endpoint("http://x:1")
    (tmp_path / "b").mkdir()
    archive([], JobFolder(tmp_path, JobName("b")).records)
    (tmp_path / "c").mkdir()
    assert {folder.job for folder in local_jobs(tmp_path)} == {"a", "b"}
    assert list(local_jobs(tmp_path / "nowhere")) == []


def test_an_archive_reads_like_the_etcd_it_was_made_from(tmp_path: Path) -> None:
    """`why` and `status` do not care which."""
    store, again = MemoryStore(), MemoryStore()
    put(store, KEYS.spec(JOB), SPEC)
    put(store, KEYS.status(JOB), JobStatus(message="done"))
    put(store, KEYS.world(JOB), world(1, "a"))
    put(store, KEYS.node(node("a").node), node("a"))
    archive(records_of(store, KEYS, JOB).values(), tmp_path / "records.json")
    load(tmp_path / "records.json", again)
    assert read_job(again, KEYS, JOB) == read_job(store, KEYS, JOB)
    assert len(again.list(KEYS.nodes).items) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 9, "records": {}}', '{"schema": 1}'])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, text: str) -> None:
    """In one sentence; it may be of a newer elasticd."""
    path = tmp_path / "records.json"
    path.write_text(text)
    with pytest.raises(NotSupported, match=r"records\.json"):
        load(path, MemoryStore())


def test_folder_that_has_no_room_for_the_endpoint_is_named(tmp_path: Path) -> None:
    """A disk that is full at the start: which one, and what to do."""
    folder = JobFolder(tmp_path / "gone", JobName("a"))
    with pytest.raises(CallError, match=r"run folder .*gone/a cannot be written .*--log-dir"):
        folder.write_endpoint("http://x:1")


def test_folder_that_takes_no_locks_is_not_a_run_in_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS without its lock daemon: the name is free, and another one would not help."""

    def refuse(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(CallError, match=r"No locks available.*--log-dir"):
        JobFolder(tmp_path, JOB).take()

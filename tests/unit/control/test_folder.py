"""A local job's folder and what is kept in it."""

from pathlib import Path

import pytest

from elasticd.control.archive import archive, load, records_of
from elasticd.control.folder import JobFolder, local_jobs
from elasticd.control.report import read_job
from elasticd.errors import CallError, NotSupported, Refused
from elasticd.records.ids import JobName
from elasticd.records.job import JobStatus
from elasticd.store.memory import MemoryStore
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

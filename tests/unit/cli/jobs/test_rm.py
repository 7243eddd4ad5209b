"""`elasticd rm`: records of jobs that are over, and of a local run its logs too."""

from pathlib import Path

import pytest

from elasticd.cli.jobs import rm as command
from elasticd.cli.main import main
from elasticd.control.local_run.run_folder import JobFolder
from elasticd.records.codec import encode
from elasticd.records.ids import JobName
from elasticd.records.job import Active, JobStatus
from elasticd.records.reason import Phase
from elasticd.store.api import Put, Txn
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS

ETCD = ("--etcd", "http://127.0.0.1:1")


def run_that_is_over(folder: Path, name: str = JOB) -> JobFolder:
    made = JobFolder(folder, JobName(name))
    made.take()
    (made.path / "gen-1").mkdir()
    (made.path / "gen-1" / "rank-0.out").write_text("hello")
    made.records.write_text("{}")
    made.release()
    return made


def test_records_of_a_local_run_go_and_its_logs_stay(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is not listed any more; the output of weeks is not thrown away by the way."""
    made = run_that_is_over(tmp_path)
    assert main(["rm", JOB, "--log-dir", str(tmp_path), "--dry-run"]) == 0
    assert made.records.exists()
    assert main(["rm", JOB, "--log-dir", str(tmp_path)]) == 0
    assert f"its logs stay in {made.path}" in capfd.readouterr().out
    assert not made.records.exists() and (made.path / "gen-1" / "rank-0.out").exists()
    assert main(["rm", JOB, "--log-dir", str(tmp_path)]) == 2
    assert "There is no local run 'j'" in capfd.readouterr().err
    assert main(["rm", JOB, "--logs", "--log-dir", str(tmp_path)]) == 0
    assert not made.path.exists()


def test_logs_go_too_where_that_is_asked_and_a_scripts_own_files_stay(tmp_path: Path) -> None:
    """A checkpoint in the job's folder is not ours to remove."""
    made, other = run_that_is_over(tmp_path), run_that_is_over(tmp_path, "k")
    (other.path / "model.pt").write_text("mine")
    assert main(["rm", JOB, "k", "--logs", "--log-dir", str(tmp_path)]) == 0
    assert not made.path.exists()
    assert [path.name for path in other.path.iterdir()] == ["model.pt"]


def test_a_local_run_in_progress_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With what to do first; others of the call are removed all the same."""
    made, _ = run_that_is_over(tmp_path), run_that_is_over(tmp_path, "k")
    made.take()
    made.records.write_text("{}")
    assert main(["rm", JOB, "k", "--log-dir", str(tmp_path)]) == 2
    shown = capfd.readouterr()
    assert (
        shown.err == "elasticd: The run 'j' is in progress: end it with `elasticd stop j` first.\n"
    )
    assert "job k: its records are removed" in shown.out
    assert made.records.exists()
    made.release()


def test_a_clusters_job_is_removed_once_it_is_over(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its logs stand elsewhere, and that is said to who wants to remove them."""
    store = MemoryStore()
    monkeypatch.setattr(MemoryStore, "close", lambda self: None)
    monkeypatch.setattr(command, "open_store", lambda settings, keys: store)
    for name, phase in (("a", Phase.FAILED), ("b", Phase.RUNNING)):
        job = JobName(name)
        store.commit(Txn(then=(Put(key=KEYS.status(job), value=encode(JobStatus(phase=phase))),)))
    active = Put(key=KEYS.active_job(JobName("b")), value=encode(Active(uid="u", is_ready=True)))
    store.commit(Txn(then=(active,)))
    assert main(["rm", "a", "b", *ETCD]) == 2
    shown = capfd.readouterr()
    assert shown.out == "job a: 1 record removed\n"
    assert "Job 'b' is not over" in shown.err and "elasticd stop b" in shown.err
    assert main(["rm", "a", "--logs", *ETCD]) == 2
    assert "stand on its nodes" in capfd.readouterr().err

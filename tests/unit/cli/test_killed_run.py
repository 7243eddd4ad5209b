"""A local run that was killed: what the commands say of it, of which only files are left."""

import os
import time
from pathlib import Path

import pytest

from elasticd.cli.killed_run import is_killed_run, killed_run_sentence
from elasticd.cli.main import main
from elasticd.cli.record_source import open_run
from elasticd.control.local_run.archive import archive
from elasticd.control.local_run.run_folder import JobFolder
from elasticd.errors import NotFound, Unavailable
from elasticd.records.ids import JobName
from tests.unit.control.world_case import JOB

AT_UNIX_S = time.mktime((2026, 11, 28, 13, 26, 12, 0, 0, -1))


def a_killed_run(run_folder: Path, job: JobName = JOB) -> JobFolder:
    """It was killed in its tenth generation; a file of an earlier one was touched since."""
    folder = JobFolder(run_folder, job)
    folder.take()
    folder.write_endpoint(f"unix://{run_folder}/etcd:1")
    for name, at_unix_s in (
        ("gen-9/rank-0.out", AT_UNIX_S + 500.0),
        ("gen-10/rank-0.out", AT_UNIX_S),
        ("gen-10/rank-0.err", AT_UNIX_S - 60.0),
        ("agents/a.log", AT_UNIX_S - 1.0),
    ):
        path = folder.path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (at_unix_s, at_unix_s))
    folder.release()
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "elasticd-runs"


def test_killed_run_is_told_of_with_its_time_and_its_files(tmp_path: Path) -> None:
    """All that is left of it."""
    folder = a_killed_run(tmp_path)
    where = folder.path
    said = (
        f"The run {JOB!r} was killed, or its machine stopped, before it could keep its records; it "
        f"last wrote at 2026-11-28 13:26:12, 3 min ago, in generation 10. Its logs are in {where}"
    )
    assert killed_run_sentence(folder, AT_UNIX_S + 185.0) == f"{said}."
    (where / "incidents.jsonl").touch()
    changes = where / "incidents.jsonl"
    assert killed_run_sentence(folder, AT_UNIX_S + 185.0) == (
        f"{said}, its changes of world in {changes}."
    )
    with pytest.raises(NotFound, match="was killed"), open_run(folder):
        pass


def test_run_that_came_to_its_end_without_room_is_not_called_killed(tmp_path: Path) -> None:
    """It took its address away; one whose workers never began has no logs of theirs."""
    folder = a_killed_run(tmp_path)
    folder.remove_endpoint()
    assert "killed as it ended, or had no room for them; it last wrote" in killed_run_sentence(
        folder, AT_UNIX_S
    )
    refused = JobFolder(tmp_path, JobName("refused"))
    refused.take()
    refused.release()
    said = "kept no records: it ended, or was killed, before its workers had begun. Its logs"
    assert said in killed_run_sentence(refused, AT_UNIX_S)
    assert (is_killed_run(folder), is_killed_run(refused)) == (True, False)


def test_run_that_just_begins_is_not_called_killed(tmp_path: Path) -> None:
    """It holds its folder, and has written no address yet."""
    folder = JobFolder(tmp_path, JOB)
    folder.take()
    assert not is_killed_run(folder)
    with pytest.raises(Unavailable, match="begins or ends at this moment"), open_run(folder):
        pass
    folder.release()


def test_list_of_jobs_names_the_killed_run(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It was as if it had never been: "There are no jobs."; a program's document has it beside."""
    folder = a_killed_run(here)
    assert main(["status"]) == 0
    shown = capfd.readouterr()
    assert shown.out.startswith(f"The run {JOB!r} was killed") and "no jobs" not in shown.out
    assert main(["status", "--json"]) == 0
    shown = capfd.readouterr()
    assert shown.out == "[]\n" and f"The run {JOB!r} was killed" in shown.err
    assert main(["status", "--running"]) == 0
    assert capfd.readouterr().out == "No job is running.\n"
    archive([], folder.records)
    assert main(["status"]) == 0
    assert "was killed" not in capfd.readouterr().out


@pytest.mark.parametrize("argv", [["status", JOB], ["why"], ["why", JOB], ["logs", JOB]])
def test_command_about_a_killed_run_says_that_and_when(
    here: Path, capfd: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    """In one sentence."""
    a_killed_run(here)
    assert main(argv) == 2
    shown = capfd.readouterr().err
    assert shown.startswith(f"elasticd: The run {JOB!r} was killed, or its machine stopped")
    assert "it last wrote at 2026-11-28 13:26:12" in shown and len(shown.splitlines()) == 1

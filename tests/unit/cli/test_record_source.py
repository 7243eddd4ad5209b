"""Which records a command opens while a local run ends: its etcd's, or its archive."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from elasticd.cli import record_source
from elasticd.cli.record_source import job_source, known_runs, open_run, sources
from elasticd.control.local_run.archive import archive
from elasticd.control.local_run.run_folder import JobFolder
from elasticd.errors import CallError, NotSupported
from elasticd.records.codec import encode
from elasticd.records.ids import JobName
from elasticd.records.keys import Keys
from elasticd.store.api import KeyValue, Store, StoreSettings
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, SPEC


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[JobFolder]:
    """A run that is at its end: its records are kept, and its folder is still its own."""
    made = JobFolder(tmp_path, JOB)
    made.take()
    made.write_endpoint(f"unix://{tmp_path}/etcd:1")
    spec = KeyValue(key=KEYS.spec(JOB), value=encode(SPEC), mod_revision=1, create_revision=1)
    archive([spec], made.records)
    yield made
    made.release()


def test_run_that_ends_while_it_is_opened_is_read_from_its_archive(folder: JobFolder) -> None:
    """Nobody listens at its address any more, and it takes that away a moment later."""
    ends = Timer(0.1, folder.remove_endpoint)
    ends.start()
    with open_run(folder) as source:
        assert source.is_archive and source.store.get(KEYS.spec(JOB)) is not None
    ends.join()


def test_run_has_ended_when_it_takes_its_address_away(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its etcd ends, which a watch would not tell."""
    given: list[StoreSettings] = []

    def opened(settings: StoreSettings, keys: Keys) -> Store:
        given.append(settings)
        return MemoryStore()

    monkeypatch.setattr(record_source, "open_store", opened)
    with open_run(folder) as source:
        assert not source.is_archive and not source.has_ended() and not given[0].has_ended()
        folder.remove_endpoint()
        assert source.has_ended() and given[0].has_ended()


def test_run_folder_of_another_user_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may not look into it is told so, and where else to look."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elasticd-runs").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    values = {"etcd": None, "log_dir": None}
    for opened in (lambda: job_source(values, None), lambda: sources(values)):
        wanted = "cannot be read by this user: name another with --log"
        with pytest.raises(CallError, match=wanted), opened():
            pass


@pytest.mark.parametrize("text", ["", '{"schema": 2, "records": {}}', "[" * 100_000])
def test_run_whose_records_are_damaged_hides_no_other_run(
    folder: JobFolder, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A loss of power left an empty file, and no run was listed any more."""
    folder.release()
    damaged = JobFolder(folder.run_folder, JobName("damaged"))
    damaged.path.mkdir()
    damaged.records.write_text(text)
    values = {"etcd": None, "log_dir": str(folder.run_folder)}
    for _ in range(2):
        with sources(values) as opened:
            assert [source.store.get(KEYS.spec(JOB)) is not None for source in opened] == [True]
    assert capsys.readouterr().err.count(str(damaged.records)) == 1
    with pytest.raises(NotSupported, match=r"upgrade|is not a file"), job_source(values, "damaged"):
        pass


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([], "there are: none"),
        (["a", "b"], "there are: a, b"),
        (list("abcdefg"), "there are: a, b, c, d, e and 2 more"),
        ([*"abcdef", "try"], "did you mean try?"),
    ],
)
def test_run_of_an_unknown_name_is_told_of_similar_ones(jobs: list[str], said: str) -> None:
    """The one that was meant may be older than the five that are named."""
    assert known_runs(jobs, "tyr") == said


def test_run_whose_records_another_user_owns_hides_no_other_run(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Users may share a run folder, and only the owner of records may read them."""
    folder.release()
    other = JobFolder(folder.run_folder, JobName("other"))
    other.path.mkdir()
    other.records.write_text("{}")
    real = Path.read_text

    def refuse(path: Path, *args: str) -> str:
        if path == other.records:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *args)

    monkeypatch.setattr(Path, "read_text", refuse)
    values = {"etcd": None, "log_dir": str(folder.run_folder)}
    with sources(values) as opened:
        assert [source.store.get(KEYS.spec(JOB)) is not None for source in opened] == [True]
    assert "records.json cannot be read (Permission denied)" in capsys.readouterr().err

"""The file of a keeper's metrics: what stands in it, and that it is always whole."""

import os
import time
from pathlib import Path
from threading import Event, Thread

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from elasticd.checkpoint.commit.committer import CommitOutcome
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.errors import Refused
from elasticd.keeper import metrics as metrics_module
from elasticd.keeper.metrics import Metrics
from elasticd.keeper.saver import Saver
from elasticd.telemetry.metrics.catalog import CATALOG
from elasticd.telemetry.metrics.metric import Exporter
from tests.fixtures.cluster import until
from tests.unit.checkpoint.meddling import Meddling
from tests.unit.keeper.site import PATIENCE_S, Node, a_plan, a_snapshot

PREFIX = "elasticd_checkpoint_"
HOUR_S = 3600.0


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where to; written when a test says so, and once at the beginning."""
    monkeypatch.setattr(metrics_module, "WRITE_S", HOUR_S)
    return tmp_path / "agents" / "node.keeper.prom"


def samples(path: Path) -> list[Sample]:
    return [
        sample
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
    ]


def values(path: Path) -> dict[str, float]:
    return {each.name.removeprefix(PREFIX): each.value for each in samples(path)}


def begun(path: Path, job: str = "job") -> Metrics:
    """One whose first writing is over."""
    made = Metrics(job, str(path))
    until(path.exists, lambda: path)
    return made


def test_file_is_there_from_the_beginning(path: Path) -> None:
    """In a folder that was not there; a job without a checkpoint has an age too."""
    before_s = time.time()
    begun(path)
    found = values(path)
    assert before_s - 1 <= found["keeper_start_timestamp_seconds"] <= time.time() + 1
    assert found["durable_timestamp_seconds"] == 0
    counters = ("saved_total", "failed_total", "written_bytes_total")
    assert all(found[name] == 0 for name in counters)


def test_each_event_is_counted(path: Path) -> None:
    """Gauges are of the newest, counters of all; who committed it makes a difference."""
    metrics = begun(path)
    before_s = time.time()
    for step in (10, 20):
        metrics.saved(1000, step / 4)
        metrics.durable(step)
    metrics.durable(30)  # Committed by the keeper of another node.
    metrics.failed()
    metrics.write()
    found = values(path)
    assert (found["saved_total"], found["failed_total"]) == (2, 1)
    assert (found["written_bytes_total"], found["save_seconds"]) == (2000, 5.0)
    assert found["durable_step"] == 30
    assert before_s - 1 <= found["durable_timestamp_seconds"] <= time.time() + 1


def test_names_are_those_of_the_list_and_the_label_is_the_job(path: Path) -> None:
    """All of the keeper's, none else; `job` would be renamed by Prometheus, whose word it is."""
    name = 'a "job"\\with\nall'
    begun(path, name)
    found = samples(path)
    assert {tuple(each.labels.items()) for each in found} == {(("job_name", name),)}
    wanted = [metric.name for metric in CATALOG if metric.exporter is Exporter.KEEPER]
    assert [each.name for each in found] == wanted


def test_two_jobs_of_one_process_are_counted_apart(tmp_path: Path, path: Path) -> None:
    """Nothing is in the registry that all of a process share."""
    one, other = begun(path, "one"), begun(tmp_path / "other.prom", "other")
    one.failed()
    one.write()
    other.write()
    assert values(path)["failed_total"] == 1
    assert values(tmp_path / "other.prom")["failed_total"] == 0


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in tests, and for a saver of its own."""
    monkeypatch.chdir(tmp_path)
    metrics = Metrics("job", "")
    metrics.saved(1, 1.0)
    metrics.write()
    assert list(tmp_path.iterdir()) == []


def test_reader_never_sees_half_of_it(path: Path) -> None:
    """The collector may read at any moment."""
    metrics = begun(path)
    whole, is_over = set(values(path)), Event()

    def write() -> None:
        while not is_over.is_set():
            metrics.write()

    writer = Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            assert set(values(path)) == whole
    finally:
        is_over.set()
        writer.join(PATIENCE_S)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_disk_that_cannot_is_no_harm(path: Path) -> None:
    """Nor does it end the writing: when the folder is there again, so is the file."""
    metrics = begun(path)
    path.unlink()
    path.parent.rmdir()
    metrics.write()
    path.parent.mkdir()
    metrics.write()
    assert values(path)["failed_total"] == 0


def test_keeper_that_only_ends_what_it_saves_leaves_the_file_to_the_next_one(path: Path) -> None:
    """Counters of two in turns would grow with each turn; a file that was deleted comes back."""
    old = begun(path)
    old.saved(1, 1.0)
    path.unlink()
    old.write()
    assert values(path)["saved_total"] == 1
    new = Metrics("job", str(path))
    until(lambda: values(path)["saved_total"] == 0, lambda: values(path))
    for _ in range(3):
        old.write()
        assert values(path)["saved_total"] == 0
        new.write()


def test_file_is_written_again_and_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself: nobody has to call."""
    monkeypatch.setattr(metrics_module, "WRITE_S", 0.01)
    metrics = begun(path)
    metrics.failed()
    until(lambda: values(path)["failed_total"] == 1, lambda: values(path))
    seen = os.stat(path).st_ino
    until(lambda: os.stat(path).st_ino != seen, lambda: "not written again")
    monkeypatch.setattr(metrics_module, "WRITE_S", HOUR_S)


def test_saver_tells_what_became_of_each_snapshot(tmp_path: Path, path: Path) -> None:
    """One that is refused, one that is saved: the figures that operations.md looks at."""
    is_refused = True

    def before(verb: str, name: str) -> None:
        if is_refused and name.endswith(".bin"):
            raise Refused("Permit it.")

    node = Node(Meddling(FolderBucket(str(tmp_path / "saved")), before))
    metrics = begun(path)
    node.saver = Saver(node.bucket, node.committer, node.share_memory, parallel=1, metrics=metrics)
    node.committer.open(1, 0)
    for step in (1, 2):
        node.take(a_snapshot(step), a_plan())
        assert node.saver.wait(a_snapshot(step), PATIENCE_S) is not None
        node.saver.wait_idle(PATIENCE_S)
        is_refused = False
    metrics.write()
    found = values(path)
    assert (found["saved_total"], found["failed_total"], found["durable_step"]) == (1, 1, 2)
    entry = CommitLog(node.bucket).entry(2)
    assert found["written_bytes_total"] == entry.nbytes > 0
    job = node.saver.wait(a_snapshot(2), PATIENCE_S)
    assert job is not None and job.outcome is CommitOutcome.COMMITTED

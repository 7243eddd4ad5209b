"""A keeper's metrics through its agent: those of our list, and never for the price of a hang."""

import os
from pathlib import Path

import pytest

from elasticd.checkpoint.keeper.metrics import Metrics
from elasticd.records.ids import JobName
from elasticd.telemetry.metrics.catalog import CATALOG
from elasticd.telemetry.metrics.metric import Exporter
from elasticd_agent.metrics import keeper_file as module
from elasticd_agent.metrics.keeper_file import KeeperFiles, keeper_samples
from tests.fixtures.cluster import until
from tests.fixtures.patience import patience_s

JOB = JobName("j")


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A file whose reader waits until somebody writes."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_what_a_keeper_wrote_is_read(tmp_path: Path) -> None:
    """Every metric of it, under the job's name."""
    path = tmp_path / "a.keeper.prom"
    metrics = Metrics("whatever", str(path))
    metrics.durable(12)
    metrics.write()
    until(path.exists, lambda: path)
    found = KeeperFiles().samples([(JOB, path), (JobName("k"), tmp_path / "none")])
    wanted = {metric.name for metric in CATALOG if metric.exporter is Exporter.KEEPER}
    assert {sample.metric.name for sample in found} == wanted
    assert {sample.labels for sample in found} == {("j",)}
    values = {sample.metric.name: sample.value for sample in found}
    assert values["elasticd_checkpoint_durable_step"] == 12


def test_nothing_else_comes_out_of_such_a_file() -> None:
    """Whoever may write it cannot feign metrics of the agent, or break a scrape."""
    text = 'elasticd_slots 99\nevil{x="1"} 1\n\x00\nelasticd_checkpoint_saved_total{job="x"} 3\n'
    assert [(s.metric.name, s.labels, s.value) for s in keeper_samples(JOB, text)] == [
        ("elasticd_checkpoint_saved_total", ("j",), 3.0)
    ]


def test_file_system_that_hangs_costs_a_moment_and_one_thread(
    pipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other metrics come meanwhile; and these again once it goes on."""
    monkeypatch.setattr(module, "READ_TIMEOUT_S", 0.01)
    files = KeeperFiles()
    assert files.samples([(JOB, pipe)]) == ()
    assert files.begin() is None
    assert files.samples([(JOB, pipe)]) == ()
    reading = files._last
    assert reading is not None and files._asked.empty(), "it is asked for nothing more"
    with pipe.open("w") as writer:
        writer.write("elasticd_checkpoint_saved_total 3\n")
    assert reading.is_done.wait(patience_s(30.0))
    file = tmp_path / "file"
    file.write_text("elasticd_checkpoint_saved_total 4\n")
    monkeypatch.setattr(module, "READ_TIMEOUT_S", patience_s(30.0))
    assert [each.value for each in files.samples([(JOB, file)])] == [4.0]


def test_files_of_last_time_are_read_ahead_and_others_all_the_same(tmp_path: Path) -> None:
    """What is told is never older than the scrape, nor of a job that is not asked for."""
    files, one, two = KeeperFiles(), tmp_path / "one", tmp_path / "two"
    other = JobName("other")
    one.write_text("elasticd_checkpoint_saved_total 1\n")
    two.write_text("elasticd_checkpoint_saved_total 2\n")

    def values(*asked: tuple[JobName, Path]) -> list[float]:
        return [float(str(each.value)) for each in files.samples(asked, files.begin())]

    assert values((JOB, one)) == [1.0]
    one.write_text("elasticd_checkpoint_saved_total 3\n")
    assert values((JOB, one)) == [3.0]
    assert values((JOB, one), (other, two)) == [3.0, 2.0]
    assert values((other, two)) == [2.0]
    assert values() == []
    assert values((other, one)) == [3.0]

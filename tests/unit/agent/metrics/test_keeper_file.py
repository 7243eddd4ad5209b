"""A keeper's metrics through its agent: those of our list, and never for the price of a hang."""

import os
import threading
from pathlib import Path

import pytest

from elasticd.keeper.metrics import Metrics
from elasticd.records.ids import JobName
from elasticd.telemetry.metrics.catalog import CATALOG
from elasticd.telemetry.metrics.metric import Exporter
from elasticd_agent.metrics import keeper_file as module
from elasticd_agent.metrics.keeper_file import KeeperFiles, KeeperReading, keeper_samples
from tests.fixtures.cluster import until
from tests.fixtures.patience import patience_s

JOB = JobName("j")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that gets no core for half a second reads no file that hangs."""
    monkeypatch.setattr(module, "READ_TIMEOUT_S", patience_s(30.0))


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A file whose reader waits until somebody writes."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def readers() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "keeper-metrics"}


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
    """The other metrics come meanwhile, other jobs' too; and these again once it goes on."""
    file, other = tmp_path / "file", JobName("other")
    file.write_text("elasticd_checkpoint_saved_total 4\n")
    wanted = [(JOB, pipe), (other, file)]
    before, files = readers(), KeeperFiles()
    monkeypatch.setattr(module, "READ_TIMEOUT_S", 0.01)
    until(lambda: files.samples([(JOB, pipe)]) == () and pipe in files._hung, lambda: files._hung)
    monkeypatch.setattr(module, "READ_TIMEOUT_S", patience_s(30.0))
    assert len(readers() - before) == 1
    for _ in range(3):
        found = files.samples(wanted, files.begin())
        assert [(each.labels, each.value) for each in found] == [(("other",), 4.0)]
    assert len(readers() - before) == 2, "it is asked for nothing more"
    with pipe.open("w") as writer:
        writer.write("elasticd_checkpoint_saved_total 3\n")
    pipe.unlink()
    pipe.write_text("elasticd_checkpoint_saved_total 5\n")

    def values() -> list[float]:
        return [float(str(each.value)) for each in files.samples(wanted, files.begin())]

    until(lambda: values() == [5.0, 4.0], values)
    until(lambda: len(readers() - before) == 1, readers)


def test_a_file_that_begins_to_hang_hides_no_other(
    pipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the very scrape in which it does."""
    file = tmp_path / "file"
    file.write_text("elasticd_checkpoint_saved_total 4\n")
    files = KeeperFiles()
    wait = KeeperReading.wait
    # Whoever is at the pipe has hung for long enough; all else is waited for.
    monkeypatch.setattr(
        KeeperReading,
        "wait",
        lambda self: wait(self) if (JOB, pipe) not in self.files else hung(self),
    )

    def hung(reading: KeeperReading) -> bool:
        until(lambda: reading.at == pipe, lambda: reading.at)
        return False

    found = files.samples([(JOB, pipe), (JobName("other"), file)])
    assert [each.value for each in found] == [4.0]
    with pipe.open("w"):
        pass


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

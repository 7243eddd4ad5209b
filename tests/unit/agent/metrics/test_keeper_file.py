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
    pipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other metrics come meanwhile; and these again once it goes on."""
    monkeypatch.setattr(module, "READ_TIMEOUT_S", 0.01)
    files = KeeperFiles()
    assert files.samples([(JOB, pipe)]) == ()
    hanging = files._reader
    assert files.samples([(JOB, pipe)]) == ()
    assert files._reader is hanging
    with pipe.open("w") as writer:
        writer.write("")
    assert hanging is not None
    hanging.join(30.0)
    assert not hanging.is_alive()

"""The answer to a scrape: whole, valid, and none where the agent cannot say how things are."""

import os
import subprocess
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

import elasticd
from elasticd.records.checkpoint import CheckpointSpec
from elasticd.records.ids import JobName, NodeId, Slot
from elasticd.records.tensorboard import TensorBoardSpec
from elasticd.rendezvous import event as ev
from elasticd.store.api import StoreSettings
from elasticd.store.request_times import RequestTimes
from elasticd.telemetry.metrics.catalog import CATALOG
from elasticd.telemetry.metrics.exposition import CONTENT_TYPE, parsed
from elasticd_agent.loop.clock import now_s
from elasticd_agent.metrics import disk_room as module
from elasticd_agent.metrics.disk_room import DiskRooms
from elasticd_agent.metrics.job_meters import JobMeters, Readings
from elasticd_agent.metrics.scrape import Scrape
from elasticd_agent.metrics.sources import Sources
from elasticd_agent.settings import AgentSettings
from tests.fixtures.prometheus import promtool
from tests.sim.schedule import spec_of
from tests.unit.rendezvous.cases import Told, running, world


def a_registration() -> Any:
    """What a scrape asks of one."""
    return SimpleNamespace(lease=None, is_draining=False)


class Scene:
    """An agent with two slots; one job of two holds one of them."""

    def __init__(self, folder: Path) -> None:
        self.registration = a_registration()
        self.meters = JobMeters()
        self.answers = True
        self.refused = 0
        checkpoint = CheckpointSpec(url="s3://b/x", owner="o")
        events = TensorBoardSpec(url="s3://b/y", folder="own")
        own = spec_of(name=JobName("own"))
        self.spec = replace(own, checkpoint=checkpoint, tensorboard=events)
        meter = self.meters.open(self.spec)
        told = Told()
        told.tell(ev.SlotsGranted(slots=(Slot(0),)))
        told.world(world(1, 0))
        before, _ = told.state, told.status(running(1))
        meter.observe(before, told.state, ())
        self.meters.add(JobName("other"), "u2")
        self.run_folder = folder / "runs"
        self.scrape = Scrape(
            Sources(
                settings=AgentSettings(
                    node=NodeId("a"),
                    host="h",
                    address="127.0.0.1",
                    store=StoreSettings(endpoints=()),
                    environ={},
                    slots=2,
                    run_folder=self.run_folder,
                ),
                registration=self.registration,
                log_folders={},
                refused_writes=lambda: self.refused,
                busy_s=lambda: 0.25,
                readings=self._readings,
                requests=RequestTimes(),
            )
        )

    def _readings(self) -> Readings | None:
        return self.meters.readings() if self.answers else None

    def text(self) -> str:
        answer = self.scrape.answer()
        assert (answer.status, answer.content_type) == (HTTPStatus.OK, CONTENT_TYPE)
        return answer.body.decode()

    def value(self, name: str, *labels: str) -> float | None:
        found = {(n, values): value for n, values, value in parsed(self.text())}
        return found.get((f"elasticd_{name}", labels))


def test_node_says_what_it_has_and_holds(tmp_path: Path) -> None:
    """Its slots and theirs, its lease, what etcd refuses."""
    scene = Scene(tmp_path)
    assert (scene.value("slots"), scene.value("slots_used")) == (2, 1)
    assert (scene.value("job_slots", "own"), scene.value("job_slots", "other")) == (1, 0)
    assert (scene.value("lease_margin_seconds"), scene.value("node_draining")) == (0, 0)
    scene.registration.lease = SimpleNamespace(deadline_s=now_s() + 100.0)
    scene.registration.is_draining, scene.refused = True, 3
    margin_s = scene.value("lease_margin_seconds")
    assert margin_s is not None and 0.0 < margin_s <= 100.0
    assert (scene.value("node_draining"), scene.value("etcd_refused_writes")) == (1, 3)
    assert scene.value("build_info", elasticd.__version__) == 1
    assert scene.value("owner_busy_seconds") == 0.25


def test_keepers_metrics_come_with_it(tmp_path: Path) -> None:
    """From the file beside the keeper's log; without one they are absent."""
    scene = Scene(tmp_path)
    assert scene.value("checkpoint_saved_total", "own") is None
    path = scene.run_folder / "own" / "agents" / "a.keeper.prom"
    path.parent.mkdir(parents=True)
    path.write_text('elasticd_checkpoint_saved_total{job_name="own"} 4\n')
    assert scene.value("checkpoint_saved_total", "own") == 4


def test_event_writers_metrics_come_with_it(tmp_path: Path) -> None:
    """Beside those of the keeper."""
    scene = Scene(tmp_path)
    folder = scene.run_folder / "own" / "agents"
    folder.mkdir(parents=True)
    (folder / "a.keeper.prom").write_text("elasticd_checkpoint_saved_total 4\n")
    (folder / "a.tensorboard.prom").write_text("elasticd_tensorboard_dropped_steps_total 7\n")
    assert scene.value("tensorboard_dropped_steps_total", "own") == 7
    assert scene.value("checkpoint_saved_total", "own") == 4


def test_room_for_the_output_of_a_job_comes_with_it(tmp_path: Path) -> None:
    """Of its own folder where it has one; before anybody has written there it is absent."""
    scene = Scene(tmp_path)
    assert scene.value("output_free_bytes", "own") is None
    (scene.run_folder / "own").mkdir(parents=True)
    before = os.statvfs(tmp_path)
    free = scene.value("output_free_bytes", "own")
    assert free is not None and free % before.f_frsize == 0
    assert abs(free - before.f_bavail * before.f_frsize) < 1 << 30


def test_file_system_that_hangs_costs_its_room_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scrape waits a moment; once it answers again the next one has the number."""
    goes_on = Event()
    rooms = DiskRooms()
    folders = {JobName("own"): tmp_path}
    monkeypatch.setattr(module, "READ_TIMEOUT_S", 0.05)
    monkeypatch.setattr(module, "free_bytes", lambda folder: goes_on.wait(60.0) and 7)
    assert rooms.read(folders) == rooms.read(folders) == {}
    hung = rooms._thread
    assert hung is not None
    goes_on.set()
    hung.join(60.0)
    monkeypatch.setattr(module, "READ_TIMEOUT_S", 60.0)
    assert rooms.read(folders) == {JobName("own"): 7}
    assert rooms.read({}) == {}


def test_agent_whose_owner_does_not_answer_is_down(tmp_path: Path) -> None:
    """Values of before would look fresh to every alert."""
    scene = Scene(tmp_path)
    scene.answers = False
    assert scene.scrape.answer().status == HTTPStatus.SERVICE_UNAVAILABLE


def test_prometheus_own_tool_has_no_complaint(tmp_path: Path) -> None:
    """Names, types, help texts, and what `promtool` calls best practice."""
    tool = promtool()
    ended = subprocess.run(
        [tool, "check", "metrics"],
        input=Scene(tmp_path).text(),
        text=True,
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


def test_every_series_is_one_of_the_list(tmp_path: Path) -> None:
    """docs/metrics.md, the dashboard and the alerts are checked against that."""
    names = {name for name, _, _ in parsed(Scene(tmp_path).text())}
    listed = {metric.name for metric in CATALOG}
    histograms = {f"{m.name}_{end}" for m in CATALOG if m.bounds for end in ("sum", "count")}
    buckets = {f"{m.name}_bucket" for m in CATALOG if m.bounds}
    assert names <= listed | histograms | buckets

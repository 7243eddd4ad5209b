"""Where the stacks of an incident are read, and what is said if they cannot be had."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from elasticd.cli import incident_stacks as module
from elasticd.cli.incident_stacks import local_stacks_by_change, read_stacks
from elasticd.control.report.report import JobReport, job_report
from elasticd.errors import NotFound, Unavailable
from elasticd.records.ids import Generation, NodeId
from elasticd.records.reason import Reason
from elasticd.store.api import StoreSettings
from elasticd_agent.http_server.bundle import BundleFiles
from elasticd_agent.http_server.listener import HttpListener
from elasticd_agent.http_server.server import HttpServer
from tests.unit.control.world_case import node
from tests.unit.dashboard.records_case import HUNG, JOB, KEYS, SPEC, change_world, filled

B = NodeId("b")
G = Generation(3)
WORDS = "=== rank 1 ===\nin forward, with canary-of-agent, canary-of-job and canary-of-reader\n"
CLUSTER = StoreSettings(endpoints=("http://etcd:1",), password="canary-etcd")
GIVEN = replace(SPEC, env={"GIVEN": "canary-of-job"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    run_folder: Path
    settings: StoreSettings | None = None


def written(run_folder: Path, words: str = WORDS, name: str = "gen-3.b.stacks.txt") -> Path:
    folder = run_folder / JOB / "incidents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(words)
    return run_folder


@pytest.fixture(autouse=True)
def reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "READERS_TOKEN", "canary-of-reader")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[HttpServer]:
    environ = {"API_KEY": "canary-of-agent"}
    route = BundleFiles(written(tmp_path / "far"), {}, log_lines=list, environ=environ)
    server = HttpServer(HttpListener("127.0.0.1"), (route,))
    yield server
    server.close()


def test_in_a_cluster_the_agent_is_asked_and_no_secret_comes_through(
    agent: HttpServer, tmp_path: Path
) -> None:
    """Neither of its node, nor of the job, nor of who reads."""
    place = Place(run_folder=tmp_path / "here", settings=CLUSTER)
    found = read_stacks(place, GIVEN, G, B, node("b", agent.port))
    assert found.startswith("=== rank 1 ===\nin forward, with ***API_KEY***, ")
    assert "canary" not in found


def test_of_a_run_on_this_machine_the_disk_has_them(tmp_path: Path) -> None:
    place = Place(run_folder=written(tmp_path / "here"))
    found = read_stacks(place, GIVEN, G, B, None)
    assert "***GIVEN*** and ***READERS_TOKEN***" in found
    with pytest.raises(NotFound, match=r"There is no incidents/gen-4\.b\.stacks\.txt"):
        read_stacks(place, GIVEN, Generation(4), B, None)
    with pytest.raises(NotFound, match=r"There is no folder .*elsewhere/digits of this run"):
        read_stacks(Place(run_folder=tmp_path / "elsewhere"), GIVEN, G, B, None)


def test_a_node_that_cannot_be_asked_is_named(agent: HttpServer, tmp_path: Path) -> None:
    """In one sentence, which the page shows."""
    place = Place(run_folder=tmp_path / "here", settings=CLUSTER)
    with pytest.raises(Unavailable, match=r"^The stacks are on node b, whose agent is gone\.$"):
        read_stacks(place, SPEC, G, B, None)
    with pytest.raises(Unavailable, match="on node b, whose agent does not answer"):
        read_stacks(place, SPEC, G, B, node("b", 1))
    with pytest.raises(NotFound, match="Node b does not have them: there is no incidents/gen-4"):
        read_stacks(place, SPEC, Generation(4), B, node("b", agent.port))


def test_a_run_folder_that_all_machines_share_has_them_though_the_agent_is_gone(
    tmp_path: Path,
) -> None:
    """Where it says that it is this very job's, and not that of another one of the name."""
    place = Place(run_folder=tmp_path / "default", settings=CLUSTER)
    spec = replace(SPEC, run_folder=str(written(tmp_path / "shared")))
    uid = tmp_path / "shared" / JOB / "uid"
    uid.write_text("another\n")
    with pytest.raises(Unavailable):
        read_stacks(place, spec, G, B, None)
    uid.write_text(f"{SPEC.uid}\n")
    assert read_stacks(place, spec, G, B, None).startswith("=== rank 1")


def report() -> JobReport:
    store = filled()
    for generation in (4, 5):
        path = f"/runs/{JOB}/incidents/gen-{generation - 1}.node-1.stacks.txt"
        hung = replace(HUNG, log_path=path)
        change_world(store, generation, Reason.WORKER_HUNG, ("node-0",), 100.0, hung)
    found = job_report(store.list(KEYS.job(JOB)).items, KEYS, JOB)
    assert found is not None
    return found


def test_stacks_of_a_page_are_those_that_are_there(tmp_path: Path) -> None:
    """By their change; of a cluster none, whose files lie on other machines."""
    place = Place(run_folder=written(tmp_path, "in f\n", "gen-3.node-1.stacks.txt"))
    assert local_stacks_by_change(place, report()) == {4: {"node-1": "in f\n"}}
    assert local_stacks_by_change(replace(place, settings=CLUSTER), report()) == {}


def test_a_page_has_room_for_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says where the others are."""
    monkeypatch.setattr(module, "PAGE_ROOM", 12)
    for generation in (3, 4):
        written(tmp_path, "in f, g\n", f"gen-{generation}.node-1.stacks.txt")
    found = local_stacks_by_change(Place(run_folder=tmp_path), report())
    node = NodeId("node-1")
    assert found[Generation(5)] == {node: "in f, g\n"}
    assert "no room for them: see /runs/digits/incidents/gen-3" in found[Generation(4)][node]


def test_where_no_rank_wrote_anything_a_page_has_the_stacks_of_every_node(tmp_path: Path) -> None:
    """Of the world before, as far as their files are there and there is room."""
    store = filled()
    change_world(store, 4, Reason.JOINED, ("node-0", "node-1", "node-2"), 100.0)
    change_world(store, 5, Reason.NO_OUTPUT, ("node-0",), 120.0)
    found = job_report(store.list(KEYS.job(JOB)).items, KEYS, JOB)
    assert found is not None
    for name in ("node-0", "node-2"):
        written(tmp_path, f"in {name}\n", f"gen-4.{name}.stacks.txt")
    place = Place(run_folder=tmp_path)
    each = {"node-0": "in node-0\n", "node-2": "in node-2\n"}
    assert local_stacks_by_change(place, found) == {5: each}


def test_stacks_of_silent_ranks_without_room_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their file: there is no culprit that names it."""
    monkeypatch.setattr(module, "PAGE_ROOM", 1)
    store = filled()
    change_world(store, 4, Reason.JOINED, ("node-0",), 100.0)
    change_world(store, 5, Reason.NO_OUTPUT, ("node-0",), 120.0)
    found = job_report(store.list(KEYS.job(JOB)).items, KEYS, JOB)
    assert found is not None
    place = Place(run_folder=written(tmp_path, "in f\n", "gen-4.node-0.stacks.txt"))
    said = local_stacks_by_change(place, found)[Generation(5)][NodeId("node-0")]
    assert said.endswith("see incidents/gen-4.node-0.stacks.txt in the job's folder.")

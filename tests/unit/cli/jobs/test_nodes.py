"""`elasticd nodes`: what is there, what is used, and what was lost lately."""

import json
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.cli.main import main
from elasticd.cli.record_source import RecordSource
from elasticd.records.account.incident import Incident
from elasticd.records.account.late import LateNode, LateNodes
from elasticd.records.ids import Generation, JobName, NodeId
from elasticd.records.job import JobStatus
from elasticd.records.reason import Phase, Reason
from elasticd.store.api import StoreSettings
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, SPEC, make_newer, member, put, world


def incident(generation: int, lost: str, ago_s: float) -> Incident:
    return Incident(
        generation=Generation(generation),
        node=NodeId("a"),
        host="host-a",
        reason=Reason.NODE_LOST,
        nodes=1,
        world_size=1,
        phases_s={},
        at_unix_s=time.time() - ago_s,
        lost=(NodeId(lost),),
    )


def test_used_and_free_slots_are_shown_and_summed(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """The question of who wants to submit something."""
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.RUNNING, generation=Generation(1)))
    put(store, KEYS.world(JOB), world(1, "a"))
    put(store, KEYS.member(JOB, NodeId("a")), member("a"))
    assert main(["nodes"]) == 0
    shown = capfd.readouterr().out
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if "host-" in line}
    assert rows["a"][3:7] == ["1", "1", "0", JOB]
    assert rows["b"][3:6] == ["1", "0", "1"]
    assert "2 nodes, 2 slots: 1 used by 1 job, 1 free\n" in shown
    assert main(["nodes", "--json"]) == 0
    told = {each["node"]["node"]: each for each in json.loads(capfd.readouterr().out)}
    assert (told["a"]["used_slots"], told["b"]["free_slots"]) == (1, 1)


def test_nodes_lost_lately_are_named_once_until_they_are_back(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """Newest first; not those of last week, nor those that are registered again."""
    told = [("gone", 7_200), ("gone", 120), ("older", 300), ("ancient", 200_000), ("b", 60)]
    for number, (name, ago_s) in enumerate(told, 2):
        put(
            store,
            KEYS.incident(JOB, Generation(number), NodeId("a")),
            incident(number, name, ago_s),
        )
    assert main(["nodes"]) == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("lost: ")]
    assert lines == [
        f"lost: gone, 2 min ago, by job {JOB}: a node was lost: its lease ran out",
        f"lost: older, 5 min ago, by job {JOB}: a node was lost: its lease ran out",
    ]
    assert main(["nodes", "--lost", "--json"]) == 0
    assert [each["node"] for each in json.loads(capfd.readouterr().out)] == ["gone", "older"]
    assert main(["nodes", "--lost"]) == 0
    assert "host-a" not in capfd.readouterr().out


def test_late_node_is_shown_with_its_state(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """As the job that it holds up the most has found it; not once it is over."""
    other = JobName("j2")
    put(store, KEYS.spec(other), replace(SPEC, name=other))
    for job, ratio in ((JOB, 0.34), (other, 0.12)):
        put(store, KEYS.status(job), JobStatus(phase=Phase.RUNNING, generation=Generation(1)))
        put(store, KEYS.late(job), LateNodes(nodes=(late_b(ratio),)))
    assert main(["nodes"]) == 0
    shown = capfd.readouterr().out
    assert "ready, 34 % late" in shown and shown.count(" late") == 1
    assert main(["nodes", "--json"]) == 0
    told = {each["node"]["node"]: each["late"] for each in json.loads(capfd.readouterr().out)}
    assert (told["a"], told["b"]["ratio"], told["b"]["cost_nodes"]) == (None, 0.34, 0.8)
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.SUCCEEDED, generation=Generation(1)))
    put(store, KEYS.late(other), LateNodes(nodes=(replace(late_b(0.12), until_unix_s=9.0),)))
    assert main(["nodes"]) == 0
    assert " late" not in capfd.readouterr().out


def late_b(ratio: float) -> LateNode:
    return LateNode(node=NodeId("b"), ratio=ratio, cost_nodes=0.8, since_unix_s=1.0)


def test_of_runs_that_are_over_it_says_so_and_where_to_look(
    store: MemoryStore, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that a machine without an agent is missing, nor that nothing was lost."""
    put(store, KEYS.incident(JOB, Generation(2), NodeId("a")), incident(2, "gone", 120))
    over = RecordSource(store=store, keys=KEYS, run_folder=Path(), is_archive=True)
    live = RecordSource(store=MemoryStore(), keys=KEYS, run_folder=Path())

    def said(*flags: str, opened: list[RecordSource]) -> str:
        monkeypatch.setattr("elasticd.cli.jobs.nodes.sources", lambda _: nullcontext(opened))
        assert main(["nodes", *flags]) == 0
        return capfd.readouterr().out

    for runs in ([over], [over, over], []):
        assert said(opened=runs) == (
            "No local run is in progress, so there are no nodes now: `elasticd why JOB` tells of "
            "the nodes of one that is over.\n"
        )
        assert said("--lost", opened=runs) == (
            "No local run is in progress: `elasticd why JOB` tells which nodes one that is over "
            "has lost.\n"
        )
        assert json.loads(said("--json", opened=runs)) == []
    assert said(opened=[over, live]) == "No node of the run in progress has registered yet.\n"
    assert said("--lost", opened=[over, live]) == "No job lost a node in the last day.\n"
    cluster = replace(live, settings=StoreSettings(endpoints=("http://127.0.0.1:1",)))
    assert said(opened=[cluster]).startswith("There are no nodes: `elasticd agent --etcd ...`")


def test_no_lost_node_is_said(store: MemoryStore, capfd: pytest.CaptureFixture[str]) -> None:
    """Where only those were asked for."""
    assert main(["nodes", "--lost"]) == 0
    assert capfd.readouterr().out == "No job lost a node in the last day.\n"


def test_node_of_a_newer_elasticd_hides_no_other(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor is a list of which nothing can be read called empty."""
    make_newer(store, KEYS.node(NodeId("b")))
    assert main(["nodes"]) == 0
    said = capfd.readouterr()
    assert [line.split()[0] for line in said.out.splitlines() if "host-" in line] == ["a"]
    assert said.err.startswith("elasticd: Node b is left out: The Node record in etcd has schema")
    make_newer(store, KEYS.node(NodeId("a")))
    assert main(["nodes"]) == 0
    assert capfd.readouterr().out == ""

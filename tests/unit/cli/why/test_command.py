"""`elasticd why`: what each change cost, and where all the time went."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.cli.main import main
from elasticd.records.account.incident import Incident
from elasticd.records.account.time_spent import JobProgress, TimeSpent
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, Life, NodeId, Nonce, Rank, Slot
from elasticd.records.job import JobStatus
from elasticd.records.reason import Phase, Reason
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, SPEC, member, put


@pytest.fixture
def told(store: MemoryStore) -> MemoryStore:
    """Two nodes that told of a lost one, and what they and the lost one counted."""
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.SUCCEEDED, generation=Generation(2)))
    for name, notice_s in (("a", 1.0), ("b", 1.25)):
        node = NodeId(name)
        incident = Incident(
            generation=Generation(2),
            node=node,
            host=name,
            reason=Reason.NODE_LOST,
            lost=(NodeId("c"),),
            world_size=2,
            nodes=2,
            spent_s={"notice": notice_s, "recover": 4.0},
            restored_from="storage" if name == "a" else "",
        )
        put(store, KEYS.incident(JOB, Generation(2), node), incident)
        spent = TimeSpent(node=node, uid=SPEC.uid, seconds={"train": 60.0, "recover": 4.0})
        put(store, KEYS.time_spent(JOB, node, Life(f"life{name}")), spent)
    gone = {"train": 30.0, "unexplained": 2.0, "wait": 0.01}
    progress = JobProgress(uid=SPEC.uid, seconds=gone, wanted_s=200.0, has_steps=True)
    put(store, KEYS.progress(JOB), progress)
    return store


def test_a_change_says_what_it_cost_and_the_end_where_all_time_went(
    told: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", JOB]) == 0
    shown = capfd.readouterr().out
    assert "cost 10.25 s of slots: recover 8.00 s, notice 2.25 s" in shown
    rows = [line.split() for line in shown.splitlines() if "%" in line and len(line.split()) == 3]
    assert rows == [
        ["train", "150.0", "93.7%"],
        ["recover", "8.0", "5.0%"],
        ["unexplained", "2.0", "1.2%"],
        ["all", "160.0", "100.0%"],
    ]
    assert "goodput 93.7% of the time of all slots but spare ones, attainment 75.0%" in shown


def test_where_no_steps_are_seen_workers_run(
    told: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    put(told, KEYS.progress(JOB), JobProgress(uid=SPEC.uid))
    assert main(["why", JOB]) == 0
    shown = capfd.readouterr().out
    assert "running " in shown and "train " not in shown
    assert "steps are not seen here" in shown


def test_programs_get_the_same(told: MemoryStore, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["why", JOB, "--json"]) == 0
    plain = json.loads(capfd.readouterr().out)
    assert plain["account"]["seconds"]["recover"] == 8.0
    assert plain["account"]["attainment"] == 0.75
    (change,) = plain["changes"]
    assert change["spent_s"] == {"notice": 2.25, "recover": 8.0}
    assert (change["slot_s"], change["restored_from"]) == (10.25, "storage")


def test_of_a_job_of_an_older_version_nothing_is_known(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    put(store, KEYS.spec(JOB), replace(SPEC, uid="v"))
    assert main(["why", JOB]) == 0
    assert "goodput" not in capfd.readouterr().out
    assert main(["why", JOB, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["account"] is None


def test_the_changes_are_written_as_a_trace(
    told: MemoryStore, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "trace.json"
    assert main(["why", JOB, "--trace", str(target)]) == 0
    assert str(target) in capfd.readouterr().out
    assert json.loads(target.read_text())["traceEvents"]


def test_job_without_a_world_says_for_what_it_waits(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """As `status` does: a node that cannot start workers is named, with its reason."""
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.PENDING))
    why = "/var/runs/j/agents: No space left on device"
    failure = Failure(
        node=NodeId("a"),
        incarnation=Incarnation("i"),
        host="host-a",
        generation=Generation(0),
        rank=Rank(0),
        local_rank=0,
        slot=Slot(0),
        nonce=Nonce(0),
        exception=why,
    )
    put(store, KEYS.member(JOB, NodeId("a")), replace(member("a"), slots=(), failure=failure))
    assert main(["why", JOB]) == 0
    said = capfd.readouterr().out
    assert "job pending: waiting for 1 more node: 0 of at least 1 ready" in said
    assert f"; a cannot start workers: {why}\n" in said


def test_all_of_it_is_written_as_a_page(
    told: MemoryStore, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Beside a trace, if both are asked for."""
    page, trace = tmp_path / "why.html", tmp_path / "trace.json"
    assert main(["why", JOB, "--html", str(page), "--trace", str(trace)]) == 0
    assert str(page) in capfd.readouterr().out
    assert "goodput 93.7%" in page.read_text() and trace.exists()


def test_json_is_printed_beside_a_file_and_alone(
    told: MemoryStore, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A program that asks for both gets both; what is told of the file would be no JSON."""
    page, trace = tmp_path / "why.html", tmp_path / "trace.json"
    assert main(["why", JOB, "--json", "--html", str(page), "--trace", str(trace)]) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["job"] == JOB
    assert str(page) in said.err and str(trace) in said.err and page.exists() and trace.exists()


@pytest.mark.parametrize("flag", ["--trace", "--html"])
@pytest.mark.parametrize("target", ["", "gone/trace.json", "a\0b"])
def test_a_file_that_cannot_be_written_is_refused_in_a_sentence(
    told: MemoryStore, capfd: pytest.CaptureFixture[str], tmp_path: Path, target: str, flag: str
) -> None:
    assert main(["why", JOB, flag, target and str(tmp_path / target)]) == 2
    said = capfd.readouterr().err
    assert "cannot be written to" in said and f"choose another {flag}" in said
    assert "Traceback" not in said


def test_page_is_utf_8_as_it_says_whatever_the_locale_is(tmp_path: Path) -> None:
    """It is looked at elsewhere."""
    page = tmp_path / "why.html"
    code = (
        "import sys\n"
        "from elasticd.cli.why.command import _write\n"
        "_write('genug f\\xfcr heute', sys.argv[1], 'page', '--html')\n"
    )
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code, str(page)], env=env, check=True)
    assert page.read_text(encoding="utf-8") == "genug f\xfcr heute"

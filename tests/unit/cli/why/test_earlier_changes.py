"""The changes that etcd no longer has, as `incidents.jsonl` counts them."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.cli.bundle.texts import report_texts
from elasticd.cli.main import main
from elasticd.cli.why.earlier_changes import EarlierChanges, earlier_lines, fold, read_earlier
from elasticd.cli.why.page import why_page
from elasticd.control.report.report import JobReport, read_job
from elasticd.records.account.incident import Incident
from elasticd.records.codec import to_plain
from elasticd.records.ids import Generation, NodeId
from elasticd.records.job import JobStatus
from elasticd.records.reason import Phase, Reason
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, SPEC, put

OLDEST = 5


def incident(generation: int, node: str, reason: Reason, **more: object) -> Incident:
    return replace(
        Incident(
            generation=Generation(generation), node=NodeId(node), host=node, reason=reason, nodes=2
        ),
        **more,  # type: ignore[arg-type]
    )


def lines(incidents: Iterable[Incident]) -> list[str]:
    """Return what an agent's `IncidentFile` writes of them."""
    found = []
    for each in incidents:
        plain = to_plain(each)
        assert isinstance(plain, dict)
        plain.update(plain.pop("unknown"), at_unix_s=1.0)
        found.append(json.dumps(plain) + "\n")
    return found


LONG_AGO = lines(
    [
        incident(1, "a", Reason.FIRST_WORLD, spent_s={"start": 9.0}),
        incident(2, "a", Reason.WORKER_KILLED, spent_s={"recover": 1.0}, lost_steps=1),
        incident(2, "a", Reason.WORKER_KILLED, spent_s={"recover": 2.0}, lost_steps=3),
        incident(2, "b", Reason.WORKER_KILLED, spent_s={"recover": 0.5}, lost_steps=3),
        incident(3, "a", Reason.JOINED, spent_s={"resize": 0.25}),
        incident(4, "b", Reason.WORKER_KILLED, lost_steps=1),
        incident(OLDEST, "a", Reason.NODE_LOST, spent_s={"notice": 7.0}, lost_steps=50),
    ]
)
SUMS = EarlierChanges(
    count=3,
    by_reason={"worker_killed": 2, "joined": 1},
    spent_s={"recover": 2.5, "resize": 0.25},
    lost_steps=4,
)


@pytest.fixture
def long_job(store: MemoryStore) -> MemoryStore:
    """A job of which etcd has only the newest change."""
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.SUCCEEDED, generation=Generation(OLDEST)))
    newest = incident(OLDEST, "a", Reason.NODE_LOST)
    put(store, KEYS.incident(JOB, Generation(OLDEST), NodeId("a")), newest)
    return store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The run folder, where the job's folder has both files."""
    here = tmp_path / JOB
    here.mkdir()
    (here / "uid").write_text(SPEC.uid)
    (here / "incidents.jsonl.1").write_text("".join(LONG_AGO[:2]))
    (here / "incidents.jsonl").write_text("".join(LONG_AGO[2:]))
    return tmp_path


def report_of(store: MemoryStore) -> JobReport:
    report = read_job(store, KEYS, JOB)
    assert report is not None
    return report


def test_each_change_counts_once_and_a_later_line_of_a_node_replaces_an_earlier_one() -> None:
    """The first world is no change, and those that etcd has are told one by one."""
    assert fold(LONG_AGO, before=OLDEST) == SUMS


@pytest.mark.parametrize(
    "line", ["", "\n", '{"generation": 3, "no', "[]", "null", '{"generation": 3}', '"\\ud800"']
)
def test_lines_that_make_no_sense_are_left_out(line: str) -> None:
    """As where a disk was full, or a machine lost its power."""
    assert fold([line, *LONG_AGO, line], before=OLDEST) == SUMS


def test_why_folds_them_into_sums(
    long_job: MemoryStore, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", JOB, "--log-dir", str(folder)]) == 0
    shown = capfd.readouterr().out
    assert "generations 1 to 4 are no longer in etcd; of their changes incidents.jsonl has 3:" in (
        shown
    )
    assert "2 x a worker was killed; 1 x nodes joined" in shown
    assert "cost 2.75 s of slots: recover 2.50 s, resize 0.25 s" in shown
    assert "4 steps done again" in shown
    assert main(["why", JOB, "--log-dir", str(folder), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["earlier_changes"] == to_plain(SUMS)


def test_page_and_bundle_have_the_same_sums(long_job: MemoryStore, folder: Path) -> None:
    report = report_of(long_job)
    earlier = read_earlier(report, folder, is_cluster=True)
    assert earlier == SUMS
    assert "2 x a worker was killed; 1 x nodes joined" in why_page(report, 0.0, earlier=earlier)
    texts = report_texts(report, (), earlier)
    assert "4 steps done again" in texts["why.txt"] and "4 steps" in texts["why.html"]
    assert json.loads(texts["data/worlds.json"])["earlier_changes"] == to_plain(SUMS)


def test_folder_of_another_job_of_that_name_is_not_read(
    long_job: MemoryStore, folder: Path
) -> None:
    (folder / JOB / "uid").write_text("that of another one")
    report = report_of(long_job)
    earlier = read_earlier(report, folder, is_cluster=True)
    assert earlier == EarlierChanges()
    (line,) = earlier_lines(report, earlier)
    assert line.endswith("incidents.jsonl in the job's folder on its nodes has them")


def test_nothing_is_said_if_etcd_has_all(store: MemoryStore, folder: Path) -> None:
    for generation in (1, 2):
        told = incident(generation, "a", Reason.JOINED)
        put(store, KEYS.incident(JOB, Generation(generation), NodeId("a")), told)
    report = report_of(store)
    earlier = read_earlier(report, folder, is_cluster=True)
    assert earlier == EarlierChanges() and not earlier_lines(report, earlier)


def test_reason_of_a_newer_version_is_shown_as_it_is(long_job: MemoryStore) -> None:
    newer = LONG_AGO[4].replace('"joined"', '"struck_by_lightning"')
    earlier = fold([newer], before=OLDEST)
    assert any(
        "1 x struck by lightning" in line for line in earlier_lines(report_of(long_job), earlier)
    )

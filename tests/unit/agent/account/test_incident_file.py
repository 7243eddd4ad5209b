"""The incidents of a job, as lines in its folder."""

import json
import os
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from elasticd.cli.why.earlier_changes import fold
from elasticd.control.local_run.run_folder import OF_WORKERS, move_aside
from elasticd.records.account.incident import Incident
from elasticd.records.account.late import LateNode
from elasticd.records.codec import from_plain
from elasticd.records.ids import Generation, NodeId
from elasticd.records.reason import Reason
from elasticd_agent.account import incident_file
from elasticd_agent.account.incident_file import FILE_NAME, LINES_KEPT, IncidentFile
from tests.fixtures.patience import patience_s

WAIT_S = patience_s(30.0)


def incident(generation: int) -> Incident:
    return Incident(
        generation=Generation(generation),
        node=NodeId("a"),
        host="h",
        reason=Reason.NODE_LOST,
        spent_s={"recover": 1.5},
    )


def lines(folder: Path) -> list[Incident]:
    text = (folder / FILE_NAME).read_text()
    return [from_plain(Incident, json.loads(line)) for line in text.splitlines()]


def test_each_incident_is_a_line_that_reads_back(tmp_path: Path) -> None:
    """Also beside another agent that adds to the same file."""
    one, other = IncidentFile(tmp_path), IncidentFile(tmp_path)
    for generation in range(1, 20):
        one.add(incident(generation))
        other.add(incident(generation))
    one.wait(WAIT_S)
    other.wait(WAIT_S)
    found = lines(tmp_path)
    assert sorted(each.generation for each in found) == sorted([*range(1, 20)] * 2)
    assert found[0].spent_s == {"recover": 1.5}
    assert found[0].at_unix_s > 0.0


def test_late_node_is_a_line_that_no_reader_takes_for_a_change(tmp_path: Path) -> None:
    """It has no generation, so `why` counts no change for it; the record reads back."""
    late = LateNode(node=NodeId("b"), ratio=0.5, cost_nodes=1.0, since_unix_s=7.0)
    file = IncidentFile(tmp_path)
    file.add_late(late)
    file.add(incident(2))
    file.add_late(replace(late, until_unix_s=9.0))
    file.wait(WAIT_S)
    text = (tmp_path / FILE_NAME).read_text().splitlines()
    begun, _, over = (json.loads(line) for line in text)
    assert begun.keys() == over.keys() == {"late", "at_unix_s"}
    assert from_plain(LateNode, begun["late"]) == late
    assert from_plain(LateNode, over["late"]) == replace(late, until_unix_s=9.0)
    assert fold(text, before=9) == fold(text[1:2], before=9) and fold(text, before=9).count == 1


def test_a_file_that_has_grown_large_is_set_aside_in_place_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of months writes for months; two agents share the file, and neither tears a line."""
    file = IncidentFile(tmp_path)
    file.add(incident(1))
    file.wait(WAIT_S)
    a_line = (tmp_path / FILE_NAME).stat().st_size
    monkeypatch.setattr(incident_file, "BYTES_KEPT", 4 * a_line - 20)
    files = (file, IncidentFile(tmp_path))
    for generation in range(2, 10):
        files[generation % 2].add(incident(generation))
        files[generation % 2].wait(WAIT_S)
    aside = [from_plain(Incident, json.loads(line)) for line in aside_of(tmp_path).splitlines()]
    assert [each.generation for each in (*aside, *lines(tmp_path))] == [5, 6, 7, 8, 9]
    move_aside(tmp_path, OF_WORKERS)
    assert [path.name for path in tmp_path.iterdir()] == ["earlier-1"]


def aside_of(folder: Path) -> str:
    return (folder / f"{FILE_NAME}.1").read_text()


def test_a_folder_that_is_not_there_costs_lines_and_nothing_else(tmp_path: Path) -> None:
    file = IncidentFile(tmp_path / "gone")
    file.add(incident(1))
    file.wait(WAIT_S)
    (tmp_path / "gone").mkdir()
    file.add(incident(2))
    file.wait(WAIT_S)
    assert [each.generation for each in lines(tmp_path / "gone")] == [2]


def test_a_disk_that_does_not_answer_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes meanwhile is kept, up to a bound."""
    is_stuck, goes_on, real = Event(), Event(), os.open

    def stuck(path: Path, flags: int, mode: int) -> int:
        is_stuck.set()
        assert goes_on.wait(WAIT_S)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", stuck)
    file = IncidentFile(tmp_path)
    file.add(incident(0))
    assert is_stuck.wait(WAIT_S)
    for generation in range(1, LINES_KEPT + 6):
        file.add(incident(generation))
    goes_on.set()
    file.wait(WAIT_S)
    assert [each.generation for each in lines(tmp_path)] == [0, *range(6, LINES_KEPT + 6)]


def test_where_no_thread_can_be_started_a_line_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine has no process left: that must not end the job's part here."""
    with monkeypatch.context() as without:
        without.setattr(Thread, "start", refuse)
        file = IncidentFile(tmp_path)
        file.add(incident(1))
    file.add(incident(2))
    file.wait(WAIT_S)
    assert [each.generation for each in lines(tmp_path)] == [1, 2]


def refuse(thread: Thread) -> None:
    raise RuntimeError("can't start new thread")

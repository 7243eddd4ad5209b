"""A job's changes as a trace that Perfetto opens."""

import json

from elasticd.control.report.report import job_report
from elasticd.control.report.trace import chrome_trace
from elasticd.records.account.incident import Incident
from elasticd.records.ids import Generation, NodeId
from elasticd.records.reason import Reason
from tests.unit.control.report.test_report import JOB, KEYS, item, records


def trace() -> list[dict[str, object]]:
    unseen = Incident(
        generation=Generation(5),
        node=NodeId("c"),
        host="c",
        reason=Reason.JOINED,
        is_announced=True,
        at_unix_s=105.0,
    )
    found = [*records(), item(KEYS.incident(JOB, Generation(5), NodeId("c")), unseen)]
    report = job_report(found, KEYS, JOB)
    assert report is not None
    made = chrome_trace("j", report.changes, report.incidents)
    assert json.loads(json.dumps(made)) == made
    events = made["traceEvents"]
    assert isinstance(events, list)
    return events


def test_the_job_and_each_node_have_a_row_with_a_name() -> None:
    names = {e["pid"]: e["args"]["name"] for e in trace() if e["ph"] == "M"}  # type: ignore[index]
    assert names == {0: "job j", 1: "a", 2: "b", 3: "c"}


def test_generations_follow_each_other_and_none_ends_before_it_begins() -> None:
    spans = [event for event in trace() if event["ph"] == "X" and event["pid"] == 0]
    assert [str(span["name"]).split(":")[0] for span in spans] == [
        f"generation {number}" for number in (1, 2, 3, 4, 5)
    ]
    assert all(float(str(span["dur"])) >= 0.0 for span in spans)
    assert "worker_killed" in str(spans[1]["name"])
    assert spans[1]["args"]["culprit"] == "rank 1 on b"  # type: ignore[index]


def test_phases_of_a_node_end_when_it_wrote_them_down() -> None:
    spans = [e for e in trace() if e["ph"] == "X" and e["pid"] == 2 and e["name"] != "agree"]
    assert [(span["name"], span["ts"], span["dur"]) for span in spans] == [
        ("stop", 101.4e6, 0.2e6),
        ("start", 101.6e6, 0.4e6),
    ]

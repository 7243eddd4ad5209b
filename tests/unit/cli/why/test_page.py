"""The page of `elasticd why --html`: all as text, nothing from elsewhere."""

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser

from elasticd.cli.why.page import why_page
from elasticd.control.report.job_time import JobTime
from elasticd.control.report.report import JobReport, job_report
from elasticd.goodput.cause import TimeCause
from elasticd.records.ids import Generation, NodeId
from elasticd.records.job import JobStatus
from elasticd.records.reason import Phase, Reason
from tests.unit.control.report.test_report import CULPRIT, JOB, KEYS, records

EVIL = "<script>alert('x')</script> & \"quoted\""
VOID = {"meta", "br"}
WRITTEN_S = 1_700_000_000.0


class Reader(HTMLParser):
    """Sees that every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name in ("src", "href") or name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(
    report: JobReport, stacks: Mapping[Generation, Mapping[NodeId, str]] | None = None
) -> Reader:
    reader = Reader()
    reader.feed(why_page(report, WRITTEN_S, stacks))
    reader.close()
    assert reader.open == []
    return reader


def report() -> JobReport:
    found = job_report(records(), KEYS, JOB)
    assert found is not None
    spent = {TimeCause.TRAIN: 75.0, TimeCause.RECOVER: 20.0, TimeCause.UNEXPLAINED: 5.0}
    return replace(found, time=JobTime(seconds=spent, wanted_s=200.0, has_steps=True))


def test_changes_and_account_stand_in_it() -> None:
    page = page_of(report())
    assert "generation 2: 2 nodes, 2 workers (a worker was killed: rank 1 on hb (b)" in page.text
    assert "goodput 75.0%" in page.text and "attainment 37.5%" in page.text
    assert "unexplained5.05.0%" in page.text
    assert page.tags.count("article") == 4
    assert page.tags.count("i") == 3, "a bar with a part for each cause"


def test_faults_are_told_from_what_was_planned_without_colours_too() -> None:
    text = page_of(report()).text
    assert "\u2715 generation 2: 2 nodes, 2 workers (a worker was killed" in text
    assert "\u25c7 generation 1" in text
    assert why_page(report(), WRITTEN_S).count("<article class=fault>") == text.count("\u2715")


def test_node_that_was_not_wanted_any_more_is_no_fault() -> None:
    """A job that is scaled down loses nodes too, and nothing broke."""
    found = report()
    last = replace(found.changes[-1], culprit=None, lost=(NodeId("b"),))
    for reason, sign in ((Reason.SCALED, "\u25c7"), (Reason.NODE_LOST, "\u2715")):
        changes = (*found.changes[:-1], replace(last, reason=reason))
        text = page_of(replace(found, changes=changes)).text
        assert f"{sign} generation {last.generation}:" in text


def test_page_says_who_submitted_the_job_and_when_it_was_written() -> None:
    """It is mailed around, and read when the job has long gone on."""
    spec = replace(report().spec, submitted_by=EVIL, submitted_at_unix_s=WRITTEN_S - 7_200.0)
    text = page_of(replace(report(), spec=spec)).text
    at, before = (
        time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(WRITTEN_S - ago_s))
        for ago_s in (0.0, 7_200.0)
    )
    assert f"submitted by {EVIL} at {before}; this page was written at {at}" in text


def test_what_a_script_raised_is_text() -> None:
    """Wherever it comes from: the name of a file, a traceback, an exception."""
    failure = replace(CULPRIT, traceback=EVIL, exception=EVIL, log_path=EVIL, host=EVIL)
    found = report()
    changes = tuple(replace(change, culprit=failure) for change in found.changes)
    spec = replace(found.spec, entry=EVIL, args=(EVIL,))
    status = JobStatus(phase=Phase.FAILED, failure=failure, message=EVIL)
    page = page_of(replace(found, changes=changes, spec=spec, status=status))
    assert "script" not in page.tags
    assert page.text.count(EVIL) >= 8


def test_stacks_stand_with_their_change_as_text() -> None:
    """And with no other one; a reader opens them without a script."""
    found = report()
    of = next(change.generation for change in found.changes if change.culprit is not None)
    page = page_of(found, {of: {NodeId(EVIL): f"in {EVIL}\n"}})
    assert "script" not in page.tags and page.tags.count("details") == 1
    assert f"stacks of the ranks of {EVIL}in {EVIL}" in page.text
    assert "details" not in page_of(found).tags


def test_where_no_rank_wrote_anything_every_node_has_its_stacks() -> None:
    """Nobody is to blame, so the change has no culprit."""
    found = report()
    of = next(change.generation for change in found.changes if change.culprit is None)
    page = page_of(found, {of: {NodeId("a"): "in f\n", NodeId("b"): "in g\n"}})
    assert page.tags.count("details") == 2
    assert "ranks of ain f" in page.text and "ranks of bin g" in page.text


def test_a_job_without_anything_has_a_page() -> None:
    found = report()
    page = page_of(replace(found, changes=(), time=None))
    assert "What changed" in page.text


def test_it_asks_for_nothing_and_is_small() -> None:
    html = why_page(report(), WRITTEN_S)
    assert "default-src 'none'" in html
    assert not re.search(r"https?://|@import|url\(", html)
    assert len(html) < 20_000

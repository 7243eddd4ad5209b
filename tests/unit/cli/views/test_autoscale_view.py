"""What `status`, `why` and the pages show of a job that the autoscaler sizes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from elasticd.autoscale.explain.curve_picture import curve_picture
from elasticd.autoscale.explain.curve_table import curve_points
from elasticd.autoscale.explain.view import autoscale_view
from elasticd.cli.bundle.texts import report_texts
from elasticd.cli.jobs import status as status_module
from elasticd.cli.main import main
from elasticd.cli.record_source import RecordSource
from elasticd.cli.why import command as why_module
from elasticd.cli.why.page import why_page
from elasticd.control.prune import prune
from elasticd.records.ids import JobName
from elasticd.records.job import Want
from elasticd.records.reason import Phase
from elasticd.store.memory import MemoryStore
from tests.fixtures.autoscaled import CURVE, JOB, KEYS, autoscaled, report_of

WISH = Want(writer="autoscaler", nodes=2, why="3 were taken back")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryStore:
    """A running job with a policy, at which `status` and `why` look."""
    made = autoscaled(wants=(WISH,))
    source = RecordSource(store=made, keys=KEYS, run_folder=tmp_path)

    @contextmanager
    def one(values: object, job: str) -> Iterator[tuple[RecordSource, JobName]]:
        yield source, JobName(job)

    for module in (status_module, why_module):
        monkeypatch.setattr(module, "job_source", one)
    return made


def test_status_says_who_wants_the_size_and_what_holds_the_autoscaler(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """The wish and its reason stand once."""
    assert main(["status", JOB]) == 0
    told = capfd.readouterr().out
    assert "size: 2 nodes, wished for by the autoscaler: 3 were taken back\n" in told
    assert "autoscaler: held since 20" in told and told.count("3 were taken back") == 1
    assert main(["status", JOB, "--json"]) == 0
    plain = json.loads(capfd.readouterr().out)
    assert plain["size_want"]["writer"] == "autoscaler" and "held" in plain["autoscaler"]


def test_why_has_the_curve_with_its_decisions(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """In words and for programs."""
    assert main(["why", JOB]) == 0
    told = capfd.readouterr().out
    assert "curve: fit of 3 sizes" in told and "measured, 2 windows" in told
    assert "#2 2 -> 3 nodes (goodput, tried)" in told
    assert main(["why", JOB, "--json"]) == 0
    plain = json.loads(capfd.readouterr().out)["autoscale"]
    assert len(plain["decisions"]) == 3 and plain["curve"]["points"][3]["nodes"] == 4


def test_job_that_never_had_a_policy_says_nothing_of_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Neither in `status` nor in `why`."""
    bare = report_of(autoscaled(policy=None, memory=None, curve=None, decisions=()))
    status_module.show_job(bare, ())
    why_module.tell_why(bare, ())
    told = capfd.readouterr().out
    assert "autoscaler" not in told and "decisions" not in told and "size:" not in told
    assert autoscale_view(bare) is None and "autoscaler" not in why_page(bare, 0.0)


def test_page_of_why_draws_the_curve(store: MemoryStore) -> None:
    """As SVG without any script, and every decision under it."""
    page = why_page(report_of(store), 0.0)
    assert "<svg" in page and "promised by #1 1 -&gt; 2 nodes" in page and "<script" not in page
    assert "#3 3 -&gt; 2 nodes (take_back)" in page


def test_picture_is_whole_and_tells_measured_sizes_from_the_fit() -> None:
    """Three measured sizes, one of which was taken back, and one by the fit."""
    report = report_of(autoscaled())
    assert report.autoscaling is not None
    picture = curve_picture(curve_points(CURVE, most=4), report.autoscaling.decisions, now=2)
    root = ElementTree.fromstring(picture)
    titles = [each.text or "" for each in root.iter() if each.tag.endswith("title")]
    assert "3 nodes: 3.33 steps/s, measured, 1 window" in titles
    assert "4 nodes: 3.49 steps/s, by the fit" in titles
    assert sum(title.startswith("promised by") for title in titles) == 2
    assert curve_picture(()) == ""


def test_page_of_the_dashboard_is_told_the_same_words() -> None:
    """Nothing in it changes only because time goes by."""
    report = report_of(autoscaled(wants=(WISH,)))
    view = autoscale_view(report)
    assert view is not None and view == autoscale_view(report)
    assert "held since" in str(view["held"]) and "wished for by the autoscaler" in str(view["size"])
    decisions = view["decisions"]
    assert isinstance(decisions, list) and decisions[0]["sentence"].startswith("#1 1 -> 2 nodes")
    json.dumps(view)


def test_bundle_has_policy_curve_and_decisions() -> None:
    """In words and as they are; who leads is not a record of the job."""
    texts = report_texts(report_of(autoscaled(phase=Phase.FAILED)), ())
    assert "policy set by ada@host" in texts["autoscale.txt"]
    assert "leads" not in texts["autoscale.txt"]
    assert json.loads(texts["data/autoscale.json"])["policy"]["max_step"] == 1
    bare = autoscaled(policy=None, memory=None, curve=None, decisions=())
    assert "autoscale.txt" not in report_texts(report_of(bare), ())


def test_records_of_the_autoscaler_go_with_those_of_the_job() -> None:
    """`rm` and `prune` leave nothing behind."""
    store = autoscaled(phase=Phase.SUCCEEDED, wants=(WISH,))
    (done,) = prune(store, KEYS, [JOB])
    assert done.records >= 8
    assert not store.keys(KEYS.jobs) and not store.keys(KEYS.ended)

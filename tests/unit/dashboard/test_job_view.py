"""What the page is told of one job."""

from dataclasses import replace

from elasticd.control.report.report import JobReport, job_reports
from elasticd.control.report.unreadable import UnreadableRecords
from elasticd.dashboard.job_view import Plain, change_view, job_view, listed_by
from elasticd.records.account.progress import RankProgress
from elasticd.records.checkpoint import CheckpointSpec
from elasticd.records.ids import Generation, Rank
from elasticd.records.reason import Phase, Reason
from tests.unit.dashboard.records_case import BEGAN_S, HUNG, KEYS, SAY, change_world, filled


def report() -> JobReport:
    (found,) = job_reports(filled().list(KEYS.jobs).items, KEYS, UnreadableRecords())
    return found


def rank(number: int, age_s: float | None) -> RankProgress:
    return RankProgress(rank=Rank(number), generation=Generation(3), checkpoint_ago_s=age_s)


def test_newest_checkpoint_that_any_node_knows_counts() -> None:
    """Keepers hear of a commit one after the other; also where no steps are seen."""
    spec = replace(report().spec, checkpoint=CheckpointSpec(url="file:///c", owner="o"))
    saving = replace(report(), spec=spec)
    view = job_view(saving, [rank(0, 40.0), rank(1, 10.0), rank(2, None)], SAY, at_unix_s=BEGAN_S)
    assert (view["saves"], view["checkpoint_at"], view["progress"]) == (True, BEGAN_S - 10, None)
    assert job_view(saving, [rank(0, None)], SAY, at_unix_s=BEGAN_S)["checkpoint_at"] is None


def test_job_without_checkpoints_is_told_as_such() -> None:
    """And not as one whose first checkpoint is awaited."""
    assert job_view(report(), [rank(0, None)], SAY, at_unix_s=BEGAN_S)["saves"] is False


def test_job_that_is_over_shows_its_last_step_on_record() -> None:
    """If its ranks told of none; while it goes on, they are asked."""
    told = replace(report(), step=79)
    assert job_view(told, [], SAY, at_unix_s=BEGAN_S)["steps"] is None
    over = replace(told, status=replace(told.status, phase=Phase.FAILED))
    assert job_view(over, [], SAY, at_unix_s=BEGAN_S)["steps"] == 79
    assert job_view(replace(over, step=0), [], SAY, at_unix_s=BEGAN_S)["steps"] is None


def test_change_says_whether_something_broke() -> None:
    """The page has no rule of its own for that."""
    told = {change.reason: change_view(report(), change, SAY) for change in report().changes}
    assert {reason: view["is_fault"] for reason, view in told.items()} == {
        reason: reason.is_fault for reason in told
    }
    assert {True, False} == {view["is_fault"] for view in told.values()}


def test_change_says_whose_stacks_show_why() -> None:
    """Those of the rank that hung; of all nodes where none wrote anything; otherwise of nobody."""
    store = filled()
    change_world(store, 2, Reason.WORKER_HUNG, ("node-0",), 60.0, HUNG)
    change_world(store, 4, Reason.NO_OUTPUT, ("node-0",), 120.0)
    (found,) = job_reports(store.list(KEYS.jobs).items, KEYS, UnreadableRecords())
    views = [change_view(found, each, SAY)["stacks"] for each in found.changes]
    of_two, of_four = {"generation": 1, "node": "node-1"}, {"generation": 3, "node": "node-0"}
    assert views == [None, of_two, None, of_four]


def test_jobs_that_go_on_stand_before_those_that_are_over() -> None:
    """Of these the newest is first, whatever its name is."""
    rows: list[Plain] = [
        {"job": "a", "is_over": True, "submitted_at": 1.0},
        {"job": "b", "is_over": True, "submitted_at": 2.0},
        {"job": "z", "is_over": False, "submitted_at": 1.0},
        {"job": "y", "is_over": False, "submitted_at": 0.0},
    ]
    assert [row["job"] for row in sorted(rows, key=listed_by)] == ["y", "z", "b", "a"]

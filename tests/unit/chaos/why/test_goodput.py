"""Whether the goodput that `why` shows is that of the commits."""

import json
from pathlib import Path

import pytest

from chaos.history.lineage import trace
from chaos.history.recovery import commits
from chaos.plan.scenario import Verdict
from chaos.verdict.finding import Finding
from chaos.why.goodput import judged_goodput, trained_s
from tests.unit.chaos.play import STEP_S, Play


def run() -> Play:
    """Two ranks make 101 steps, one makes 51, from 6 on the same number."""
    play = Play()
    play.generation(1, [11, 12], base=0, steps=101)
    play.generation(2, [11], base=101, steps=51)
    return play


def judged(folder: Path, *, has_steps: bool = True, **seconds: float) -> dict[str, Finding]:
    path = folder / "why.json"
    causes = {"train": 0.0, "data": 0.0, "save": 0.0, "spare": 0.0, "unexplained": 0.0, **seconds}
    account = {"seconds": causes, "total_s": sum(causes.values()), "has_steps": has_steps}
    path.write_text(json.dumps({"account": account}))
    lineage = trace(run().history())
    found = judged_goodput(path, lineage, commits(lineage.rounds), Verdict())
    return {finding.rule: finding for finding in found}


def test_what_counts_is_the_time_between_the_commits_of_a_generation() -> None:
    lineage = trace(run().history())
    found = trained_s(commits(lineage.rounds))
    assert found == pytest.approx(100 * STEP_S * 2 + 50 * STEP_S)


def test_steps_count_when_they_are_done_first_and_not_again() -> None:
    """Six of the second generation's steps are done again: elasticd calls these `redone`."""
    play = Play()
    play.generation(1, [11, 12], base=0, steps=11)
    play.generation(2, [13], base=5, steps=11)
    lineage = trace(play.history())
    found = trained_s(commits(lineage.rounds))
    assert found == pytest.approx(10 * STEP_S * 2 + 5 * STEP_S)


def test_an_account_within_a_point_holds(tmp_path: Path) -> None:
    found = judged(tmp_path, train=24.8, start=5.0, spare=100.0)
    assert found["slots"].holds and found["no cause"].holds


def test_steps_that_waited_are_steps(tmp_path: Path) -> None:
    assert judged(tmp_path, train=20.0, data=4.0, save=1.0, start=5.0)["slots"].holds


def test_more_than_a_point_is_broken(tmp_path: Path) -> None:
    finding = judged(tmp_path, train=24.0, start=6.0)["slots"]
    assert finding.evidence == (
        "80.0% of the slots' time went to steps by the account, 83.3% by commits",
    )


def test_each_change_may_be_off_by_some_milliseconds_of_each_slot(tmp_path: Path) -> None:
    """Of twenty short generations of two ranks that is more than a point."""
    play = Play()
    for number in range(1, 21):
        play.generation(number, [11, 12], base=5 * (number - 1), steps=5)
    lineage = trace(play.history())
    seen_s = trained_s(commits(lineage.rounds))
    path = tmp_path / "why.json"

    def holds(train_s: float) -> bool:
        causes = {"train": train_s, "start": 20.0 - train_s, "data": 0.0, "save": 0.0}
        account = {
            "seconds": {**causes, "spare": 0.0, "unexplained": 0.0},
            "total_s": 20.0,
            "has_steps": True,
        }
        path.write_text(json.dumps({"account": account}))
        found = judged_goodput(path, lineage, commits(lineage.rounds), Verdict())
        return found[0].holds

    assert holds(seen_s - 1.8) and not holds(seen_s - 2.0)


def test_time_without_a_cause_is_bounded(tmp_path: Path) -> None:
    assert judged(tmp_path, train=25.0, unexplained=0.2)["no cause"].holds
    finding = judged(tmp_path, train=25.0, unexplained=0.3)["no cause"]
    assert finding.evidence == ("0.3 of 25.3 slot-seconds have no cause",)


def test_where_no_steps_are_seen_only_the_causes_are_judged(tmp_path: Path) -> None:
    assert judged(tmp_path, train=99.0, has_steps=False).keys() == {"no cause"}


def test_without_an_account_nothing_is_said(tmp_path: Path) -> None:
    lineage = trace(run().history())
    assert judged_goodput(tmp_path / "none", lineage, [], Verdict()) == ()
    (tmp_path / "why.json").write_text(json.dumps({"account": None}))
    assert judged_goodput(tmp_path / "why.json", lineage, [], Verdict()) == ()

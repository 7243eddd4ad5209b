"""One frame of `elasticd top`, on wide and narrow terminals."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from elasticd.cli.views.top_frame import frame, sparkline
from elasticd.dashboard.board import Board, JobPage

VIEW: dict[str, Any] = {
    "job": "digits",
    "phase": "running",
    "message": "",
    "ending": "",
    "steps": None,
    "progress": {"step": 1234, "step_s": 0.05, "committed_at": 990.0},
    "account": {"seconds": {"train": 60.0, "start": 40.0}, "total_s": 100.0, "goodput": 0.6},
}
ROW: dict[str, Any] = {
    "job": "digits",
    "phase": "running",
    "is_over": False,
    "nodes": 2,
    "wanted": 3,
    "generation": 7,
    "message": "",
}
CHANGE: dict[str, Any] = {
    "at": 980.0,
    "sentence": "generation 7: 2 nodes ([bold]ValueError[/bold]: <script>)",
    "total_s": 0.25,
    "culprit": {"rank": 1},
    "is_fault": True,
    "lost": [],
}
NODE: dict[str, Any] = {
    "node": "gpu-1",
    "slots": 8,
    "used": 2,
    "jobs": ["digits"],
    "state": "ready",
}
SAMPLES: tuple[dict[str, Any], ...] = tuple({"at": float(at), "step": 20 * at} for at in range(5))
PAGE = JobPage(view=VIEW, changes=(CHANGE,), samples=SAMPLES)
BOARD = Board(version=1, jobs=(ROW,), nodes=(NODE,) * 40, pages={"digits": PAGE})


def drawn(board: Board, width: int, height: int = 100) -> list[str]:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), color_system=None)  # noqa: SIM115
    console.print(
        frame(board, "digits", width=width, height=height, now_unix_s=1000.0, has_keys=True)
    )
    return console.export_text().splitlines()


def test_frame_says_what_runs_how_fast_and_what_happened() -> None:
    """Words of others are never markup."""
    text = "\n".join(drawn(BOARD, 120))
    for words in (
        "40 nodes, 80 of 320 slots used",
        "▶ running",
        "2/3",
        "1,234",
        "60.0%",
        "10 s ago",
        "steps/s ",
        "train 60.0%  start 40.0%",
        "generation 7: 2 nodes ([bold]ValueError[/bold]: <script>)  0.25 s",
        "gpu-1",
    ):
        assert words in text, words


def test_rate_that_is_said_is_that_of_several_samples() -> None:
    """Steps are whole: at 9.4 a second one sample has 9 and the next one 10."""
    steps = (0, 9, 19, 28, 38, 47)
    samples = tuple[dict[str, object], ...](
        {"at": float(at), "step": step} for at, step in enumerate(steps)
    )
    page = JobPage(view=VIEW, changes=(CHANGE,), samples=samples)
    lines = drawn(replace(BOARD, pages={"digits": page}), 120)
    (line,) = (line for line in lines if line.startswith("steps/s"))
    assert line.endswith(" 9.4")


@pytest.mark.parametrize(
    ("at", "words"),
    [(940.0, "newest checkpoint 1 min ago"), (None, "no checkpoint is known yet")],
)
def test_age_of_the_newest_checkpoint_is_shown_of_a_job_that_saves(
    at: float | None, words: str
) -> None:
    """On a narrow terminal too; not of a job that saves nothing, nor of one that is over."""

    def shown(**view: Any) -> str:
        page = JobPage(view={**VIEW, "is_over": False, "checkpoint_at": at, **view})
        return "\n".join(drawn(replace(BOARD, pages={"digits": page}), 40))

    assert words in shown(saves=True)
    assert "checkpoint" not in shown(saves=False)
    assert "checkpoint" not in shown(saves=True, is_over=True)


def test_late_node_is_named_with_what_it_costs() -> None:
    """While it is late; what is over is `elasticd why`'s."""
    sentence = "node gpu-1 is 34 % late since 14:02, costs 0.8 node"
    late = ({"is_now": True, "sentence": sentence}, {"is_now": False, "sentence": "it was"})
    page = JobPage(view={**VIEW, "late": late})
    board = Board(
        version=1, jobs=(ROW,), nodes=({**NODE, "late": 0.34}, NODE), pages={"digits": page}
    )
    text = "\n".join(drawn(board, 120))
    assert f"! {sentence}" in text and "it was" not in text
    assert text.count("ready, 34 % late") == 1


@pytest.mark.parametrize("width", [1, 20, 40, 79, 80, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Forty columns are little, but a frame all the same."""
    lines = drawn(BOARD, max(20, width), height=30)
    assert all(len(line) <= max(20, width) for line in lines)
    assert len(lines) <= 36


@pytest.mark.parametrize("height", [24, 30, 50])
@pytest.mark.parametrize("at", [0, 30, 59])
def test_of_many_jobs_those_near_the_chosen_one_are_shown_and_all_else_has_room(
    height: int, at: int
) -> None:
    """Jobs that are over stay in etcd for a week: they would push its details off the screen."""
    jobs = [{**ROW, "job": f"job-{number:02}"} for number in range(60)]
    jobs[at] = ROW
    page = JobPage(view=VIEW, changes=(CHANGE,) * 9, samples=SAMPLES)
    board = Board(jobs=tuple(jobs), nodes=(NODE,) * 40, pages={"digits": page})
    lines = drawn(board, 100, height)
    assert len(lines) <= height
    assert sum(line.startswith(">  digits") for line in lines) == 1
    assert "q end" in lines[-1] and any("steps/s" in line for line in lines)
    shown = sum("▶ running" in line for line in lines)
    assert f"and {60 - shown} more jobs" in lines


def test_job_that_is_over_lacks_no_nodes() -> None:
    """It has none, and wants none."""
    over = {**ROW, "phase": "succeeded", "is_over": True}
    (line,) = (each for each in drawn(replace(BOARD, jobs=(over,)), 100) if "succeeded" in each)
    assert "2/3" not in line and "1,234" in line


def test_empty_cluster_and_trouble_are_said() -> None:
    """Nothing is drawn of a job that is not there."""
    assert "There are no jobs." in "\n".join(drawn(Board(version=1), 80))
    board = Board(version=1, trouble="etcd does not answer")
    assert "! etcd does not answer" in "\n".join(drawn(board, 80))
    gone = Board(version=1, jobs=(ROW,), pages={})
    assert "digits" in "\n".join(drawn(gone, 80))


def test_sparkline_goes_from_nothing_to_the_greatest() -> None:
    """The newest values, at most as many as there is room for."""
    assert sparkline([0.0, 1.0, 2.0, 4.0], 3) == "▃▅█"
    assert sparkline([0.0, 0.0], 5) == "▁▁"
    assert sparkline([], 5) == ""


def test_words_of_a_script_are_one_line() -> None:
    """An exception may have several, and what steers a terminal."""
    change = {**CHANGE, "sentence": "generation 7 (ValueError: one\ntwo\x1b[2J)"}
    page = JobPage(view=VIEW, changes=(change,))
    board = Board(version=1, jobs=(ROW,), nodes=(NODE,), pages={"digits": page})
    console = Console(width=100, record=True, file=io.StringIO())
    made = frame(board, "digits", width=100, height=40, now_unix_s=1000.0, has_keys=False)
    console.print(made)
    (line,) = [line for line in console.export_text().splitlines() if "ValueError" in line]
    assert "one two [2J" in line


def test_each_job_with_a_policy_has_a_line_of_its_own() -> None:
    """Its size, the wish, and why nothing is done; jobs without one have none."""
    said: dict[str, object] = {
        "summary": "autoscaler: held since 10:02:00 (stale): too old",
        "held": "held since",
    }
    sized = replace(BOARD, pages={"digits": replace(PAGE, autoscale=said)})
    lines = drawn(sized, 120)
    assert "  digits: 2/3 nodes; autoscaler: held since 10:02:00 (stale): too old" in lines
    assert not any("autoscaler" in line for line in drawn(BOARD, 120))


def test_scaling_curve_and_newest_decisions_of_the_chosen_job_are_shown() -> None:
    """Measured rates plain, those of the fit marked; what was taken back says so."""
    points = [
        {"nodes": 1, "steps_per_s": 10.0, "is_measured": True, "is_refused": False},
        {"nodes": 2, "steps_per_s": 18.25, "is_measured": True, "is_refused": True},
        {"nodes": 3, "steps_per_s": 24.0, "is_measured": False, "is_refused": False},
        {"nodes": 4, "steps_per_s": 0.0, "is_measured": False, "is_refused": False},
    ]
    decisions = [
        {"at": 100.0 * number, "outcome": outcome, "sentence": f"#{number} 1 -> 2 nodes"}
        for number, outcome in ((1, "kept"), (2, "kept"), (3, "taken_back"))
    ]
    said: dict[str, object] = {"summary": "", "curve": {"points": points}, "decisions": decisions}
    lines = drawn(replace(BOARD, pages={"digits": replace(PAGE, autoscale=said)}), 120)
    assert "steps/s by nodes  1: 10  2: 18.2 (taken back)  3: ~24" in lines
    shown = [line for line in lines if "1 -> 2 nodes" in line]
    assert [line.split("  ", 1)[1] for line in shown] == [
        "#3 1 -> 2 nodes; taken back",
        "#2 1 -> 2 nodes; kept",
    ]
    assert not any("by nodes" in line for line in drawn(BOARD, 120))


def test_decisions_take_their_lines_from_the_nodes() -> None:
    """A frame never outgrows its terminal."""
    decisions = [{"at": 0.0, "outcome": "open", "sentence": f"#{number}"} for number in range(9)]
    said: dict[str, object] = {"summary": "", "curve": None, "decisions": decisions}
    sized = replace(BOARD, pages={"digits": replace(PAGE, autoscale=said)})
    assert len(drawn(sized, 120, 30)) <= len(drawn(BOARD, 120, 30)) <= 30

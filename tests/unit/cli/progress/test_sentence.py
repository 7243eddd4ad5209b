"""A run's progress in words."""

from dataclasses import replace

import pytest

from elasticd.cli.progress.pace import Speed
from elasticd.cli.progress.sentence import fitted, progress_parts
from elasticd.records.account.progress import RankProgress
from elasticd.records.ids import Generation, Rank
from tests.unit.control.world_case import world

RANK = RankProgress(
    rank=Rank(0),
    generation=Generation(2),
    step=1240,
    epoch=2,
    epochs=10,
    scalars={"loss": 0.43121, "lr": 0.1, "norm": 2.0},
    committed_ago_s=0.25,
    checkpoint_ago_s=61.0,
)
SPEED = Speed(steps_s=8.3, samples_s=12_345.6, rest_s=7_300.0)


def test_everything_that_is_known_is_said_most_wanted_first() -> None:
    """Two of the script's own numbers are enough."""
    assert progress_parts(world(2, "a", "b"), RANK, SPEED, 0.968) == [
        "step 1240",
        "epoch 3/10",
        "12 346 samples/s",
        "ends in 2 h 1 min",
        "loss 0.4312",
        "lr 0.1",
        "2 nodes, 2 workers",
        "goodput 97 %",
        "checkpoint 1 min ago",
        "commit 0.25 s ago",
    ]


def test_restart_mode_says_when_something_was_last_written() -> None:
    """Nothing else is known of it."""
    bare = RankProgress(rank=Rank(0), generation=Generation(2), output_ago_s=300.0)
    parts = progress_parts(world(2, "a"), bare, Speed())
    assert parts == ["last output 5 min ago", "1 node, 1 worker"]


def test_what_is_not_there_yet_is_said() -> None:
    """A pause, a world that begins, agents that do not answer."""
    paused = progress_parts(world(2, "a"), replace(RANK, why_paused="evaluation"), Speed())
    assert paused[:2] == ["step 1240", "paused: evaluation"]
    assert progress_parts(world(3, "a"), RANK, SPEED)[0] == "generation 3 begins"
    assert progress_parts(world(3, "a"), None, Speed())[0] == "no word of the ranks yet"


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (100, "step 1240 | epoch 3/10 | 8.3 steps/s"),
        (35, "step 1240 | epoch 3/10"),
        (22, "step 1240 | epoch 3/10"),
        (21, "step 1240"),
        (4, "step"),
        (0, ""),
    ],
)
def test_a_narrow_terminal_shows_the_first_parts_whole(width: int, text: str) -> None:
    """One line that wraps could not be erased."""
    assert fitted(["step 1240", "epoch 3/10", "8.3 steps/s"], width) == text


def test_line_is_one_whatever_a_script_calls_things() -> None:
    """One that wraps could not be erased any more, nor one with a line feed."""
    assert fitted(["step 7", "paused: 评估模型"], 24) == "step 7"
    assert fitted(["step 7", "paused: 评估模型"], 25) == "step 7 | paused: 评估模型"
    assert fitted(["评估模型"], 5) == "评估"
    assert fitted(["step 7", "e\u0301 1"], 12) == "step 7 | e\u0301 1"
    assert fitted(["step 7", "a\nb\x1b[2J 1"], 80) == "step 7 | a b [2J 1"

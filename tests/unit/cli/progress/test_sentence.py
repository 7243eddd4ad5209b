"""A run's progress in words."""

from dataclasses import replace

import pytest

from elasticd.cli.progress.part import LinePart, PartName
from elasticd.cli.progress.sentence import progress_parts
from elasticd.cli.progress.speed import Speed
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


def texts(parts: list[LinePart]) -> list[str]:
    return [part.text for part in parts]


def test_everything_that_is_known_is_said_most_wanted_first() -> None:
    """Two of the script's own numbers are enough."""
    assert texts(progress_parts(world(2, "a", "b"), RANK, SPEED, 0.968)) == [
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
    assert texts(parts) == ["last output 5 min ago", "1 node, 1 worker"]


def test_what_is_not_there_yet_is_said() -> None:
    """A pause, a world that begins, agents that do not answer."""
    paused = progress_parts(world(2, "a"), replace(RANK, why_paused="evaluation"), Speed())
    assert texts(paused)[:2] == ["step 1240", "paused: evaluation"]
    assert texts(progress_parts(world(3, "a"), RANK, SPEED))[0] == "generation 3 begins"
    assert texts(progress_parts(world(3, "a"), None, Speed()))[0] == "no word of the ranks yet"


@pytest.mark.parametrize(
    ("rate", "short"),
    [
        (0.123, "0.123"),
        (999.4, "999"),
        (9_994, "9.99k"),
        (12_346, "12.3k"),
        (987_654, "988k"),
        (1.5e6, "1.50M"),
        (2.34e9, "2.34G"),
    ],
)
def test_a_rate_has_three_digits_where_there_is_little_room(rate: float, short: str) -> None:
    """Without an exponent, which nobody reads at a glance."""
    parts = progress_parts(world(2, "a"), RANK, Speed(samples_s=rate))
    (forms,) = (part.forms for part in parts if part.name is PartName.RATE)
    assert forms[1:] == (f"{short} samples/s", f"{short}/s")

"""How much of a run's progress a terminal of some width shows."""

from collections import Counter
from dataclasses import replace

import pytest

from elasticd.cli.progress.part import SHORTER, LinePart, PartName, fitted
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
PARTS = progress_parts(world(2, "a", "b"), RANK, SPEED, 0.968)

LATE = replace(RANK, step=124_000, epoch=12, epochs=100, checkpoint_ago_s=780.0)
WIDE_PARTS = progress_parts(
    world(2, *(f"n{number}" for number in range(64))),
    LATE,
    replace(SPEED, samples_s=987_654.0, rest_s=46_700.0),
    1.0,
)
"""Numbers of a long run of a large job."""


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (
            200,
            (
                "step 1240 | epoch 3/10 | 12 346 samples/s | ends in 2 h 1 min | loss 0.4312"
                " | lr 0.1 | 2 nodes, 2 workers | goodput 97 % | checkpoint 1 min ago"
                " | commit 0.25 s ago"
            ),
        ),
        (
            120,
            (
                "step 1240 | epoch 3/10 | 12 346 samples/s | 2h1m left | loss 0.4312"
                " | 2 nodes, 2 workers | goodput 97 % | ckpt 1m ago"
            ),
        ),
        (
            100,
            (
                "step 1240 | epoch 3/10 | 12.3k/s | 2h1m left | loss 0.4312 | world 2"
                " | goodput 97% | ckpt 1m"
            ),
        ),
        (
            80,
            "step 1240 | epoch 3/10 | 12.3k/s | 2h1m left | world 2 | goodput 97% | ckpt 1m",
        ),
        (60, "step 1240, epoch 3/10, 12.3k/s, 2h left, goodput 97%"),
        (40, "step 1240, epoch 3/10, 12.3k/s, 2h left"),
        (30, "step 1240, epoch 3/10"),
    ],
)
def test_a_narrower_terminal_has_shorter_words_before_it_has_fewer(columns: int, text: str) -> None:
    """The last column stays free."""
    assert fitted(PARTS, columns - 1) == text


def test_80_columns_show_all_that_a_person_asks_for_also_in_a_long_run_of_a_large_job() -> None:
    """Step, epoch, samples, end, world, goodput and the age of the checkpoint."""
    assert fitted(WIDE_PARTS, 79) == (
        "step 124000, epoch 13/100, 988k/s, 12h left, world 64, goodput 100%, ckpt 13m"
    )
    assert fitted(WIDE_PARTS, 59) == "step 124000, epoch 13/100, 988k/s, 12h left, goodput 100%"
    assert fitted(WIDE_PARTS, 119) == (
        "step 124000 | epoch 13/100 | 987 654 samples/s | 12h58m left | loss 0.4312 | 64 workers"
        " | goodput 100 % | ckpt 13m ago"
    )


def test_step_and_last_step_stand_together_as_long_as_there_is_room() -> None:
    """The step itself is the last thing to go."""
    counting = progress_parts(world(2, "a", "b"), replace(RANK, steps=2000), SPEED, 0.968)
    assert fitted(counting, 79) == (
        "step 1240/2000, epoch 3/10, 12.3k/s, 2h1m left, world 2, goodput 97%, ckpt 1m"
    )
    assert fitted(counting, 20) == "step 1240"


def test_a_wider_terminal_never_shows_less() -> None:
    """And no line is wider than its terminal."""
    for parts in (PARTS, WIDE_PARTS):
        lengths = [len(fitted(parts, width)) for width in range(12, 220)]
        assert all(length <= width for length, width in zip(lengths, range(12, 220), strict=True))
        assert lengths == sorted(lengths)


def test_each_form_of_a_part_has_its_place_in_the_order() -> None:
    """A part with more forms than the order has moves would never be left out, one with fewer would
    be at once.
    """
    moves = Counter(name for name in SHORTER if name is not None)
    steps = progress_parts(world(2, "a"), RANK, replace(SPEED, samples_s=None), 0.9)
    paused = progress_parts(world(2, "a"), replace(RANK, why_paused="evaluation"), SPEED)
    for part in (*PARTS, *steps, *paused):
        if part.name is not PartName.STANDING:
            assert len(part.forms) == moves[part.name], part


def test_a_pause_is_what_stays_longest() -> None:
    """A rate of 0 would otherwise look like a hang."""
    paused = progress_parts(world(2, "a"), replace(RANK, why_paused="evaluation"), SPEED, 0.9)
    assert fitted(paused, 60) == "step 1240, paused: evaluation, epoch 3/10, 12.3k/s, 2h left"
    assert fitted(paused, 30) == "step 1240, paused: evaluation"


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (100, "step 1240 | epoch 3/10"),
        (22, "step 1240 | epoch 3/10"),
        (21, "step 1240, epoch 3/10"),
        (20, "step 1240"),
        (4, "step"),
        (0, ""),
    ],
)
def test_what_does_not_fit_is_left_out_whole(width: int, text: str) -> None:
    """Only the first part is cut: a line that wraps could not be erased."""
    parts = [LinePart(PartName.STANDING, ("step 1240",)), LinePart(PartName.EPOCH, ("epoch 3/10",))]
    assert fitted(parts, width) == text


def test_line_is_one_whatever_a_script_calls_things() -> None:
    """One that wraps could not be erased any more, nor one with a line feed."""

    def line(width: int, *texts: str) -> str:
        names = (PartName.STANDING, PartName.PAUSE)
        return fitted([LinePart(n, (t,)) for n, t in zip(names, texts, strict=False)], width)

    assert line(23, "step 7", "paused: 评估模型") == "step 7"
    assert line(25, "step 7", "paused: 评估模型") == "step 7 | paused: 评估模型"
    assert line(5, "评估模型") == "评估"
    assert line(12, "step 7", "e\u0301 1") == "step 7 | e\u0301 1"
    assert line(80, "step 7", "a\nb\x1b[2J 1") == "step 7 | a b [2J 1"

"""How fast a training goes, from what a rank says now and then."""

from dataclasses import replace

import pytest

from elasticd.cli.progress.speed import Speed, SpeedEstimator
from elasticd.records.account.progress import RankProgress
from elasticd.records.ids import Generation, Rank

RANK = RankProgress(
    rank=Rank(0), generation=Generation(1), step=0, epochs=2, epoch_samples=1000, step_s=0.5
)


def at(step: int, epoch: int = 0) -> RankProgress:
    """After so many steps of 100 samples."""
    return replace(RANK, step=step, epoch=epoch, consumed=step * 100 - epoch * 1000)


def test_rate_and_rest_are_those_between_answers() -> None:
    """Over the border of an epoch too; the first answer has the workers' own word alone."""
    pace = SpeedEstimator()
    assert pace.take(at(0), 100.0) == Speed(steps_s=2.0)
    told = pace.take(at(4), 102.0)
    assert told == Speed(steps_s=2.0, samples_s=200.0, rest_s=8.0)
    told = pace.take(at(15, epoch=1), 110.0)
    assert told.samples_s == pytest.approx(150.0) and told.rest_s == pytest.approx(500 / 150)


def test_only_the_last_half_minute_counts() -> None:
    """What was slow an hour ago says nothing of when it ends."""
    pace = SpeedEstimator()
    pace.take(at(0), 0.0)
    pace.take(at(1), 100.0)
    told = pace.take(at(11, epoch=1), 110.0)
    assert told.steps_s == pytest.approx(1.0)


def test_steps_that_were_undone_begin_it_anew() -> None:
    """No rate is negative, nor is the time that is left."""
    pace = SpeedEstimator()
    pace.take(at(9), 0.0)
    assert pace.take(at(2), 5.0) == Speed(steps_s=2.0)
    assert pace.take(at(4), 7.0).steps_s == pytest.approx(1.0)


def test_what_is_not_known_is_not_made_up() -> None:
    """No loader, no epochs, no steps at all."""
    pace = SpeedEstimator()
    bare = replace(RANK, epochs=0, epoch_samples=0)
    pace.take(bare, 0.0)
    assert pace.take(replace(bare, step=10), 5.0) == Speed(steps_s=2.0)
    assert pace.take(replace(bare, step=None), 6.0) == Speed()
    pace = SpeedEstimator()
    pace.take(at(3), 0.0)
    assert pace.take(at(3), 20.0).rest_s is None, "a job that stands still never ends"


def test_shorter_epochs_make_no_negative_rate() -> None:
    """A script that goes on with another data set."""
    pace = SpeedEstimator()
    pace.take(at(15, epoch=1), 0.0)
    told = pace.take(replace(at(16, epoch=1), epoch_samples=100, consumed=50), 4.0)
    assert told == Speed(steps_s=2.0)


def test_a_script_that_counts_steps_ends_at_its_last_one() -> None:
    """Its loop over epochs is the longer one, mostly; and it needs no loader to be estimated."""
    pace = SpeedEstimator()
    counting = replace(RANK, steps=14)
    pace.take(replace(counting, step=0), 0.0)
    told = pace.take(replace(counting, step=4, consumed=400), 2.0)
    assert told.rest_s == pytest.approx(5.0), "not the 8 s to the end of the last epoch"
    told = pace.take(replace(counting, step=8, consumed=800, steps=100), 4.0)
    assert told.rest_s == pytest.approx(6.0), "the epochs end before 100 steps are made"
    bare = SpeedEstimator()
    bare.take(replace(counting, step=0, epochs=0, epoch_samples=0), 0.0)
    told = bare.take(replace(counting, step=4, epochs=0, epoch_samples=0), 2.0)
    assert told.rest_s == pytest.approx(5.0)
    told = bare.take(replace(counting, step=16, epochs=0, epoch_samples=0), 4.0)
    assert told.rest_s == 0.0, "past the end it is about to end"

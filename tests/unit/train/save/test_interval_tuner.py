"""How many steps lie between two snapshots in memory: as few as fit, and cost little."""

from itertools import pairwise

import pytest

from elasticd.checkpoint.format.manifest import Tensor
from elasticd.checkpoint.format.share_layout import Slab, laid_out
from elasticd.train.save.interval_tuner import (
    COST_LIMIT,
    LEAST,
    UNTOUCHED,
    USUAL,
    WARMUP_STEPS,
    IntervalTuner,
)
from elasticd.train.save.share_plan import SharePart, SharePlan

STEP_S = 0.1
TENSORS = (Tensor("w", "float32", (1 << 20,)),)
LAYOUT = laid_out(TENSORS, [Slab(0, (0,), (1 << 20,))])
PARTS = SharePlan(TENSORS, (None,), (SharePart(0, 0, LAYOUT, (), (0,), is_alone=True),))


class Rank:
    """Rank 0, whose snapshots are whole after some steps, each of which they make longer."""

    def __init__(
        self,
        *,
        whole: int,
        longer_s: float = 0.0,
        earlier: IntervalTuner | None = None,
        bandwidth: int = 0,
    ) -> None:
        self.tuner = IntervalTuner(earlier, mirror_bytes_per_s=bandwidth)
        self.now_s, self.step = 50.0, 0
        self.whole, self.longer_s = whole, longer_s
        self.taken: list[int] = []

    def train(self, steps: int) -> list[int]:
        """Train so many steps; return those after which a snapshot was taken."""
        before = len(self.taken)
        for _ in range(steps):
            self.step += 1
            age = self.step - self.taken[-1] if self.taken else None
            is_beside = age is not None and age <= self.whole
            self.now_s += STEP_S + (self.longer_s if is_beside else 0.0)
            self.tuner.stepped(self.step, self.now_s)
            is_replicated = age is None or age >= self.whole
            if self.tuner.is_due(self.step, is_replicated=is_replicated, now_s=self.now_s):
                self.taken.append(self.step)
        return self.taken[before:]

    def steady_intervals(self) -> list[int]:
        """Return the steps between two snapshots when the first ones have been measured."""
        self.train(20 * (UNTOUCHED + LEAST))
        found = self.train(200)
        return [after - before for before, after in pairwise(found)]


def test_none_is_taken_before_a_step_without_one_is_known() -> None:
    """The first steps of a generation are slower than others, and are not compared with."""
    rank = Rank(whole=1)
    assert rank.train(WARMUP_STEPS + USUAL) == []
    assert rank.train(1) == [WARMUP_STEPS + USUAL + 1]


def test_every_step_has_one_where_that_costs_nothing() -> None:
    """As was asked for."""
    assert set(Rank(whole=1).steady_intervals()) == {1}


@pytest.mark.parametrize("whole", [2, 3, 7])
def test_next_one_begins_when_the_one_before_is_whole(whole: int) -> None:
    """Not earlier, however little it costs: the newest whole one would be written over."""
    assert set(Rank(whole=whole).steady_intervals()) == {whole}


@pytest.mark.parametrize("longer_s", [0.004, 0.012, 0.047, 0.207])
def test_interval_grows_until_the_cost_is_within_the_limit(longer_s: float) -> None:
    """And no further than it must."""
    (interval,) = set(Rank(whole=1, longer_s=longer_s).steady_intervals())
    assert longer_s / (interval * STEP_S) <= COST_LIMIT + 1e-9
    assert interval == 1 or longer_s / ((interval - 1) * STEP_S) > COST_LIMIT


def test_one_slow_snapshot_changes_nothing() -> None:
    """A machine that did something else for a moment says nothing of the next one."""
    rank = Rank(whole=1)
    rank.steady_intervals()
    rank.longer_s = 3.0
    rank.train(1)
    rank.longer_s = 0.0
    found = rank.train(50)
    assert len(found) >= 49


def test_first_snapshots_do_not_count() -> None:
    """They meet memory that nobody has touched."""
    rank = Rank(whole=1, longer_s=5.0)
    while len(rank.taken) < UNTOUCHED:
        rank.train(1)
    rank.train(1)
    rank.longer_s = 0.0
    assert set(rank.steady_intervals()) == {1}


def test_next_generation_begins_with_half_the_interval_of_this_one() -> None:
    """Its first snapshot is that of its second step: in the first, memory is asked for."""
    before = Rank(whole=1, longer_s=0.047)
    assert set(before.steady_intervals()) == {10}
    rank = Rank(whole=1, longer_s=0.047, earlier=before.tuner)
    assert rank.train(15) == [2, 7, 12]
    assert set(rank.steady_intervals()) == {10}


def test_what_the_generation_before_measured_is_only_assumed() -> None:
    """In another world a snapshot costs something else, and so does a step."""
    before = Rank(whole=1, longer_s=0.047)
    before.steady_intervals()
    assert set(Rank(whole=1, earlier=before.tuner).steady_intervals()) == {1}
    dear = Rank(whole=4, longer_s=0.1, earlier=Rank(whole=1).tuner)
    assert set(dear.steady_intervals()) == set(Rank(whole=4, longer_s=0.1).steady_intervals())


def test_assumption_that_nobody_measures_does_not_last() -> None:
    """Where one world follows the other quickly, snapshots come more and more often."""
    tuner = Rank(whole=1, longer_s=0.047)
    tuner.steady_intervals()
    intervals = []
    for _ in range(4):
        tuner = Rank(whole=1, longer_s=0.047, earlier=tuner.tuner)
        tuner.train(3)
        intervals.append(tuner.tuner.interval)
    assert intervals == [5, 3, 2, 1]


def test_plan_is_said_before_and_the_interval_after_it_was_measured() -> None:
    """Once each, with what was measured, and again only when it has changed a lot."""
    rank = Rank(whole=1, longer_s=0.012)
    said: list[str] = []
    rank.train(WARMUP_STEPS + USUAL + 1)
    rank.tuner.use(PARTS, 2)
    rank.tuner.say(said.append)
    (plan,) = said
    assert "rank 0 copies 4 MiB beside a step of 100 ms" in plan
    assert "sends 8 MiB to the next one (84 MB/s)" in plan
    for _ in range(100):
        rank.train(1)
        rank.tuner.use(PARTS, 2)
        rank.tuner.say(said.append)
    (fits,) = said[1:]
    assert fits == (
        "A snapshot of every step does not fit: a snapshot is whole within 1 step of 100 ms and "
        "costs 12 ms. So one is taken every 3 steps, which costs 4.0% of the time."
    )
    rank.longer_s = 0.047
    for _ in range(200):
        rank.train(1)
        rank.tuner.use(PARTS, 2)
        rank.tuner.say(said.append)
    assert len(said) == 3 and "every 10 steps" in said[2]


def test_that_it_fits_is_said_too() -> None:
    """So that nobody has to guess."""
    rank = Rank(whole=1)
    said: list[str] = []
    rank.steady_intervals()
    rank.tuner.use(PARTS, 1)
    rank.tuner.say(said.append)
    assert said[1].startswith("A snapshot of every step fits: ")


def test_step_that_is_committed_again_is_not_a_fast_one() -> None:
    """The end of an epoch commits the same step twice."""
    rank = Rank(whole=1)
    for _ in range(WARMUP_STEPS + USUAL + 1):
        rank.train(1)
        rank.tuner.stepped(rank.step, rank.now_s + 0.0001)
    assert rank.tuner.step_s == pytest.approx(STEP_S)


SENT_BYTES = 2 * LAYOUT.size
"""What the two ranks of rank 0's node send of a snapshot."""


def test_interval_is_no_less_than_what_the_bandwidth_allows() -> None:
    """From the first plan on, and whatever was measured; without a bound nothing is added."""
    rank = Rank(whole=1, bandwidth=round(SENT_BYTES / (4.5 * STEP_S)))
    rank.train(WARMUP_STEPS + USUAL)
    assert rank.tuner.interval == 1
    rank.tuner.use(PARTS, 2)
    assert rank.tuner.interval == rank.tuner.sent_steps == 5
    assert set(rank.steady_intervals()) == {5}
    free = Rank(whole=1)
    free.train(WARMUP_STEPS + USUAL)
    free.tuner.use(PARTS, 2)
    assert free.tuner.interval == free.tuner.sent_steps == 1


@pytest.mark.parametrize(("whole", "longer_s"), [(9, 0.0), (1, 0.047)])
def test_bound_that_fits_into_a_longer_interval_changes_nothing(
    whole: int, longer_s: float
) -> None:
    """What a snapshot costs, or takes until it is whole, asks for more than the bandwidth."""
    wanted = set(Rank(whole=whole, longer_s=longer_s).steady_intervals())
    rank = Rank(whole=whole, longer_s=longer_s, bandwidth=round(SENT_BYTES / (4.5 * STEP_S)))
    rank.tuner.use(PARTS, 2)
    assert set(rank.steady_intervals()) == wanted


def test_bandwidth_that_does_not_fit_is_said() -> None:
    """In the plan, and with the interval that was chosen for it."""
    rank = Rank(whole=5, bandwidth=round(SENT_BYTES / (4.5 * STEP_S)))
    said: list[str] = []
    rank.train(WARMUP_STEPS + USUAL + 1)
    for _ in range(100):
        rank.tuner.use(PARTS, 2)
        rank.tuner.say(said.append)
        rank.train(1)
    plan, news = said
    assert (
        "sends 8 MiB to the next one (84 MB/s). With --mirror-bandwidth 19 MB/s that takes 0.5 s, "
        "so none is taken sooner than after 5 steps. If that"
    ) in plan
    assert "So one is taken every 5 steps, as many as --mirror-bandwidth asks for, which" in news


def test_another_process_as_rank_0_goes_on_from_the_same_interval() -> None:
    """One that was another rank knows what a step takes, too; a new one measures that first."""
    before = Rank(whole=1, longer_s=0.047)
    assert set(before.steady_intervals()) == {10}
    follower = IntervalTuner()
    for step in range(1, 20):
        follower.stepped(step, step * STEP_S)
        follower.follow(before.tuner.interval)
    assert follower.interval == 10
    assert Rank(whole=1, earlier=follower).train(15) == [2, 7, 12]
    new = Rank(whole=1)
    new.tuner = IntervalTuner(interval=follower.interval)
    taken = new.train(25)
    assert [after - before for before, after in pairwise(taken)] == [5, 5, 5]
    assert taken[0] == WARMUP_STEPS + USUAL + 1

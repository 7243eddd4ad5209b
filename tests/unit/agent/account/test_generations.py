"""For how long an agent has known a generation, and for how long those before stood."""

from elasticd.records.ids import Generation
from elasticd_agent.account.generations import KEPT, Generations

ONE, TWO, THREE = Generation(1), Generation(2), Generation(3)


def test_ages_and_durations_are_of_one_clock() -> None:
    known = Generations()
    assert known.newest == 0
    known.observe(ONE, 100.0)
    known.observe(ONE, 150.0)
    known.observe(THREE, 160.0)
    assert known.newest == THREE
    assert known.ages_s(170.0) == {ONE: 70.0, THREE: 10.0}
    assert known.lasted_s == {ONE: 60.0}


def test_a_generation_without_a_successor_stood_until_it_was_declared_over() -> None:
    known = Generations()
    known.observe(ONE, 100.0)
    known.end(ONE, 130.0)
    known.end(ONE, 140.0)
    known.observe(TWO, 500.0)
    assert known.lasted_s == {ONE: 30.0}


def test_only_the_newest_are_kept() -> None:
    known = Generations()
    for number in range(1, 100):
        known.observe(Generation(number), float(number))
    assert len(known.ages_s(100.0)) == KEPT
    assert known.newest == 99


def test_steps_that_were_committed_before_a_generation_are_repeated_by_it() -> None:
    """From its first step on; what is not known, or is later than its world, does not count."""
    known = Generations()
    known.observe(ONE, 100.0)
    known.begin(ONE, 1)
    known.commit(89)
    known.observe(TWO, 110.0)
    known.commit(95)
    assert known.repeated_steps(TWO, 1) == 89
    assert known.repeated_steps(TWO, 90) == 0
    assert known.repeated_steps(ONE, 1) == known.repeated_steps(THREE, 1) == 0


def test_steps_that_are_being_done_again_are_not_lost_once_more() -> None:
    """A node joins while steps 4 to 89 are done again: it costs none of them."""
    known = Generations()
    known.begin(ONE, 1)
    known.commit(89)
    known.observe(TWO, 110.0)
    known.begin(TWO, 1)
    known.begin(TWO, 2)  # Another worker's report, of the same generation.
    known.commit(3)
    known.observe(THREE, 120.0)
    assert known.repeated_steps(THREE, 4) == 0
    assert known.repeated_steps(THREE, 2) == 2

"""How long the job stood still, computed by hand and by the module."""

import pytest

from chaos.history.lineage import trace
from chaos.history.records import Undone
from chaos.history.recovery import commits, figures, full_goodput, goodput, recoveries
from tests.unit.chaos.play import STEP_S, Play


def test_a_recovery_ends_with_the_first_step_begun_after_the_fault() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.fault()
    struck_s = play.now_s
    play.generation(2, [11], base=5, steps=1)
    first_s = play.now_s + 0.01
    play.generation(3, [11, 13], base=6, steps=2)
    full_s = play.now_s - STEP_S + 0.01
    history = play.history()
    found = recoveries(history, commits(trace(history).rounds))
    assert len(found) == 1
    assert found[0].recover_s == pytest.approx(first_s - struck_s)
    assert found[0].full_s == pytest.approx(full_s - struck_s)
    assert found[0].stood_s == pytest.approx(first_s - (struck_s - STEP_S / 2 + 0.01))


def test_full_size_is_counted_from_the_undoing() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.fault()
    play.step(1, [11, 12], 6)
    play.records.append(Undone(at_s=play.now_s + 0.05, number=0))
    play.step(1, [11, 12], 7)
    history = play.history()
    found = recoveries(history, commits(trace(history).rounds))
    assert found[0].recover_s == pytest.approx(STEP_S + 0.01)
    assert found[0].full_s == pytest.approx(0.06)


def test_what_never_came_is_none() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.fault()
    history = play.history()
    found = recoveries(history, commits(trace(history).rounds))
    assert (found[0].recover_s, found[0].full_s) == (None, None)


def test_percentiles_are_nearest_rank() -> None:
    found = figures([float(value) for value in range(1, 101)])
    assert found is not None
    assert (found.count, found.p50_s, found.p99_s, found.max_s) == (100, 50.0, 99.0, 100.0)
    assert figures([]) is None


def test_goodput_of_a_calm_run_is_one_and_a_pause_lowers_it() -> None:
    def share(pause_s: float) -> float:
        play = Play()
        play.generation(1, [11, 12], base=0, steps=50)
        play.now_s += pause_s
        play.generation(2, [11, 12], base=50, steps=50)
        history = play.history()
        lineage = trace(history)
        found = goodput(lineage, commits(lineage.rounds))
        assert found is not None
        return found

    assert share(0.0) == pytest.approx(1.0, abs=0.02)
    assert share(10.0) == pytest.approx(0.5, abs=0.02)


def test_goodput_of_full_size_counts_what_a_smaller_job_did_not_do() -> None:
    """One of two ranks makes as many steps, each of half the work; all that lived trained."""
    play = Play()
    play.generation(1, [11, 12], base=0, steps=50)
    play.generation(2, [11], base=50, steps=50)
    history = play.history()
    lineage = trace(history)
    found = commits(lineage.rounds)
    assert goodput(lineage, found) == pytest.approx(1.0, abs=0.02)
    assert full_goodput(lineage, found, 2) == pytest.approx(3 / 4, abs=0.02)
    assert full_goodput(lineage, [], 2) is None

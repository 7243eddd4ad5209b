"""Steps and seconds of one generation: what is measured, and what never is."""

from dataclasses import replace

import pytest

from elasticd.autoscale.curve.window import (
    FIRST_STEPS,
    Measuring,
    ProgressReading,
    measured,
    reading_of,
    window_between,
)
from elasticd.autoscale.evaluation_input import MeasuredWindow
from elasticd.records.account.time_spent import JobProgress, TimeSpent
from elasticd.records.ids import Generation, NodeId


def _reading(at_s: float, step: int, *, generation: int = 7, nodes: int = 2) -> ProgressReading:
    return ProgressReading(
        generation=Generation(generation), generation_s=at_s, step=step, nodes=nodes
    )


def _fed(*readings: ProgressReading, window_s: float = 60.0) -> list[MeasuredWindow]:
    measuring, windows = Measuring(), []
    for reading in readings:
        measuring, window = measured(measuring, reading, window_s=window_s)
        if window is not None:
            windows.append(window)
    assert measuring.windows <= len(windows)
    return windows


def _even(until_s: int, *, step: int = 1000, **more: int) -> list[ProgressReading]:
    """Two steps a second, written each 15 seconds."""
    return [_reading(float(at_s), step + 2 * at_s, **more) for at_s in range(0, until_s + 1, 15)]


def test_a_window_has_the_steps_and_seconds_after_the_first_20_steps() -> None:
    assert _fed(*_even(75)) == [
        MeasuredWindow(generation=Generation(7), nodes=2, steps=120, seconds=60.0)
    ]


def test_the_first_20_steps_are_not_measured() -> None:
    slow = [_reading(0.0, 1000), _reading(100.0, 1000 + FIRST_STEPS - 1)]
    rest = [_reading(110.0, 1020), _reading(170.0, 1140)]
    assert _fed(*slow, *rest) == [
        MeasuredWindow(generation=Generation(7), nodes=2, steps=120, seconds=60.0)
    ]


def test_where_the_first_step_is_known_later_records_need_not_wait_for_20_more() -> None:
    """An autoscaler that began to lead meanwhile loses no more than the window under way."""
    known = [replace(reading, first_step=500) for reading in _even(60)]
    assert [window.seconds for window in _fed(*known)] == [60.0]
    assert _fed(*_even(60)) == []
    too_soon = [replace(reading, first_step=990) for reading in _even(60)]
    assert _fed(*too_soon) == []


def test_windows_follow_on_each_other() -> None:
    assert sum(window.seconds for window in _fed(*_even(15 + 300))) == 300.0


def test_nothing_is_measured_across_a_change_of_world() -> None:
    windows = _fed(*_even(60), *_even(75, step=1120, generation=8, nodes=3))
    assert windows == [MeasuredWindow(generation=Generation(8), nodes=3, steps=120, seconds=60.0)]


def test_another_writer_begins_anew() -> None:
    """Its clock saw the generation later: the seconds between the two are of no clock."""
    assert (
        _fed(
            *_even(60),
            *(
                replace(each, generation_s=each.generation_s + 50.0)
                for each in _even(30, step=1120)
            ),
        )
        == []
    )


def test_steps_that_go_back_begin_anew() -> None:
    assert _fed(*_even(60), _reading(75.0, 500), _reading(90.0, 530)) == []


def test_the_same_record_read_twice_is_one() -> None:
    assert len(_fed(*(each for each in _even(75) for _ in range(3)))) == 1


def test_slow_steps_are_waited_for() -> None:
    readings = [_reading(30.0 * number, number) for number in range(60)]
    assert {window.steps for window in _fed(*readings)} == {10}


def test_a_pause_is_no_time_of_steps() -> None:
    readings = [*_even(75), replace(_reading(135.0, 1150), without_steps_s=60.0)]
    more = [replace(_reading(195.0, 1270), without_steps_s=60.0)]
    assert _fed(*readings, *more)[1] == MeasuredWindow(
        generation=Generation(7), nodes=2, steps=120, seconds=60.0
    )


def test_an_account_that_began_anew_measures_nothing() -> None:
    begin = replace(_reading(100.0, 1000), without_steps_s=30.0)
    assert window_between(begin, replace(_reading(160.0, 1120), without_steps_s=0.0)) is None


def test_no_time_is_no_window() -> None:
    assert window_between(_reading(10.0, 5), _reading(10.0, 9)) is None


def _records(**seconds: float) -> tuple[JobProgress, TimeSpent]:
    progress = JobProgress(uid="u", generation=Generation(7), generation_s=42.5, step=9)
    spent = TimeSpent(
        node=NodeId("a"),
        uid="u",
        generation=Generation(7),
        generation_s=42.5,
        slots=2,
        seconds=seconds,
    )
    return progress, spent


@pytest.mark.parametrize("cause", ["train", "redone", "save", "data", "unexplained", "newer"])
def test_what_a_step_needs_is_time_of_steps(cause: str) -> None:
    assert reading_of(*_records(**{cause: 10.0}), 2).without_steps_s == 0.0


@pytest.mark.parametrize("cause", ["pause", "restore", "recover", "wait", "start"])
def test_what_no_step_needs_is_not(cause: str) -> None:
    assert reading_of(*_records(**{cause: 10.0}), 2).without_steps_s == 5.0, "of each slot"


def test_records_of_two_moments_measure_nothing() -> None:
    progress, spent = _records(pause=10.0)
    reading = reading_of(progress, replace(spent, generation_s=27.5), 2)
    assert reading.without_steps_s is None
    assert reading.step == 9
    assert _fed(*_even(60), replace(_reading(75.0, 1150), without_steps_s=None)) == []


def test_a_node_without_an_account_has_no_pauses() -> None:
    assert reading_of(_records()[0], None, 2).without_steps_s == 0.0


def _at_rates(*rates: float) -> list[ProgressReading]:
    """Steps a second of each quarter of a minute that follows on the first one."""
    readings = _even(15)
    for rate in rates:
        last = readings[-1]
        readings.append(_reading(last.generation_s + 15.0, last.step + round(15.0 * rate)))
    return readings


@pytest.mark.parametrize("stalled", [0, 1, 2, 3])
def test_window_in_which_the_job_stood_still_begins_anew(stalled: int) -> None:
    """A stall of eight seconds would make a size that is tried look worse by an eighth."""
    rates = [2.0] * 8
    rates[stalled] = 1.0
    window = _fed(*_at_rates(*rates))[0]
    assert window.steps / window.seconds == pytest.approx(2.0)


def test_stalls_that_are_in_each_window_are_part_of_a_step() -> None:
    """A window begins anew once: else a job that saves each minute would never be measured."""
    windows = _fed(*_at_rates(*[2.0, 2.0, 1.0] * 8))
    rates = [window.steps / window.seconds for window in windows]
    assert len(rates) >= 3
    assert min(rates) < 1.9


def test_steps_of_a_slow_job_are_whole_numbers_and_no_jumps() -> None:
    """Three steps and then five, at a rate of four."""
    windows = _fed(*_at_rates(*[3.0 / 15.0, 5.0 / 15.0] * 6))
    assert [window.seconds for window in windows] == [60.0] * 3

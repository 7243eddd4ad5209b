"""When a job is told to be another one, and by which windows."""

from elasticd.autoscale.curve.size import with_windows
from elasticd.autoscale.evaluation_input import MeasuredWindow
from elasticd.records.autoscale.curve import Curve
from elasticd.records.ids import Generation


def step_s(*seconds: float) -> float:
    """Return the step of four nodes after ten windows of 1 s a step, and these."""
    windows = [
        MeasuredWindow(generation=Generation(1), nodes=4, steps=100, seconds=100.0 * each)
        for each in (*[1.0] * 10, *seconds)
    ]
    (size,) = with_windows(Curve(uid="u"), windows).sizes
    return size.step_s


def test_window_with_both_jobs_in_it_is_not_what_is_known_of_the_new_one() -> None:
    """A stall, the change in the midst of a window, and the first one after it: one more comes."""
    assert step_s(1.2, 1.4, 2.0) == 1.0
    assert step_s(1.2, 1.4, 2.0, 2.0) == 2.0


def test_job_that_changes_with_each_window_is_followed_all_the_same() -> None:
    """What never settles is waited for only so long."""
    assert step_s(1.3, 1.6, 2.0, 2.6, 3.3) == 1.0
    assert step_s(1.3, 1.6, 2.0, 2.6, 3.3, 4.2) > 3.0

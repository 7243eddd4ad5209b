"""Which worker a signal stopped before it called `elasticd.run`, and which one is only slow."""

from collections.abc import Callable

import pytest

from elasticd_agent.liveness.hang_detector import Frozen, ProcessSample
from elasticd_agent.liveness.stopped_start import LIMIT_S, PAUSE_S, StoppedStarts
from tests.fixtures.pulse_scene import sample

PID = 7
BEGIN_S = 100.0


def judged(
    sample_at: Callable[[float], ProcessSample | None], *, for_s: float, pause_s: float = PAUSE_S
) -> list[tuple[float, Frozen]]:
    """Look at worker 7 for so long; return the verdicts, with the time since the begin."""
    starts = StoppedStarts()
    starts.watch(PID)
    now_s, found = BEGIN_S, []
    while now_s <= BEGIN_S + for_s:
        assert starts.due(now_s=now_s) in ((PID,), ()), "a worker that was told is not due"
        if starts.due(now_s=now_s):
            samples = {PID: sample_at(now_s - BEGIN_S)}
            found += [(now_s - BEGIN_S, v) for v in starts.judge(samples, now_s=now_s)]
        now_s += pause_s
    return found


def test_worker_that_is_stopped_for_the_limit_is_told_once_with_its_cause() -> None:
    ((at_s, verdict),) = judged(lambda at_s: sample("TTTT"), for_s=10 * LIMIT_S)
    assert at_s == LIMIT_S
    assert (verdict.pid, verdict.has_run) == (PID, False)
    assert "stopped by a signal (such as SIGSTOP)" in verdict.why
    assert "before it called elasticd.run" in verdict.why


@pytest.mark.parametrize("states", ["D", "S", "R", "tttt", "TTtT", "TTTD", "TTTS", "", "ZX"])
def test_worker_that_is_not_stopped_by_a_signal_is_left_alone(states: str) -> None:
    """It waits for a disk, imports, or somebody looks at it with a debugger; or it has ended."""
    assert not judged(lambda at_s: sample(states), for_s=100 * LIMIT_S)
    assert not judged(lambda at_s: None, for_s=100 * LIMIT_S)


def test_stops_that_each_end_before_the_limit_do_not_add_up() -> None:
    def states(at_s: float) -> str:
        return "S" if at_s % LIMIT_S < PAUSE_S else "T"

    assert not judged(lambda at_s: sample(states(at_s)), for_s=10 * LIMIT_S)


def test_worker_that_is_stopped_and_continued_in_turns_is_left_alone() -> None:
    """As cpulimit does: it is seen stopped each time, and has run meanwhile."""
    seen = judged(lambda at_s: sample("TT", cpu_s=3.0 + 0.01 * at_s), for_s=10 * LIMIT_S)
    assert not seen


def test_time_in_which_we_stood_still_ourselves_does_not_count() -> None:
    assert not judged(lambda at_s: sample("T"), for_s=10 * LIMIT_S, pause_s=LIMIT_S)


def test_worker_that_called_run_or_ended_is_looked_at_no_more() -> None:
    starts = StoppedStarts()
    assert starts.rest_s(now_s=BEGIN_S) is None
    starts.watch(PID)
    assert starts.due(now_s=BEGIN_S) == (PID,)
    starts.judge({PID: sample("T")}, now_s=BEGIN_S)
    assert starts.rest_s(now_s=BEGIN_S + 0.5) == PAUSE_S - 0.5
    starts.forget(PID)
    assert starts.due(now_s=BEGIN_S + LIMIT_S) == ()
    assert starts.rest_s(now_s=BEGIN_S + LIMIT_S) is None
    assert starts.judge({PID: sample("T")}, now_s=BEGIN_S + PAUSE_S) == ()

"""What keeps a node from being ready although it holds its lease, and for how long."""

import pytest

from elasticd.records.ids import JobName
from elasticd_agent.node import readiness as module
from elasticd_agent.node.readiness import LIMIT_S, Readiness

A, B = JobName("a"), JobName("b")


class Clock:
    """Stands where a test puts it."""

    def __init__(self) -> None:
        self.at_s = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "now_s", lambda: clock.at_s)
    return clock


@pytest.fixture
def readiness(clock: Clock) -> Readiness:
    readiness = Readiness()
    readiness.on_jobs_listed()
    return readiness


def test_node_is_not_ready_before_it_knows_which_jobs_there_are(clock: Clock) -> None:
    """One of them may wait for it."""
    readiness = Readiness()
    readiness.update({}, (), clock.at_s)
    assert "has not read yet which jobs" in readiness.why_not
    readiness.on_jobs_listed()
    assert readiness.why_not == ""


def test_job_that_cannot_be_read_keeps_no_node_from_being_ready_for_ever(clock: Clock) -> None:
    """A rollout would stop at this node, and the job would be no better for it."""
    readiness = Readiness()
    clock.at_s += LIMIT_S - 1.0
    assert readiness.why_not
    clock.at_s += 1.0
    assert readiness.why_not == ""


def test_node_is_ready_once_it_has_the_state_of_all_its_jobs(
    clock: Clock, readiness: Readiness
) -> None:
    """The sentence names a job."""
    readiness.update({A: 0.0, B: LIMIT_S}, (), clock.at_s)
    assert readiness.why_not == "Job 'b' has its state on other nodes and not yet on this one."
    readiness.update({A: 0.0, B: 0.0}, (), clock.at_s)
    assert readiness.why_not == ""


def test_no_job_keeps_a_node_from_being_ready_for_ever(clock: Clock, readiness: Readiness) -> None:
    """Nobody has to look for the time to be over."""
    readiness.update({A: LIMIT_S}, (), 100.0)
    clock.at_s = 100.0 + LIMIT_S - 1.0
    readiness.update({A: LIMIT_S}, (), clock.at_s)
    assert readiness.why_not
    clock.at_s += 1.0
    assert readiness.why_not == ""
    readiness.update({A: LIMIT_S}, (), clock.at_s)
    assert readiness.why_not == "", "it is the same wait"
    readiness.update({A: 0.0}, (), clock.at_s)
    readiness.update({A: LIMIT_S}, (), clock.at_s)
    assert readiness.why_not, "another one"


def test_a_shorter_limit_has_a_time_of_its_own_within_the_first(
    clock: Clock, readiness: Readiness
) -> None:
    """The workers took long to start; then the job stands still. Taking turns adds nothing."""
    readiness.update({A: LIMIT_S}, (), 100.0)
    clock.at_s = 300.0
    readiness.update({A: 60.0}, (), clock.at_s)
    assert readiness.why_not
    clock.at_s = 360.0
    assert readiness.why_not == ""
    for at_s in range(360, 700, 20):
        readiness.update({A: LIMIT_S if at_s % 40 else 60.0}, (), float(at_s))
    clock.at_s = 100.0 + LIMIT_S
    assert readiness.why_not == ""


def test_workers_that_crash_again_and_again_do_not_begin_the_wait_anew(
    clock: Clock, readiness: Readiness
) -> None:
    """The job holds the node back after each crash, for ever longer; a rollout waits for it."""
    waited_s = 0.0
    while waited_s < LIMIT_S:
        readiness.update({A: LIMIT_S}, (), clock.at_s)
        assert readiness.why_not
        clock.at_s += 50.0
        waited_s += 50.0
        readiness.update({A: 0.0}, (A,), clock.at_s)
        assert readiness.why_not == "", "no world is about to take it in"
        clock.at_s += 60.0
        readiness.update({A: 0.0}, (A,), clock.at_s)
    readiness.update({A: LIMIT_S}, (), clock.at_s)
    assert readiness.why_not == ""
    readiness.update({A: 0.0}, (), clock.at_s)
    readiness.update({A: LIMIT_S}, (), clock.at_s)
    assert readiness.why_not, "it has had the state since"


def test_what_passes_while_a_job_holds_the_node_back_does_not_count(
    clock: Clock, readiness: Readiness
) -> None:
    """Nobody waits then, so the node has its whole time for the next try."""
    readiness.update({A: LIMIT_S}, (), clock.at_s)
    clock.at_s += 100.0
    readiness.update({A: 0.0}, (A,), clock.at_s)
    clock.at_s += 2.0 * LIMIT_S
    readiness.update({A: LIMIT_S}, (), clock.at_s)
    clock.at_s += LIMIT_S - 101.0
    assert readiness.why_not
    clock.at_s += 1.0
    assert readiness.why_not == ""

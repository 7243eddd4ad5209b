"""A bug of ours in one job must not end the workers of the others."""

from queue import SimpleQueue

import pytest

from elasticd.errors import InvariantBroken
from elasticd.records.ids import JobName
from elasticd_agent.job.job_guard import JobGuard
from elasticd_agent.loop.inbox import Item

JOB, OTHER = JobName("job"), JobName("other")


class Serving:
    def __init__(self) -> None:
        self.crashes: list[str] = []

    def crash(self, why: str) -> None:
        self.crashes.append(why)


def broken() -> None:
    raise KeyError("worker")


def test_only_the_job_that_broke_is_left() -> None:
    """Also where the job itself is not served any more: nothing else breaks then."""
    posted: SimpleQueue[Item] = SimpleQueue()
    runners = {JOB: Serving(), OTHER: Serving()}
    guard = JobGuard(posted.put, runners)
    guard.post_for(JOB)(broken)
    guard.post_for(JobName("gone"))(broken)
    posted.get()()
    posted.get()()
    assert len(runners[JOB].crashes) == 1 and "KeyError" in runners[JOB].crashes[0]
    assert runners[OTHER].crashes == []


def test_a_broken_rule_ends_the_agent() -> None:
    """What it would do next might be wrong for all nodes."""

    def breaks() -> None:
        raise InvariantBroken("two worlds")

    with pytest.raises(InvariantBroken):
        JobGuard(lambda item: None, {}).run(JOB, breaks)

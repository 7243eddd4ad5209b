"""A pool that takes its time to end holds up nobody but its own job."""

from dataclasses import dataclass, field
from queue import Queue
from threading import Event, Thread

import pytest

from elasticd.records.ids import JobName, Slot
from elasticd_agent.job.closing_jobs import ClosingJobs
from elasticd_agent.loop.inbox import Item
from tests.fixtures.patience import patience_s

WAIT_S = patience_s(30.0)
JOB = JobName("job")


@dataclass
class SlowWorkers:
    """End when they are let."""

    may_end: Event = field(default_factory=Event)

    def end(self) -> None:
        assert self.may_end.wait(WAIT_S)


def test_slots_are_taken_until_the_pool_has_ended() -> None:
    """The owner goes on meanwhile, and hears of it on its own thread."""
    inbox, changes, workers = Queue[Item](), list[str](), SlowWorkers()
    closings = ClosingJobs(inbox.put, lambda: changes.append("changed"))
    closings.begin(JOB, workers, (Slot(0), Slot(1)), lambda: changes.append("ended"))
    assert JOB in closings and closings.slots == {Slot(0), Slot(1)} and len(closings) == 1
    workers.may_end.set()
    item = inbox.get(timeout=WAIT_S)
    assert JOB in closings
    item()
    assert JOB not in closings and changes == ["ended", "changed"]
    assert not closings and closings.slots == frozenset()


def test_end_of_the_agent_waits_for_what_is_being_closed() -> None:
    """Nothing of a worker may outlive it."""
    inbox, workers = Queue[Item](), SlowWorkers()
    closings = ClosingJobs(inbox.put, lambda: None)
    closings.begin(JOB, workers, ())
    workers.may_end.set()
    closings.wait(WAIT_S)
    assert inbox.qsize() == 1


def test_without_a_thread_the_owner_waits_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would else end with all its jobs, or wait for this one for ever."""
    inbox, ended, workers = Queue[Item](), list[str](), SlowWorkers()
    workers.may_end.set()

    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refuse)
    closings = ClosingJobs(inbox.put, lambda: None)
    closings.begin(JOB, workers, (Slot(0),), lambda: ended.append("ended"))
    closings.wait(WAIT_S)
    inbox.get_nowait()()
    assert ended == ["ended"] and not closings

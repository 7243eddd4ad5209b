"""Where the time of a job's slots went, from what its agents wrote."""

import pytest

from elasticd.control.report.job_time import job_time
from elasticd.goodput.cause import TimeCause
from elasticd.records.account.time_spent import JobProgress, TimeSpent
from elasticd.records.codec import encode
from elasticd.records.ids import NodeId

UID = "u"


def spent(uid: str = UID, **seconds: float) -> bytes:
    return encode(TimeSpent(node=NodeId("a"), uid=uid, seconds=seconds))


def progress(uid: str = UID, **seconds: float) -> bytes:
    return encode(JobProgress(uid=uid, seconds=seconds, wanted_s=200.0, has_steps=True))


def test_agents_that_are_here_and_those_that_are_gone_are_added() -> None:
    found = job_time(progress(train=20.0, spare=5.0), [spent(train=50.0), spent(wait=30.0)], UID)
    assert found is not None
    assert found.seconds == {TimeCause.TRAIN: 70.0, TimeCause.SPARE: 5.0, TimeCause.WAIT: 30.0}
    assert found.total_s == 105.0
    assert found.goodput == 0.7
    assert found.attainment == 0.35
    assert found.has_steps


def test_without_a_progress_nothing_is_known_of_what_was_wanted() -> None:
    found = job_time(None, [spent(train=5.0)], UID)
    assert found is not None
    assert (found.goodput, found.attainment) == (1.0, None)


def test_what_another_job_of_this_name_left_is_not_counted() -> None:
    assert job_time(progress("old"), [spent("old", train=5.0)], UID) is None
    found = job_time(progress("old", train=9.0), [spent("old", train=5.0), spent(train=1.0)], UID)
    assert found is not None and found.total_s == 1.0


def test_programs_get_every_cause_also_those_without_any_time() -> None:
    found = job_time(progress(), [spent(train=1.0, data=3.0)], UID)
    assert found is not None
    seconds = found.plain["seconds"]
    assert isinstance(seconds, dict)
    assert list(seconds) == [cause.value for cause in TimeCause]
    assert sum(seconds.values()) == pytest.approx(found.plain["total_s"])
    assert found.plain["goodput"] == 0.25

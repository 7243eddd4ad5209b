"""Where the time of a job's slots went, from what its agents wrote."""

from dataclasses import replace

import pytest

from elasticd.control.report.job_time import job_time
from elasticd.goodput.cause import TimeCause
from elasticd.records.account.time_spent import JobProgress, TimeSpent
from elasticd.records.codec import encode
from elasticd.records.ids import Generation, NodeId

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


def written(
    generation: int, generation_s: float, *, slots: int = 1, spare: int = 0, is_last: bool = False
) -> bytes:
    """The account of a node that has trained since its generation 3 began, and 100 s before."""
    record = TimeSpent(
        node=NodeId("a"),
        uid=UID,
        seconds={"train": (100.0 + generation_s if generation == 3 else 100.0) * (slots - spare)},
        slots=slots,
        generation=Generation(generation),
        generation_s=generation_s,
        held={"train": slots - spare, "spare": spare},
        is_last=is_last,
    )
    return encode(record)


def attained(*records: bytes, wanted_s: float) -> float | None:
    """By records of which that of rank 0 was written 60 s after generation 3 began."""
    newest = JobProgress(
        uid=UID, generation=Generation(3), generation_s=60.0, wanted_s=wanted_s, has_steps=True
    )
    found = job_time(encode(newest), records, UID)
    assert found is not None
    return found.attainment


@pytest.mark.parametrize("ago_s", [0.0, 5.0, 15.0])
def test_job_that_trains_all_the_time_attains_all_however_long_ago_its_agents_wrote(
    ago_s: float,
) -> None:
    """What is wanted is counted three times as often as what other nodes did."""
    other = written(3, 60.0 - ago_s, slots=2)
    assert attained(written(3, 60.0), other, wanted_s=480.0) == pytest.approx(1.0)


def test_slots_that_are_missing_lessen_the_attainment_up_to_the_newest_record() -> None:
    """A node that never came has no account, and a job of three that has two attains two thirds."""
    records = written(3, 60.0), written(3, 45.0)
    assert attained(*records, wanted_s=480.0) == pytest.approx((160 + 145) / (480 - 15))


def test_what_is_not_awaited_of_an_agent_counts_as_wanted() -> None:
    """It has left in order, or its slots are spare, or it wrote after the node of rank 0."""
    assert attained(written(3, 30.0, is_last=True), wanted_s=160.0) == pytest.approx(130 / 160)
    assert attained(written(3, 30.0, slots=2, spare=2), wanted_s=160.0) == 0.0
    assert attained(written(3, 62.0), wanted_s=160.0) == pytest.approx(1.0)
    assert attained(written(4, 1.0), wanted_s=160.0) == pytest.approx(100 / 160)


def test_agent_that_has_not_seen_the_generation_is_awaited_since_it_began() -> None:
    """No two hosts' clocks are compared: it wrote at some time before that."""
    assert attained(written(2, 500.0), wanted_s=160.0) == pytest.approx(1.0)


def test_without_a_progress_nothing_is_known_of_what_was_wanted() -> None:
    found = job_time(None, [spent(train=5.0)], UID)
    assert found is not None
    assert (found.goodput, found.attainment) == (1.0, None)


def test_what_another_job_of_this_name_left_is_not_counted() -> None:
    assert job_time(progress("old"), [spent("old", train=5.0)], UID) is None
    found = job_time(progress("old", train=9.0), [spent("old", train=5.0), spent(train=1.0)], UID)
    assert found is not None and found.total_s == 1.0


def test_account_of_which_as_much_is_missing_as_is_there_has_no_goodput() -> None:
    """A second Ctrl-C kills the agents: a run of seconds that had trained had a goodput of 0."""
    short = TimeSpent(node=NodeId("a"), uid=UID, seconds={"start": 29.0}, slots=2)
    for record, is_over, agents, goodput in (
        (short, True, 1, None),
        (short, False, 0, 0.0),
        (replace(short, is_last=True), True, 0, 0.0),
        (replace(short, is_concluded=True), True, 0, 0.0),
        (replace(short, seconds={"start": 31.0}), True, 1, 0.0),
    ):
        for head in (progress(), None):
            found = job_time(head, [encode(record)], UID, is_over=is_over)
            assert found is not None
            assert (found.unwritten_agents, found.goodput) == (agents, goodput)
            assert (found.plain["unwritten_agents"], found.plain["goodput"]) == (agents, goodput)


def test_programs_get_every_cause_also_those_without_any_time() -> None:
    found = job_time(progress(), [spent(train=1.0, data=3.0)], UID)
    assert found is not None
    seconds = found.plain["seconds"]
    assert isinstance(seconds, dict)
    assert list(seconds) == [cause.value for cause in TimeCause]
    assert sum(seconds.values()) == pytest.approx(found.plain["total_s"])
    assert found.plain["goodput"] == 0.25

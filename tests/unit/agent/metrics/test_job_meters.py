"""Which jobs a node shows: those that it serves, those that wait, and those that just ended."""

import weakref

from elasticd.channel.worker import Beat
from elasticd.goodput.cause import TimeCause
from elasticd.records.ids import Generation, JobName, Rank
from elasticd_agent.metrics.job_meters import ENDED_LIMIT, KEEP_S, JobMeters
from elasticd_agent.metrics.job_samples import job_samples
from tests.sim.schedule import spec_of


class Clock:
    def __init__(self) -> None:
        self.at_s = 100.0

    def __call__(self) -> float:
        return self.at_s


def shown(meters: JobMeters) -> list[str]:
    return [reading.spec.name for reading in meters.readings().jobs]


def slots_told(meters: JobMeters) -> list[object]:
    samples = [each for reading in meters.readings().jobs for each in job_samples(reading)]
    return [each.value for each in samples if each.metric.name == "elasticd_job_slots"]


def test_series_of_a_job_end_ten_minutes_after_it() -> None:
    """So that its last scrapes say how it ended."""
    clock = Clock()
    meters = JobMeters(now_s=clock)
    meter = meters.open(spec_of())
    meters.close(meter)
    clock.at_s += KEEP_S - 1.0
    assert shown(meters) == ["job"]
    clock.at_s += 1.0
    assert shown(meters) == []


def test_job_that_comes_back_goes_on_counting() -> None:
    """A new incarnation of the node is the same node to the job's metrics."""
    clock = Clock()
    meters = JobMeters(now_s=clock)
    first = meters.open(spec_of())
    meters.close(first, keeps_workers=True)
    clock.at_s += 10.0
    assert meters.open(spec_of()) is first
    clock.at_s += 2 * KEEP_S
    assert shown(meters) == ["job"]


def test_another_job_of_the_name_counts_from_zero() -> None:
    """Prometheus sees a counter that begins anew."""
    meters = JobMeters(now_s=Clock())
    first = meters.open(spec_of())
    second = meters.open(spec_of(uid="u2"))
    meters.close(first)  # Late: it must not end the new one's.
    assert second is not first
    assert shown(meters) == ["job"]


def test_many_short_jobs_are_no_leak() -> None:
    """A sweep of a thousand trials in ten minutes: the oldest go."""
    meters = JobMeters(now_s=Clock())
    for number in range(3 * ENDED_LIMIT):
        meters.close(meters.open(spec_of(name=JobName(f"j{number}"), uid=f"u{number}")))
    assert shown(meters) == [f"j{number}" for number in range(2 * ENDED_LIMIT, 3 * ENDED_LIMIT)]


def test_job_without_a_part_of_this_node_is_known_until_it_is_over() -> None:
    """Its slots are 0 here; where they are 0 everywhere, nobody serves it."""
    meters = JobMeters(now_s=Clock())
    for job in ("here", "elsewhere"):
        meters.add(JobName(job), "u1")
    meters.open(spec_of(name=JobName("here")))
    assert meters.readings().unserved == ("elsewhere",)
    meters.forget(JobName("elsewhere"))
    assert meters.readings().unserved == ()


def test_job_that_ended_after_this_node_had_left_it_has_no_slots_to_sum() -> None:
    """Where the agent that tells its phase is gone too, a sum of 0 looked like a job that waits."""
    meters = JobMeters(now_s=Clock())
    meters.add(JobName("job"), "u1")
    meters.close(meters.open(spec_of()))
    assert slots_told(meters) == [0], "others may serve it, or nobody"
    meters.forget(JobName("job"))
    assert slots_told(meters) == []
    meters.open(spec_of())
    assert slots_told(meters) == [0]


def test_job_that_is_submitted_anew_under_the_name_has_one_phase() -> None:
    """Also where a node that served the one before has no part in it: no alert is about that."""
    meters = JobMeters(now_s=Clock())
    meters.close(meters.open(spec_of()))
    meters.add(JobName("job"), "u1")
    assert shown(meters) == ["job"], "it is the same one still"
    meters.add(JobName("job"), "u2")
    assert shown(meters) == [] and meters.readings().unserved == ("job",)
    served = meters.open(spec_of(uid="u2"))
    meters.add(JobName("job"), "u2")
    assert shown(meters) == ["job"]
    meters.close(served)


def test_heartbeat_of_workers_that_were_kept_is_counted_in_the_present_meter() -> None:
    """They outlive the incarnation, and perhaps the meter that they began with."""
    clock = Clock()
    meters = JobMeters(now_s=clock)
    meters.close(meters.open(spec_of()), keeps_workers=True)
    beat = Beat(generation=Generation(1), step=7, step_s=0.1, batches=1, sequence=1)
    clock.at_s += KEEP_S
    meters.readings()
    meters.receive(JobName("job"), Rank(0), beat, 0)  # Nobody's.
    meter = meters.open(spec_of())
    meters.receive(JobName("job"), Rank(0), beat, 0)
    assert meter.reading().counts.steps == 7


def test_slot_seconds_are_those_of_the_account_at_that_moment() -> None:
    """A cause that nothing went to is 0 from the beginning, as a counter must be."""
    clock = Clock()
    meters = JobMeters(lambda job, now_s: {TimeCause.TRAIN: now_s}, now_s=clock)
    meters.open(spec_of())
    (reading,) = meters.readings().jobs
    found = {
        sample.labels[1]: sample.value
        for sample in job_samples(reading)
        if sample.metric.name == "elasticd_slot_seconds_total"
    }
    assert found == {cause.value: 0.0 for cause in TimeCause} | {"train": clock.at_s}


def test_who_served_a_job_is_let_go_when_it_does_so_no_more() -> None:
    """What it waited for stays counted; fifty of them would be most of an agent's memory."""

    class Serving:
        waited_s = 5.0

        def told(self) -> float:
            return self.waited_s

    meters, serving = JobMeters(now_s=Clock()), Serving()
    meter = meters.open(spec_of())
    meter.measure(step_wait_s=serving.told, late_ratio=serving.told)
    meters.close(meter)
    gone = weakref.ref(serving)
    del serving
    assert gone() is None
    (reading,) = meters.readings().jobs
    assert (reading.step_wait_s, reading.late_ratio) == (5.0, 0.0)

"""What is measured of a job by its own records, from one evaluation to the next."""

from dataclasses import replace

import pytest

from elasticd.autoscale.evaluation_input import MeasuredWindow
from elasticd.autoscale.loop.job_watch import JobWatch
from elasticd.autoscale.loop.measurement import Measured, Measurement, used_node_hours
from elasticd.records.account.time_spent import TimeSpent
from elasticd.records.ids import Generation, Life, NodeId
from elasticd.records.reason import Reason
from tests.fixtures.autoscaler_scene import Cluster, JobScene


class Bench:
    """One job on nodes a and b, and what is measured of it in windows of 30 s."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.job: JobScene = self.cluster.job().submit()
        self.job.run("a", "b")
        self.records = JobWatch(self.cluster.store, self.cluster.keys, self.job.name)
        self.measurement = Measurement()

    def take(self) -> Measured:
        facts = self.records.read()
        assert facts is not None
        return self.measurement.take(facts, 30.0)

    def progress(self, step: int, generation_s: float) -> Measured:
        self.job.progress(step, generation_s)
        return self.take()

    def spend(self, **seconds: float) -> Measured:
        spent = TimeSpent(node=NodeId("a"), uid="u", seconds=seconds)
        self.job.put(self.cluster.keys.time_spent(self.job.name, NodeId("a"), Life("i")), spent)
        return self.take()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def window(steps: int, seconds: float, *, generation: int = 1, nodes: int = 2) -> MeasuredWindow:
    return MeasuredWindow(
        generation=Generation(generation), nodes=nodes, steps=steps, seconds=seconds
    )


def test_a_window_lies_after_the_first_20_steps_and_is_long_enough(bench: Bench) -> None:
    """It goes by the clock of the node of rank 0 alone, and the next one begins at its end."""
    bench.job.tell("a", step=101)
    assert bench.progress(110, 5.0) == Measured()
    assert bench.progress(121, 20.0) == Measured()
    assert bench.progress(140, 40.0).windows == ()
    measured = bench.progress(151, 50.0)
    assert measured.windows == (window(30, 30.0),) and measured.has_full_window
    assert bench.take().windows == () and bench.take().has_full_window
    assert bench.progress(191, 90.0).windows == (window(40, 40.0),)


def test_the_first_world_is_measured_though_nobody_tells_with_which_step_it_began(
    bench: Bench,
) -> None:
    """There was none before it whose steps could be taken for its own."""
    bench.job.run("a", "b", reason=Reason.FIRST_WORLD)
    assert bench.progress(10, 5.0) == Measured()
    assert bench.progress(31, 20.0) == Measured()
    assert bench.progress(61, 50.0).windows == (window(30, 30.0, generation=2),)


def test_a_world_that_formed_before_its_scripts_were_in_it_is_measured_all_the_same(
    bench: Bench,
) -> None:
    """A node joins while a job starts: nobody ever tells with which step that world began."""
    assert bench.progress(500, 44.0) == Measured()
    assert bench.progress(510, 50.0) == Measured()
    assert bench.progress(531, 60.0) == Measured()
    assert bench.progress(561, 90.0).windows == (window(30, 30.0),)


def test_a_window_never_spans_a_change_of_world(bench: Bench) -> None:
    """The record may still tell of the generation before, or of its steps."""
    bench.job.tell("a", step=1)
    bench.progress(100, 10.0)
    bench.job.run("a", "b", "c", new=["c"])
    assert bench.progress(500, 60.0) == Measured()  # Of the new one, but it has made no step.
    bench.job.tell("a", step=500)
    bench.job.tell("b", step=500)
    assert bench.progress(530, 70.0).windows == ()
    assert not bench.take().has_full_window
    assert bench.progress(560, 100.0).windows == (window(30, 30.0, generation=2, nodes=3),)


def test_steps_of_the_world_before_are_not_the_first_ones_of_the_next(bench: Bench) -> None:
    """A planned change is seen while the ranks still train in the world before, up to a step."""
    bench.take()
    bench.job.run("a", "b", "c", new=["c"])
    for step, generation_s in ((100, 0.5), (125, 5.0), (150, 40.0)):
        assert bench.progress(step, generation_s) == Measured()
    bench.job.tell("a", step=152)
    assert bench.progress(180, 50.0).windows == ()
    assert bench.progress(210, 80.0).windows == (window(30, 30.0, generation=2, nodes=3),)


def test_a_record_of_the_generation_before_is_no_start(bench: Bench) -> None:
    """Rank 0's node writes every few seconds: what stands there may be older than the world."""
    bench.job.tell("a", step=1)
    bench.progress(100, 100.0)
    stale = bench.records.read()
    assert stale is not None and stale.world is not None
    newer = replace(stale, world=replace(stale.world, generation=Generation(2)))
    assert bench.measurement.take(newer, 30.0).windows == ()
    assert bench.measurement._measuring.newest is None


def test_time_in_which_no_step_could_end_is_no_part_of_a_window(bench: Bench) -> None:
    """By the account that rank 0's node writes at the same moment; another node's is none of it."""
    bench.job.tell("a", step=1)

    def told(step: int, generation_s: float, **seconds: float) -> Measured:
        for node, found in (("b", {"pause": 7.0 * generation_s}), ("a", seconds)):
            spent = TimeSpent(
                node=NodeId(node),
                uid="u",
                seconds=found,
                slots=1,
                generation=Generation(1),
                generation_s=generation_s,
            )
            key = bench.cluster.keys.time_spent(bench.job.name, NodeId(node), Life("i"))
            bench.job.put(key, spent)
        return bench.progress(step, generation_s)

    assert told(100, 10.0, train=10.0, pause=5.0).windows == ()
    assert told(130, 50.0, train=25.0, pause=30.0).windows == ()
    assert told(200, 80.0, train=55.0, pause=30.0).windows == (window(100, 45.0),)


def test_an_account_of_another_moment_begins_and_ends_no_window(bench: Bench) -> None:
    """It was read between the two writes: the next evaluation has both."""
    bench.job.tell("a", step=1)
    bench.spend(train=10.0)
    bench.progress(100, 10.0)
    assert bench.progress(130, 50.0).windows == ()


def test_what_a_change_cost_is_told_once_by_those_who_stayed(bench: Bench) -> None:
    """Seconds without steps of the slowest; steps, spares and saves are none of it."""
    bench.take()
    bench.job.run("a", "b", "c", new=["c"])
    bench.job.tell("a", spent_s={"resize": 0.5, "train": 9.0, "save": 3.0})
    assert bench.take().change_cost_s == ()
    bench.job.tell("c", spent_s={"start": 30.0})
    assert bench.take().change_cost_s == ()
    bench.job.tell("b", spent_s={"resize": 0.25, "restore": 0.5})
    assert bench.take().change_cost_s == (0.75,)
    assert bench.take().change_cost_s == ()


def test_a_failure_is_no_change_of_size(bench: Bench) -> None:
    """What it cost says nothing about what a change that is wished for costs."""
    bench.take()
    bench.job.run("a", "b", reason=Reason.NODE_LOST)
    bench.job.tell("a", spent_s={"recover": 9.0})
    bench.job.tell("b", spent_s={"recover": 9.0})
    assert bench.take().change_cost_s == ()


def test_imports_of_scripts_are_no_cost_of_a_change_of_size(bench: Bench) -> None:
    """A node joined before they had called `elasticd.run`, so the change ends with all of that."""
    bench.take()
    bench.job.run("a", "b", "c", new=["c"])
    for node in ("a", "b"):
        bench.job.tell(node, spent_s={"start": 30.0}, phases_s={"start": 30.0})
    assert bench.take().change_cost_s == ()


def test_a_new_leader_does_not_tell_a_cost_again(bench: Bench) -> None:
    """The one before has told of the change with which this generation began."""
    bench.job.run("a", "b", "c", new=["c"])
    for node in ("a", "b"):
        bench.job.tell(node, spent_s={"resize": 0.5})
    assert bench.take().change_cost_s == ()


def test_the_share_of_data_is_that_of_the_newest_time(bench: Bench) -> None:
    """Over a quarter of a minute of each slot at least; what came before counts no more."""
    bench.spend(train=1000.0)
    assert bench.spend(train=1010.0, data=10.0).data_share == 0.0
    assert bench.spend(train=1010.0, data=30.0).data_share == 0.75
    assert bench.spend(train=1070.0, data=30.0).data_share == 0.0


def test_used_node_hours_leave_spares_out(bench: Bench) -> None:
    """They wait for others' misfortune."""
    bench.spend(train=7200.0, spare=36_000.0)
    facts = bench.records.read()
    assert facts is not None and used_node_hours(facts) == 2.0

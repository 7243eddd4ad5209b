"""What a node counts of a job: each event once, by the node that had rank 0 when it happened."""

import math
from dataclasses import replace

import pytest

from elasticd.channel.worker import Beat, Progressed
from elasticd.records.account.incident import Incident
from elasticd.records.ids import Generation, Rank
from elasticd.records.job import Want
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import World
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.effect import WriteIncident
from elasticd_agent.metrics.job_meter import JobMeter, JobReading
from elasticd_agent.metrics.job_samples import job_samples
from tests.unit.rendezvous.cases import Told, member, name, running, world

UNIX_S = 1_700_000_000.0


class Node:
    """The core of one node, and its meter beside it."""

    def __init__(self, me: int = 0, **spec: object) -> None:
        self.told = Told(me, **spec)
        self.meter = JobMeter(self.told.state.spec, unix_s=lambda: UNIX_S)
        self.meter.serve()

    def sees(self, *events: ev.Event) -> None:
        for event in events:
            before = self.told.state
            effects = self.told.tell(event)
            self.meter.observe(before, self.told.state, effects)

    def enters(self, standing: World) -> None:
        self.told.revision += 1
        self.sees(ev.WorldSeen(world=standing, revision=self.told.revision))

    def hears_status(self, phase: Phase, generation: int = 1) -> None:
        self.told.revision += 1
        status = replace(running(generation), phase=phase)
        self.sees(ev.StatusSeen(status=status, revision=self.told.revision))

    def passes(self, incident: Incident) -> None:
        state = self.told.state
        self.meter.observe(state, state, (WriteIncident(incident=incident),))

    def beats(self, step: int, *, generation: int = 1, formed: int = 0, **more: object) -> None:
        given: dict[str, object] = {"step_s": 0.5, "batches": 1, "sequence": 1, **more}
        beat = Beat(generation=Generation(generation), step=step, **given)  # type: ignore[arg-type]
        self.meter.receive(Rank(0), beat, formed)

    @property
    def reading(self) -> JobReading:
        return self.meter.reading()

    def value(self, metric: str, *labels: str) -> float | None:
        """Of what it exports; None: it does not."""
        for sample in job_samples(self.reading):
            if (sample.metric.name, sample.labels) == (f"elasticd_{metric}", ("job", *labels)):
                assert isinstance(sample.value, int | float)
                return sample.value
        return None


def a_world(generation: int, *nodes: int, reason: Reason = Reason.NODE_LOST) -> World:
    return replace(world(generation, *nodes), reason=reason)


def test_counters_are_there_before_anything_happened() -> None:
    """Of a series that begins with 1 the first increase is lost."""
    node = Node()
    assert node.value("changes_total", "node_dead") == 0
    assert node.value("change_seconds_total", "form") == 0
    assert node.value("steps_total") == node.value("lost_steps_total") == 0


@pytest.mark.parametrize("me", [0, 1])
def test_change_is_counted_by_the_node_of_rank_0_alone(me: int) -> None:
    """So that the sum over both is right."""
    node = Node(me)
    node.enters(a_world(1, 0, 1, reason=Reason.FIRST_WORLD))
    node.enters(a_world(2, 1))
    assert node.value("changes_total", "first_world") == (me == 0)
    assert node.value("changes_total", "node_lost") == (me == 1)


@pytest.mark.parametrize("me", [0, 1])
def test_way_of_a_script_to_its_first_step_is_counted_when_it_is_known(me: int) -> None:
    """In restart mode, after the change was told of; what it does again is lost as well."""
    node = Node(me)
    node.enters(a_world(1, 0, 1, reason=Reason.FIRST_WORLD))
    way = Incident(
        generation=Generation(1),
        node=name(me),
        host="h",
        reason=Reason.NODE_LOST,
        phases_s={"start": 9.0, "step": 4.0},
        lost_steps=7,
    )
    told = replace(way, phases_s={"start": 9.0}, lost_steps=0)
    node.meter.count_more(told, way)
    node.enters(a_world(2, 0, 1))
    node.meter.count_more(told, replace(way, generation=Generation(2)))
    assert node.value("lost_steps_total") == (0 if me else 7)
    assert node.value("change_seconds_total", "step") == (0.0 if me else 4.0)
    assert node.value("change_seconds_total", "start") == 0.0, "it was counted before"


def test_world_that_is_seen_again_is_the_same_change() -> None:
    """Records are read anew every minute, and a node comes back as a new incarnation."""
    node = Node()
    first = a_world(1, 0)
    node.enters(first)
    node.enters(first)
    again = Node()
    again.meter = node.meter
    again.enters(first)
    assert again.value("changes_total", "node_lost") == 1


def test_phases_and_lost_steps_are_those_of_rank_0s_node() -> None:
    """The first world costs, but nothing was lost by it."""
    node = Node()
    incident = Incident(
        generation=Generation(1),
        node=name(0),
        host="h",
        reason=Reason.FIRST_WORLD,
        phases_s={"form": 2.0, "of a newer version": 1.0},
        unnoticed_s=1.5,
        lost_steps=3,
    )
    node.enters(a_world(1, 0, 1))
    node.passes(incident)
    assert node.value("change_seconds_total", "form") == 0
    node.enters(a_world(2, 0))
    node.passes(replace(incident, generation=Generation(2)))
    node.passes(replace(incident, generation=Generation(1)))
    assert node.value("change_seconds_total", "form") == 2.0
    assert node.value("change_seconds_total", "unnoticed") == 1.5
    assert node.value("lost_steps_total") == 3
    other = Node(1)
    other.enters(a_world(2, 0, 1))
    other.passes(replace(incident, generation=Generation(2)))
    assert other.value("lost_steps_total") == 0


def test_steps_and_samples_are_counted_from_the_heartbeats_of_rank_0() -> None:
    """Also those before the first heartbeat; what another rank says is not counted twice."""
    node = Node()
    node.enters(a_world(1, 0))
    node.beats(4, samples=40)
    node.beats(4, samples=40)
    node.beats(10, samples=100, step_s=0.25)
    node.meter.receive(
        Rank(1), Beat(generation=Generation(1), step=99, step_s=1, batches=1, sequence=1), 0
    )
    node.beats(99, generation=0)  # Outside of `train`.
    assert node.value("steps_total") == 10
    assert node.value("samples_total") == 100
    assert node.value("step_seconds_total") == 4 * 0.5 + 6 * 0.25
    assert node.value("step") == 10


def test_job_that_goes_on_from_a_checkpoint_has_not_made_its_steps_here() -> None:
    """A run that is called again at step 5000 begins to count there."""
    node = Node()
    node.enters(a_world(1, 0))
    node.beats(5003, formed=5000, samples=50_030)
    node.beats(5005, samples=50_050)
    assert (node.value("steps_total"), node.value("samples_total")) == (5, 20)


def test_step_that_is_done_again_counts_again_and_none_is_lost_between_heartbeats() -> None:
    """The counter never falls: a fall would look like a restart of the agent."""
    node = Node()
    node.enters(a_world(1, 0))
    node.beats(10)
    node.enters(a_world(2, 0))
    node.beats(14, generation=2, formed=12)  # Two more before the change, unheard.
    assert node.value("steps_total") == 14
    node.enters(a_world(3, 0))
    node.beats(8, generation=3, formed=5)  # Everything was lost but a checkpoint.
    assert node.value("steps_total") == 14 + 3


def test_steps_of_another_rank_0_are_its_own() -> None:
    """Rank 0 goes away and comes back: what was applied meanwhile is counted there."""
    node = Node()
    node.enters(a_world(1, 0, 1))
    node.beats(10, samples=100)
    node.enters(a_world(2, 1, 0))
    node.beats(12, samples=120)  # The last ones of the generation before.
    node.enters(a_world(3, 0, 1))
    node.beats(33, generation=3, formed=30, samples=330)
    assert node.value("steps_total") == 12 + 3
    assert node.value("samples_total") == 120


def test_scalars_are_those_of_rank_0_as_they_are() -> None:
    """NaN is what the script gave; a commit that leaves a name out ends its series."""
    node = Node()
    node.enters(a_world(1, 0, 1))
    node.beats(1, scalars={"loss": math.nan, "a b": 2.0})
    assert math.isnan(node.value("scalar", "loss") or 0.0)
    assert node.value("scalar", "a b") == 2.0
    node.beats(2, scalars={"loss": 0.5})
    assert (node.value("scalar", "loss"), node.value("scalar", "a b")) == (0.5, None)
    node.enters(a_world(2, 1, 0))
    assert (node.value("scalar", "loss"), node.value("step")) == (None, None)


def test_ten_thousand_names_are_twenty_series() -> None:
    """The first ones, and the same ones from then on."""
    node = Node()
    node.enters(a_world(1, 0))
    node.beats(1, scalars={f"n{number}": 1.0 for number in range(10_000)})
    node.beats(2, scalars={f"n{number}": 2.0 for number in reversed(range(10_000))})
    assert set(node.reading.scalars) == {f"n{number}" for number in range(20)}


def test_what_belongs_to_the_job_comes_from_rank_0s_node_alone() -> None:
    """Of the same facts two nodes export one set of gauges."""
    both = [Node(0), Node(1)]
    for node in both:
        node.enters(a_world(7, 0, 1))
        node.hears_status(Phase.RUNNING, 7)
    first, second = both
    assert first.value("generation") == 7 and second.value("generation") is None
    assert (first.value("workers"), first.value("nodes")) == (2, 2)
    assert first.value("generation_start_timestamp_seconds") == UNIX_S
    assert first.value("job_phase", "running") == 1
    assert first.value("job_phase", "waiting") == 0
    assert first.value("restart_budget", "user_error") == math.inf
    assert first.value("restart_budget_used", "user_error") == 0
    assert second.value("job_phase", "running") is None


def test_next_one_speaks_where_rank_0s_node_is_gone() -> None:
    """A job that waits for it must not be silent."""
    first, second = Node(0), Node(1)
    for node in (first, second):
        node.enters(a_world(1, 0, 1))
        node.hears_status(Phase.RUNNING)
        node.told.members(member(0), member(1))
    assert second.value("job_phase", "running") is None
    second.sees(ev.MembersListed(revision=500, members=((member(1), 2, 500),)))
    second.hears_status(Phase.WAITING)
    assert second.value("job_phase", "waiting") == 1
    assert (second.value("workers"), second.value("nodes")) == (0, 0)


def test_node_whose_lease_is_unsure_does_not_speak_for_the_job() -> None:
    """Others may be doing it by now."""
    node = Node()
    node.enters(a_world(1, 0))
    node.sees(ev.LeaseUncertain())
    assert node.value("job_phase", "running") is None
    assert node.value("steps_total") == 0


def test_job_that_is_over_says_so_once() -> None:
    """By the node that spoke when it ended, also when that serves it no more.

    Its slots are told no more: a sum of 0 means that nobody serves a job that wants to be served.
    """
    first, second = Node(0), Node(1)
    for node in (first, second):
        node.enters(a_world(1, 0, 1))
        node.hears_status(Phase.RUNNING)
        node.hears_status(Phase.FAILED)
        node.meter.rest(keeps_slots=False)
    assert (first.value("job_phase", "failed"), first.value("wanted_nodes")) == (1, 0)
    assert second.value("job_phase", "failed") is None
    assert (first.value("job_slots"), second.value("job_slots")) == (None, None)


def test_node_that_left_the_job_speaks_no_more_of_it() -> None:
    """It does not know how the others go on; its counters stay."""
    node = Node()
    node.enters(a_world(1, 0))
    node.beats(5)
    node.meter.rest(keeps_slots=False)
    assert node.value("generation") is None
    assert node.value("steps_total") == 5


def test_wish_is_what_the_job_would_have_now() -> None:
    """Within its limits; the shipped alert compares it with what it has."""
    node = Node(min_nodes=2, max_nodes=8)
    node.enters(a_world(1, 0))
    wants = {"user": Want(writer="user", nodes=3)}
    node.told.state = replace(node.told.state, wants=wants)
    node.meter.observe(node.told.state, node.told.state, ())
    assert (node.value("min_nodes"), node.value("max_nodes")) == (2, 8)
    assert node.value("wanted_nodes") == 3


def test_unknown_reason_is_counted_as_other() -> None:
    """A newer elasticd may have more; the list of a label is closed."""
    node = Node()
    node.enters(a_world(1, 0, reason=Reason.STOP_REQUESTED))
    assert node.value("changes_total", "other") == 1


def test_reading_does_not_change_any_more() -> None:
    """It is handed to another thread."""
    node = Node()
    node.enters(a_world(1, 0))
    before = node.reading
    node.enters(a_world(2, 0))
    node.beats(5, generation=2)
    assert sum(before.counts.changes.values()) == 1
    assert (before.counts.steps, before.step) == (0, None)


def test_steps_of_a_script_in_restart_mode_are_those_that_it_tells() -> None:
    """It numbers them as it likes; each generation has processes of its own, which begin anew."""
    node = Node()
    node.enters(a_world(1, 0, 1))
    assert (node.value("step"), node.value("steps_total")) == (None, 0)

    def tells(generation: int, step: int, *, first: int, samples: int, rank: int = 0) -> None:
        told = Progressed(
            step=step, first_step=first, samples=samples, step_s=0.5, scalars={"loss": 0.1 * step}
        )
        node.meter.count_progress(Rank(rank), Generation(generation), told)

    tells(1, 100, first=100, samples=8)
    tells(1, 102, first=100, samples=24)
    tells(1, 999, first=0, samples=999, rank=1)
    assert (node.value("steps_total"), node.value("samples_total")) == (3, 24)
    assert node.value("step_seconds_total") == 1.5
    node.enters(a_world(2, 0, 1))
    tells(2, 101, first=101, samples=8)
    assert (node.value("steps_total"), node.value("samples_total")) == (4, 32)
    assert node.value("step") == 101
    assert node.value("scalar", "loss") == pytest.approx(10.1)


def test_steps_that_are_numbered_backwards_are_no_fall_of_a_counter() -> None:
    """A script may say anything."""
    node = Node()
    node.enters(a_world(1, 0))
    for step in (10, 3, 4):
        node.meter.count_progress(Rank(0), Generation(1), Progressed(step=step, first_step=10))
    assert node.value("steps_total") == 2


def test_waits_of_steps_add_up_over_incarnations_and_lateness_is_rank_0s_word() -> None:
    """Each incarnation measures from 0; the sum must not fall. An ended job has no late node."""
    first, second = Node(0), Node(1)
    for node in (first, second):
        node.enters(a_world(1, 0, 1))
        node.meter.measure(step_wait_s=lambda: 5.0, late_ratio=lambda: 0.3)
    assert (first.value("late_ratio"), second.value("late_ratio")) == (0.3, None)
    first.meter.measure(step_wait_s=lambda: 2.0, late_ratio=float)
    assert (first.value("step_wait_seconds_total"), first.value("late_ratio")) == (7.0, 0.0)
    assert second.value("step_wait_seconds_total") == 5.0
    first.meter.measure(step_wait_s=float, late_ratio=lambda: 0.3)
    first.hears_status(Phase.FAILED)
    first.meter.rest(keeps_slots=False)
    assert first.value("late_ratio") == 0.0

"""Jobs that call `elasticd.run`: stories, seeds that once broke a rule, and random schedules."""

import os

import pytest

from elasticd.records.failure import SLOT_LIMIT
from elasticd.records.ids import NodeId, Slot
from elasticd.records.job import JobSpec, Limits
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import World
from tests.sim.in_process import InProcess, Script
from tests.sim.in_process_schedule import play
from tests.sim.run import play_in_process, play_many
from tests.sim.schedule import spec_of
from tests.sim.simulation import Simulation
from tests.sim.steps import Steps
from tests.sim.test_scenarios import node, trains, until_next
from tests.sim.trainee import Trainee
from tests.sim.training import Bug
from tests.sim.worker import Raised

WAITING = Phase.WAITING
FIRST = 3_000_000
COUNT = int(os.environ.get("ELASTICD_IN_PROCESS_SCHEDULES", "300"))

SEEDS = {
    12: "a lone node that is drained hands its state over to the spare that is ready",
    31: "a join at the very end left its newcomer waiting, and the others' exits uncounted",
    49: "processes that had finished in a world which failed were never replaced",
    66: "a drain cut short what the script does after elasticd.run",
    270: "a drain while the scripts wound down made a world of spares, which began from nothing",
    415: "a waiting job did not see that its processes, which live on, had left their world",
    2013: "a drain of the only node with the state did not wait for the newcomer to have it",
    2843: "a watch that missed a record had the job succeed without one of its ranks",
    2866: "a rank that hung before the step at which a join begins was seen by nobody",
    5035: "a standby with the state was passed over for a process that had none",
    5174: "a world agreed on before anybody had attached named later processes than came",
    20259: "a node that finished and left was taken for lost, as a watch had missed its result",
    502048: "ranks that trained and were lost in their wind-down passed for newcomers",
    505252: "a job that needed a node which the others could not reach never tried it again",
    502598: "a node was left out because a dead one did not answer it",
    512197: "one rank raised, the pool killed the others, and all were said to have raised",
    202923: "a process that had left in good order and was to come back was waited for",
    703775: "a hung process of an earlier incarnation kept its successor's from every world",
    703934: "as 703775, with the only process that had the state",
    7002193: "a slot whose processes died twice in a generation was given the second one's number",
    30003630: "processes that a smaller world had left out were waited for when all had finished",
    50009897: "a proposer that was started anew took those for new who had trained",
    70010378: "a node began from nothing: the other's record did not say yet that it trains",
    80009637: "a planned change took a node that trained for one that only starts",
    80020664: "a record of before the process was replaced hid that the process trains",
    80023756: "as 80020664, with a pool that is started anew",
    80024452: "as 80009637, after a node was left out",
    80027671: "the time to be heard ran out while etcd was away",
    100000171: "the time to be heard ran out before anybody was missed",
    100026520: "a node stayed for the state of its hung process, and a standby had it",
    100029556: "one error, told of late, was taken for two at the same line",
    100039263: "an agreed step was given up a moment after a pause that outlasted its time",
    161006311: "a lost event hid a world for twelve seconds, in which its ranks trained without it",
    161025056: "after an outage nobody knew that a standby has the state",
    790003161: "a node was drained twice at the end, and its second goodbye hid its rank's exit 0",
    20442: "a drain below min, at the end, made all nodes begin from nothing",
}


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed-{seed}")
def test_seed_that_once_broke_a_rule(seed: int) -> None:
    """See SEEDS for what each of them found."""
    play(seed)


@pytest.mark.timeout(900)
def test_no_schedule_breaks_a_rule_or_leaves_a_job_hanging() -> None:
    """More of them by command: `python -m tests.sim.run --in-process --count 10000`."""
    outcomes, broken = play_many(FIRST, COUNT, os.cpu_count() or 1, play_in_process)
    assert not broken, f"{len(broken)} of {COUNT} broken, the first: {broken[0][:2000]}"
    assert {str(o.phase) for o in outcomes} == {"succeeded", "failed", "stopped"}
    assert sum(o.generations for o in outcomes) > 1.5 * len(outcomes)


@pytest.mark.parametrize("seed", range(4))
def test_killed_worker_costs_its_peers_no_more_than_the_step_in_flight(seed: int) -> None:
    """The others keep their processes; the replacement joins when it is ready."""
    sim = begun(seed, spec_of(min_nodes=2, max_nodes=3), 3)
    sim.nodes[node(2)].kill_worker(one_worker(sim, 2))
    world = until_next(sim, 1.0, nodes=2)
    assert world.reason is Reason.WORKER_KILLED and numbers(world) == {1}
    world = until_next(sim, 4.0, nodes=3)
    assert world.reason is Reason.JOINED and world.at_step is not None
    assert numbers(world) == {1, 2}
    assert steps(sim).restarts == 0 and steps(sim).lost <= 1
    assert len(sim.history.worlds) == 3


@pytest.mark.parametrize("seed", range(4))
def test_join_and_drain_lose_no_step(seed: int) -> None:
    """Everybody leaves at the step that was agreed on."""
    sim = begun(seed, spec_of(min_nodes=1, max_nodes=3), 3)
    sim.drain(node(2))
    until_next(sim, 1.0, nodes=2)
    agent = sim.nodes[node(2)].agent
    sim.run(3.0)
    assert agent is not None and agent.state is None
    sim.nodes[node(2)].kill_agent()
    sim.nodes[node(2)].start_agent()
    until_next(sim, 5.0, nodes=3)
    assert (steps(sim).lost, steps(sim).restarts) == (0, 0)
    assert all(w.at_step is not None for w in sim.history.worlds[1:])


@pytest.mark.parametrize("seed", range(4))
def test_frozen_worker_is_replaced(seed: int) -> None:
    """Its agent misses its heartbeat, says so and kills it."""
    sim = begun(seed, spec_of(min_nodes=1, max_nodes=2), 2)
    job(sim).freeze(one_worker(sim, 1))
    world = until_next(sim, 2.0, nodes=1)
    assert world.reason is Reason.WORKER_HUNG
    until_next(sim, 5.0, nodes=2)
    assert steps(sim).restarts == 0


@pytest.mark.parametrize("delay_s", [0.3, 1.0, 1.5])
@pytest.mark.parametrize("slots", [1, 2])
def test_rank_that_raised_is_the_cause_though_its_word_comes_late(
    slots: int, delay_s: float
) -> None:
    """Its peers' broken collectives are told long before it: one change, and it has the name."""
    for seed in range(3):
        sim = begun(seed, spec_of(min_nodes=2, max_nodes=3, workers_per_node=slots), 3, slots=slots)
        job(sim).word_delay_s = delay_s
        job(sim).raises(one_worker(sim, 1), Raised())
        world = until_next(sim, delay_s + 0.2)
        assert world.reason is Reason.WORKER_FAILED
        assert world.culprit is not None and world.culprit.node == node(1)
        assert steps(sim).restarts == 0


@pytest.mark.parametrize("seed", range(4))
def test_rank_whose_word_never_comes_is_waited_for_no_longer_than_the_bound(seed: int) -> None:
    """A change of world without a name is asked for then."""
    sim = begun(seed, spec_of(min_nodes=2, max_nodes=3), 3)
    job(sim).word_delay_s = 60.0
    job(sim).raises(one_worker(sim, 1), Raised())
    assert sim.run(2.3, until=lambda: len(sim.history.worlds) > 1)
    assert sim.history.worlds[-1].reason is Reason.COLLECTIVE_BROKEN


@pytest.mark.parametrize("seed", range(4))
def test_ranks_that_wait_on_their_devices_are_not_waited_for(seed: int) -> None:
    """Over NCCL a rank sees nothing of a collective that broke, so it has no word to give."""
    sim = begun(seed, spec_of(min_nodes=2, max_nodes=3), 3, backend="cpu:gloo,cuda:nccl")
    lost = one_worker(sim, 1)
    group = lost.group
    assert group is not None
    lost.broke(group)
    world = until_next(sim, 0.5)
    assert (world.reason, world.culprit) == (Reason.COLLECTIVE_BROKEN, None)
    assert steps(sim).restarts == 0


@pytest.mark.parametrize("seed", range(4))
def test_rank_that_others_wait_for_is_the_one_that_is_replaced(seed: int) -> None:
    """All of them stall; the least sequence names the culprit."""
    sim = begun(seed, spec_of(min_nodes=1, max_nodes=3, progress_timeout_s=3.0), 3)
    one_worker(sim, 1).is_stuck = True
    world = until_next(sim, 6.0)
    assert world.reason is Reason.WORKER_HUNG
    assert world.culprit is not None and world.culprit.node == node(1)


@pytest.mark.parametrize("seed", range(20))
def test_rank_that_hung_costs_nobody_else(seed: int) -> None:
    """The only other one waited for it just as long, and goes on alone with the state."""
    sim = begun(seed, spec_of(min_nodes=1, max_nodes=2, progress_timeout_s=3.0), 2)
    one_worker(sim, 1).is_stuck = True
    until_next(sim, 6.0, nodes=1)
    until_next(sim, 6.0, nodes=2)
    reasons = [world.reason for world in sim.history.worlds[1:]]
    assert reasons == [Reason.WORKER_HUNG, Reason.JOINED]
    assert steps(sim).restarts == 0


@pytest.mark.parametrize("seed", range(4))
def test_pause_of_minutes_is_no_hang_and_a_join_waits_for_its_end(seed: int) -> None:
    """Not even beyond the formation's deadline."""
    sim = begun(seed, spec_of(min_nodes=1, max_nodes=2, progress_timeout_s=3.0), 1, spare=1)
    job(sim).pauses[steps(sim).newest + 3] = 120.0
    sim.nodes[node(1)].start_agent()
    sim.run(60.0)
    assert len(sim.history.worlds) <= 2
    sim.run(80.0, until=lambda: trains(sim, nodes=2))
    assert trains(sim, nodes=2) and len(sim.history.worlds) == 2
    assert (steps(sim).lost, steps(sim).restarts) == (0, 0)


@pytest.mark.parametrize("seed", range(4))
def test_replacements_that_die_at_their_start_disturb_nobody(seed: int) -> None:
    """Each waits longer than the one before, and no world names it."""
    sim = begun(seed, spec_of(min_nodes=1, max_nodes=2), 2, steps=100_000)
    sim.nodes[node(1)].is_poisoned = True
    sim.nodes[node(1)].kill_worker(one_worker(sim, 1))
    sim.run(100.0)
    assert len(sim.history.worlds) == 2
    agent = sim.nodes[node(1)].agent
    assert (
        agent is not None
        and agent.state is not None
        and agent.state.slot_failures[Slot(0)].count <= 8
    )


@pytest.mark.parametrize("seed", range(4))
def test_node_that_its_peers_cannot_reach_is_done_without(seed: int) -> None:
    """It reaches etcd all the time; it comes back when the network does, and keeps its state."""
    sim = begun(seed, spec_of(min_nodes=1, max_nodes=3), 3, steps=100_000)
    sim.silent.add(node(2))
    assert sim.run(60.0, until=lambda: trains(sim, nodes=2))
    worlds = len(sim.history.worlds)
    sim.run(60.0)
    assert trains(sim, nodes=2) and len(sim.history.worlds) == worlds, "nobody tries in vain"
    sim.silent.clear()
    assert sim.run(60.0, until=lambda: trains(sim, nodes=3))
    assert steps(sim).restarts == 0
    assert [w.reason for w in sim.history.worlds if w.reason is Reason.CUT_OFF]


@pytest.mark.parametrize("seed", range(4))
def test_slot_in_which_nothing_works_does_not_end_the_job(seed: int) -> None:
    """It is tried ever more seldom, and what it costs is not charged to the script."""
    limits = Limits(user_error=1, refill_after_steps=1_000_000)
    spec = spec_of(min_nodes=1, max_nodes=2, limits=limits)
    sim = simulation(seed, spec, 2, Script(steps=100_000, bad_node=node(1)))
    sim.run(100.0)
    assert sim.status is not None and sim.status.phase is Phase.RUNNING
    assert sim.status.budget.user_error == 1 and 4 <= sim.status.budget.node_loss <= 8
    assert len(sim.history.worlds) <= 20
    assert steps(sim).lost == 0 and steps(sim).restarts == 0


@pytest.mark.parametrize("seed", range(4))
def test_slot_whose_processes_are_killed_is_left_out_in_the_end(seed: int) -> None:
    """However much the others have trained meanwhile: that makes its record no better."""
    sim = begun(seed, spec_of(min_nodes=1, max_nodes=2), 2, steps=1_000_000)
    killed_s = []
    for _ in range(SLOT_LIMIT):
        assert sim.run(90.0, until=lambda: trains(sim, nodes=2))
        sim.run(0.3)
        killed_s.append(sim.clock.now_s)
        sim.nodes[node(1)].kill_worker(one_worker(sim, 1))
    assert killed_s[-1] - killed_s[0] > 60.0, "each waits longer than the one before"
    sim.run(5.0)
    worlds = len(sim.history.worlds)
    sim.run(300.0)
    assert trains(sim, nodes=1) and len(sim.history.worlds) == worlds
    agent = sim.nodes[node(1)].agent
    assert agent is not None and agent.state is not None and agent.state.member_sent is not None
    assert agent.state.member_sent.given_up == (Slot(0),)
    assert steps(sim).restarts == 0


@pytest.mark.parametrize("is_local", [True, False])
def test_local_run_ends_where_too_few_slots_are_left(is_local: bool) -> None:
    """Nobody else will come; daemons wait for another node instead."""
    sim = begun(0, spec_of(min_nodes=2, max_nodes=2, is_local=is_local), 2, steps=1_000_000)
    for _ in range(SLOT_LIMIT):
        assert sim.run(90.0, until=lambda: trains(sim, nodes=2))
        sim.run(0.3)
        sim.nodes[node(1)].kill_worker(one_worker(sim, 1))
    sim.run(10.0)
    assert sim.status is not None
    assert sim.status.phase is (Phase.FAILED if is_local else Phase.WAITING)
    assert "left out, as process after process ended there: node-1" in sim.status.message


@pytest.mark.parametrize("reason", [Reason.DRAINED, Reason.NODE_LEFT])
@pytest.mark.parametrize("seed", range(4))
def test_only_node_that_leaves_hands_its_state_to_the_spare(seed: int, reason: Reason) -> None:
    """Although the job may have no more than one node: for a step or two it has both."""
    sim = begun(seed, spec_of(min_nodes=1, max_nodes=1), 1, spare=1)
    sim.nodes[node(1)].start_agent()
    sim.run(3.0)
    sim.drain(node(0), reason)
    assert sim.run(10.0, until=lambda: not sim.history.worlds[-1].node(node(0)))
    assert sim.run(5.0, until=lambda: trains(sim, nodes=1))
    assert [len(world.nodes) for world in sim.history.worlds] == [1, 2, 1]
    assert (steps(sim).lost, steps(sim).restarts) == (0, 0)


@pytest.mark.parametrize("seed", range(4))
def test_drained_node_trains_until_another_is_prepared(seed: int) -> None:
    """Whoever drains a node has the time that imports take; the training has no pause."""
    sim = begun(seed, spec_of(min_nodes=1, max_nodes=1), 1, spare=1)
    sim.nodes[node(1)].pool_delay_s = (8.0, 9.0)
    sim.nodes[node(1)].start_agent()
    sim.run(0.5)
    sim.drain(node(0))
    before = steps(sim).newest
    sim.run(5.0)
    assert trains(sim, nodes=1) and steps(sim).newest > before + 50
    assert sim.run(20.0, until=lambda: not sim.history.worlds[-1].node(node(0)))
    assert (steps(sim).lost, steps(sim).restarts) == (0, 0)


@pytest.mark.parametrize("seed", range(4))
def test_node_that_goes_by_itself_waits_for_one_that_is_about_to_be_prepared(seed: int) -> None:
    """As in a rolling update: the pod before is ready, and its process still imports."""
    spec = spec_of(min_nodes=1, max_nodes=2, shutdown_timeout_s=30.0)
    sim = begun(seed, spec, 2)
    sim.drain(node(0), Reason.NODE_LEFT)
    assert sim.run(40.0, until=lambda: sim.nodes[node(0)].agent is None)
    sim.nodes[node(0)].pool_delay_s = (8.0, 9.0)
    sim.nodes[node(0)].start_agent()
    sim.run(1.0)
    sim.drain(node(1), Reason.NODE_LEFT)
    before = steps(sim).newest
    assert sim.run(15.0, until=lambda: names(sim.history.worlds[-1]) == {node(0)})
    assert steps(sim).newest > before + 50
    assert sim.run(5.0, until=lambda: trains(sim, nodes=1))
    assert (steps(sim).lost, steps(sim).restarts) == (0, 0)


@pytest.mark.parametrize("is_drained_first", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_node_that_goes_by_itself_waits_for_a_part_of_its_grace(
    seed: int, is_drained_first: bool
) -> None:
    """Also where it was drained before, which alone would have waited for as long as it takes."""
    spec = spec_of(min_nodes=1, max_nodes=1, shutdown_timeout_s=30.0)
    sim = begun(seed, spec, 1, spare=1)
    sim.nodes[node(1)].pool_delay_s = (80.0, 90.0)
    sim.nodes[node(1)].start_agent()
    sim.run(1.0)
    if is_drained_first:
        sim.drain(node(0))
        sim.run(20.0)
        assert trains(sim, nodes=1)
    sim.drain(node(0), Reason.NODE_LEFT)
    sim.run(10.0)
    assert trains(sim, nodes=1) and sim.nodes[node(0)].agent is not None
    assert sim.run(40.0, until=lambda: sim.nodes[node(0)].agent is None)
    assert sim.status is not None and sim.status.phase is Phase.WAITING


@pytest.mark.parametrize("reason", [Reason.DRAINED, Reason.NODE_LEFT])
@pytest.mark.parametrize("seed", range(4))
def test_node_that_leaves_a_job_that_waits_keeps_the_state_for_those_who_come(
    seed: int, reason: Reason
) -> None:
    """As in a rolling update of a job that cannot train on one node."""
    spec = spec_of(min_nodes=2, max_nodes=2, shutdown_timeout_s=30.0)
    sim = begun(seed, spec, 2, spare=1)
    sim.nodes[node(1)].kill_agent()
    assert sim.run(20.0, until=lambda: sim.status is not None and sim.status.phase is WAITING)
    sim.run(2.0)
    for index in (1, 2):
        sim.nodes[node(index)].pool_delay_s = (8.0, 9.0)
        sim.nodes[node(index)].start_agent()
    sim.run(1.0)
    before = steps(sim).newest
    sim.drain(node(0), reason)
    assert sim.run(20.0, until=lambda: names(sim.history.worlds[-1]) == {node(1), node(2)})
    assert sim.run(5.0, until=lambda: trains(sim, nodes=2) and steps(sim).newest > before)
    assert steps(sim).restarts == 0


@pytest.mark.parametrize("seed", range(4))
def test_node_that_leaves_a_job_that_waits_goes_in_time_if_nobody_comes(seed: int) -> None:
    spec = spec_of(min_nodes=2, max_nodes=2, shutdown_timeout_s=30.0)
    sim = begun(seed, spec, 2)
    sim.nodes[node(1)].kill_agent()
    assert sim.run(20.0, until=lambda: sim.status is not None and sim.status.phase is WAITING)
    sim.run(2.0)
    sim.nodes[node(1)].pool_delay_s = (80.0, 90.0)
    sim.nodes[node(1)].start_agent()
    sim.run(1.0)
    sim.drain(node(0), Reason.NODE_LEFT)
    sim.run(10.0)
    assert one_worker(sim, 0).is_alive and sim.nodes[node(0)].agent is not None
    assert sim.run(40.0, until=lambda: sim.nodes[node(0)].agent is None)


@pytest.mark.parametrize("is_scaled_first", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_scale_while_all_who_have_the_state_leave_finds_somebody_to_copy_to(
    seed: int, is_scaled_first: bool
) -> None:
    """One of them hands it to the spare, although one node is wanted and the spare is that one."""
    sim = begun(seed, spec_of(min_nodes=1, max_nodes=2), 2, spare=1)
    sim.nodes[node(2)].start_agent()
    sim.run(3.0)
    if is_scaled_first:
        sim.want(1)
    sim.drain(node(0))
    sim.drain(node(1))
    if not is_scaled_first:
        sim.want(1)
    assert sim.run(10.0, until=lambda: names(sim.history.worlds[-1]) == {node(2)})
    assert sim.run(5.0, until=lambda: trains(sim, nodes=1))
    assert (steps(sim).lost, steps(sim).restarts) == (0, 0)


@pytest.mark.parametrize("seed", range(4))
def test_scale_keeps_those_who_have_the_state_and_not_the_oldest(seed: int) -> None:
    """The node that came first was prepared when the others trained already: it has nothing."""
    spec = spec_of(min_nodes=1, max_nodes=2)
    sim = simulation(seed, spec, 3, Script(steps=2000))
    sim.nodes[node(0)].pool_delay_s = (8.0, 9.0)
    assert sim.run(10.0, until=lambda: steps(sim).newest >= 5)
    sim.run(9.0)
    assert names(sim.history.worlds[-1]) == {node(1), node(2)}
    sim.want(1)
    world = until_next(sim, 2.0, nodes=1)
    assert world.reason is Reason.SCALED and not world.node(node(0))
    assert sim.run(5.0, until=lambda: trains(sim, nodes=1))
    assert (steps(sim).lost, steps(sim).restarts) == (0, 0)


@pytest.mark.parametrize("seed", range(4))
def test_same_error_on_all_ranks_fails_the_job_at_once(seed: int) -> None:
    """No restart loop for a bug of the script."""
    spec = spec_of(min_nodes=2, max_nodes=2, limits=Limits(user_error=3))
    bug = Bug(after_s=0.1)
    sim = simulation(seed, spec, 2, Script(steps=1000, raises_at=5), bug=bug)
    assert sim.run(20.0, until=lambda: sim.is_over)
    assert sim.status is not None and sim.status.phase is Phase.FAILED
    assert sim.status.reason is Reason.REPEATED_ERROR and len(sim.history.worlds) == 1


@pytest.mark.parametrize("seed", range(4))
def test_rank_that_is_alone_with_its_error_gets_another_try(seed: int) -> None:
    """One of one is not all of them: the second time at the same step it is the script's."""
    spec = spec_of(min_nodes=1, max_nodes=1, limits=Limits(user_error=3))
    sim = simulation(seed, spec, 1, Script(steps=1000, raises_at=5), bug=Bug(after_s=0.1))
    assert sim.run(30.0, until=lambda: sim.is_over)
    assert sim.status is not None and sim.status.reason is Reason.REPEATED_ERROR
    assert len(sim.history.worlds) == 2


@pytest.mark.parametrize("seed", range(4))
def test_join_while_the_scripts_wind_down_begins_nothing_anew(seed: int) -> None:
    """`elasticd.run` returned everywhere, and what comes after it takes a while."""
    script = Script(steps=60, epilogue_s=(4.0, 6.0))
    sim = simulation(seed, spec_of(min_nodes=1, max_nodes=3), 3, script, spare=1)
    sim.run(20.0, until=lambda: any(w.has_trained for w in job(sim).workers))
    sim.nodes[node(2)].start_agent()
    assert sim.run(20.0, until=lambda: sim.is_over)
    assert sim.status is not None and sim.status.phase is Phase.SUCCEEDED
    assert len(sim.history.worlds) == 1 and steps(sim).restarts == 0


def begun(
    seed: int,
    spec: JobSpec,
    nodes: int,
    *,
    spare: int = 0,
    steps: int = 2000,
    slots: int = 1,
    backend: str = "gloo",
) -> Simulation:
    """A cluster that has made a few steps; `spare` more nodes are there, but off."""
    sim = simulation(seed, spec, nodes + spare, Script(steps=steps), spare=spare, slots=slots)
    job(sim).backend = backend
    reached = job(sim).steps
    assert sim.run(10.0, until=lambda: reached.newest >= 5), "no steps are made"
    assert trains(sim, nodes=nodes) and len(sim.history.worlds) == 1
    return sim


def simulation(
    seed: int,
    spec: JobSpec,
    nodes: int,
    script: Script,
    *,
    spare: int = 0,
    bug: Bug | None = None,
    slots: int = 1,
) -> Simulation:
    sim = Simulation(seed=seed, spec=spec, slots=[slots] * nodes, script=script, bug=bug)
    sim.submit()
    for index in range(nodes - spare):
        sim.nodes[node(index)].start_agent()
    return sim


def job(sim: Simulation) -> InProcess:
    assert isinstance(sim.training, InProcess)
    return sim.training


def steps(sim: Simulation) -> Steps:
    return job(sim).steps


def one_worker(sim: Simulation, index: int) -> Trainee:
    worker = next(iter(sim.nodes[node(index)].workers.values()))
    assert isinstance(worker, Trainee)
    return worker


def names(world: World) -> set[NodeId]:
    return {each.node for each in world.nodes}


def numbers(world: World) -> set[int]:
    """The nonces in it: a process keeps its own."""
    return {worker.nonce for each in world.nodes for worker in each.workers}

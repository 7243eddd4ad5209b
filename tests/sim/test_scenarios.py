"""Stories with one fault each: what the rendezvous does about it, and how soon."""

import pytest

from elasticd.records.ids import NodeId
from elasticd.records.job import JobSpec, Limits
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import World
from elasticd.rendezvous.journal import replay
from tests.sim.etcd import Delete
from tests.sim.lease import TTL_S
from tests.sim.schedule import spec_of
from tests.sim.simulation import Simulation
from tests.sim.training import Bug
from tests.sim.worker import Raised

SEEDS = range(8)


def started(
    seed: int, spec: JobSpec, nodes: int, work_s: float = 60.0, **more: object
) -> Simulation:
    """A cluster of `nodes` whose first world trains."""
    sim = booted(seed, spec, nodes, work_s, **more)
    assert sim.run(5.0, until=lambda: trains(sim)), "no first world"
    assert len(sim.history.worlds) == 1
    sim.run(0.5)
    return sim


def booted(seed: int, spec: JobSpec, nodes: int, work_s: float, **more: object) -> Simulation:
    sim = Simulation(seed=seed, spec=spec, slots=[1] * nodes, work_s=work_s, **more)  # type: ignore[arg-type]
    sim.submit()
    for node in sim.nodes.values():
        node.start_agent()
    return sim


def trains(sim: Simulation, nodes: int | None = None) -> bool:
    """The standing world's ranks all run together."""
    if not sim.history.worlds:
        return False
    world = sim.history.worlds[-1]
    run = sim.training.runs.get(world.generation)
    is_all = nodes is None or len(world.nodes) == nodes
    return is_all and run is not None and run.since_s is not None


def until_next(sim: Simulation, limit_s: float, nodes: int | None = None) -> World:
    """Wait for a later world to train; the virtual time it took is at most `limit_s`."""
    generation = sim.history.worlds[-1].generation
    assert sim.run(
        limit_s,
        until=lambda: sim.history.worlds[-1].generation > generation and trains(sim, nodes),
    ), f"no next world within {limit_s} s; status {sim.status!r}"
    return sim.history.worlds[-1]


def node(index: int) -> NodeId:
    return NodeId(f"node-{index}")


@pytest.mark.parametrize("seed", SEEDS)
def test_job_succeeds_when_all_ranks_of_one_generation_exit_with_0(seed: int) -> None:
    """Nothing goes wrong: one generation, and the job is done."""
    sim = started(seed, spec_of(min_nodes=3, max_nodes=3), 3, work_s=1.0)
    assert sim.run(5.0, until=lambda: sim.is_over)
    assert sim.status is not None and sim.status.phase is Phase.SUCCEEDED
    assert len(sim.history.worlds) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_worker_costs_one_generation_and_less_than_half_a_second(seed: int) -> None:
    """P1: the same nodes go on; the echoes of the other ranks cost nothing more."""
    sim = started(seed, spec_of(min_nodes=3, max_nodes=3), 3)
    victim = sim.nodes[node(seed % 3)]
    victim.kill_worker(next(iter(victim.workers.values())))
    world = until_next(sim, 1.0)
    assert world.generation == 2 and world.reason is Reason.WORKER_KILLED
    assert world.culprit is not None and world.culprit.node == victim.name
    sim.run(3.0)
    assert len(sim.history.worlds) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_dead_agent_is_replaced_as_soon_as_its_peers_find_nobody(seed: int) -> None:
    """P8: its kernel closes the connections; nobody waits for the lease."""
    sim = started(seed, spec_of(min_nodes=2, max_nodes=4), 4)
    sim.nodes[node(seed % 4)].kill_agent()
    world = until_next(sim, 1.0, nodes=3)
    assert world.reason is Reason.NODE_DEAD and len(sim.history.worlds) == 2
    assert world.lost == (node(seed % 4),)
    assert sim.status is not None and "whose agent died" in sim.status.message


@pytest.mark.parametrize("seed", SEEDS)
def test_silent_node_is_replaced_when_its_lease_has_run_out(seed: int) -> None:
    """A machine without power says nothing: TTL + 1 s."""
    sim = started(seed, spec_of(min_nodes=2, max_nodes=4), 4)
    sim.nodes[node(seed % 4)].kill_agent(is_power_off=True)
    world = until_next(sim, TTL_S + 1.0, nodes=3)
    assert world.reason is Reason.NODE_LOST and len(sim.history.worlds) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_three_lowest_ranks_may_die_at_once(seed: int) -> None:
    """All proposers are gone: the oldest of the others take over."""
    sim = started(seed, spec_of(min_nodes=2, max_nodes=6), 6)
    for proposer in sim.history.worlds[-1].nodes[:3]:
        sim.nodes[proposer.node].kill_agent(is_power_off=seed % 2 == 0)
    until_next(sim, TTL_S + 1.5, nodes=3)


@pytest.mark.parametrize("seed", SEEDS)
def test_goodbye_is_answered_within_a_second(seed: int) -> None:
    """K1: an agent that is told to end leaves the others a world without it."""
    sim = started(seed, spec_of(min_nodes=2, max_nodes=4), 4)
    sim.drain(node(seed % 4), Reason.PREEMPTED)
    world = until_next(sim, 3.0, nodes=3)
    assert world.reason is Reason.PREEMPTED and len(sim.history.worlds) == 2
    sim.run(2.5)  # A worker may take all of its grace.
    assert sim.nodes[node(seed % 4)].agent is None


@pytest.mark.parametrize("seed", SEEDS)
def test_drained_node_stays_away(seed: int) -> None:
    """It said goodbye for good: its agent lives on without a part in the job."""
    sim = started(seed, spec_of(min_nodes=2, max_nodes=3), 3)
    sim.drain(node(0))
    until_next(sim, 3.0, nodes=2)
    sim.run(5.0)
    agent = sim.nodes[node(0)].agent
    assert agent is not None and agent.state is None and len(sim.history.worlds) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_node_that_leaves_below_min_stops_the_others_until_one_comes_back(seed: int) -> None:
    """Rule 8: below min the job waits, says for whom, and goes on by itself; rule 4 with it."""
    sim = started(seed, spec_of(min_nodes=2, max_nodes=2), 2)
    sim.nodes[node(1)].kill_agent()
    assert sim.run(3.0, until=lambda: sim.status is not None and sim.status.phase is Phase.WAITING)
    assert sim.status is not None and "node-1" in sim.status.message
    assert "1 more node" in sim.status.message
    assert sim.status.budget.node_loss == 1
    sim.run(2.0)
    assert not [w for w in sim.training.alive() if w.is_alive], "a lone worker goes on"
    sim.nodes[node(1)].start_agent()
    world = until_next(sim, 4.0, nodes=2)
    assert world.reason is Reason.NODE_DEAD, "it keeps the reason that the world before ended for"
    assert sim.status is not None and sim.status.budget.node_loss == 1, "charged once"


@pytest.mark.parametrize("seed", SEEDS)
def test_joins_that_come_close_together_become_one_world(seed: int) -> None:
    """Debounced: three newcomers, one generation."""
    spec = spec_of(min_nodes=1, max_nodes=4)
    sim = Simulation(seed=seed, spec=spec, slots=[1] * 4, work_s=60.0)
    sim.submit()
    for each in sim.nodes.values():
        each.pool_delay_s = (0.1, 0.15)
    sim.nodes[node(0)].start_agent()
    assert sim.run(3.0, until=lambda: trains(sim))
    sim.run(1.0)
    for index in (1, 2, 3):
        sim.nodes[node(index)].start_agent()
    world = until_next(sim, 4.0, nodes=4)
    assert world.generation == 2 and world.reason is Reason.JOINED
    assert world.nodes[0].node == node(0), "rank 0 stays with a survivor"


@pytest.mark.parametrize("seed", SEEDS)
def test_join_does_not_disturb_a_formation(seed: int) -> None:
    """P11: the newcomer is taken in when the world has formed."""
    spec = spec_of(min_nodes=2, max_nodes=3)
    sim = Simulation(seed=seed, spec=spec, slots=[1] * 3, work_s=60.0)
    sim.submit()
    for index in (0, 1):
        sim.nodes[node(index)].start_delay_s = (2.0, 2.1)
        sim.nodes[node(index)].start_agent()
    assert sim.run(3.0, until=lambda: bool(sim.history.worlds))
    sim.nodes[node(2)].start_agent()
    assert sim.run(4.0, until=lambda: trains(sim, nodes=2))
    until_next(sim, 5.0, nodes=3)
    assert len(sim.history.worlds) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_scaled_down_node_stands_by_and_is_taken_back(seed: int) -> None:
    """Its old process is still being stopped when it is chosen again: the number is a new one."""
    sim = started(seed, spec_of(min_nodes=1, max_nodes=3), 3)
    sim.want(2)
    assert sim.run(2.0, until=lambda: len(sim.history.worlds) == 2)
    sim.want(3)
    until_next(sim, 6.0, nodes=3)
    reasons = [world.reason for world in sim.history.worlds]
    assert reasons == [Reason.FIRST_WORLD, Reason.SCALED, Reason.JOINED]


@pytest.mark.parametrize("seed", SEEDS)
def test_stop_ends_the_job_and_everybody_leaves(seed: int) -> None:
    """`elasticd stop`."""
    sim = started(seed, spec_of(min_nodes=1, max_nodes=3), 3)
    sim.want(is_stop=True)
    assert sim.run(2.0, until=lambda: sim.is_over)
    assert sim.status is not None and sim.status.phase is Phase.STOPPED
    sim.run(4.0)
    assert all(n.agent is not None and n.agent.state is None for n in sim.nodes.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_user_error_ends_the_job_when_its_budget_is_spent(seed: int) -> None:
    """I11: with three restarts allowed there are four generations, then FAILED with the culprit."""
    spec = spec_of(min_nodes=2, max_nodes=2, limits=Limits(user_error=3))
    sim = booted(seed, spec, 2, 60.0, bug=Bug(after_s=0.1))
    assert sim.run(30.0, until=lambda: sim.is_over)
    status = sim.status
    assert status is not None and status.phase is Phase.FAILED
    assert status.reason is Reason.BUDGET_SPENT and len(sim.history.worlds) == 4
    assert status.failure is not None and status.failure.where == "/x/train.py:1"


@pytest.mark.parametrize("seed", SEEDS)
def test_same_error_without_a_group_twice_ends_the_job(seed: int) -> None:
    """A script that cannot even start is not restarted for an hour."""
    spec = spec_of(min_nodes=2, max_nodes=2, limits=Limits(user_error=-1))
    sim = booted(seed, spec, 2, 60.0, bug=Bug())
    assert sim.run(30.0, until=lambda: sim.is_over)
    assert sim.status is not None and sim.status.reason is Reason.REPEATED_ERROR
    assert len(sim.history.worlds) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_stopped_agent_comes_back_as_a_new_incarnation(seed: int) -> None:
    """P9: SIGSTOP for longer than the TTL: shut out, withdrawn, and taken in again."""
    sim = started(seed, spec_of(min_nodes=2, max_nodes=3), 3)
    agent = sim.nodes[node(seed % 3)].agent
    assert agent is not None
    before = agent.incarnation
    agent.is_stopped = True
    until_next(sim, TTL_S + 1.5, nodes=2)
    sim.run(2.0)
    agent.go_on()
    world = until_next(sim, 10.0, nodes=3)
    found = world.node(node(seed % 3))
    assert found is not None and found.incarnation != before


@pytest.mark.parametrize("seed", SEEDS)
def test_etcd_away_changes_no_world(seed: int) -> None:
    """E3: all of etcd is gone for a while, the world trains on and is the same afterwards."""
    sim = started(seed, spec_of(min_nodes=2, max_nodes=3), 3)
    sim.etcd.is_down = True
    sim.run(9.0)
    assert trains(sim)
    sim.etcd.come_back()
    sim.run(8.0)
    assert trains(sim) and len(sim.history.worlds) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_world_of_strangers_waits_for_the_isolation_limit(seed: int) -> None:
    """Rule 4: the only node of the world vanished and may train on without etcd."""
    spec = spec_of(min_nodes=1, max_nodes=1, isolation_limit_s=10.0)
    sim = started(seed, spec, 2)
    holder = sim.history.worlds[-1].nodes[0].node
    sim.nodes[holder].link.is_cut_from_etcd = True
    sim.silent.add(holder)
    sim.run(TTL_S + 9.0)
    assert len(sim.history.worlds) == 1, "the old world may still run"
    assert sim.status is not None and "vanished without a goodbye" in sim.status.message
    until_next(sim, 10.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_newcomer_to_a_world_that_never_formed_proves_nothing_about_the_one_before(
    seed: int,
) -> None:
    """Rule 4 over two worlds: its only survivor never came to stop the old workers."""
    spec = spec_of(min_nodes=2, max_nodes=4, isolation_limit_s=20.0, formation_timeout_s=8.0)
    sim = Simulation(seed=seed, spec=spec, slots=[1] * 6, work_s=60.0)
    sim.submit()
    for index in range(4):
        sim.nodes[node(index)].start_agent()
    assert sim.run(5.0, until=lambda: trains(sim, nodes=4))
    for index in (4, 5):
        sim.nodes[node(index)].start_agent()
    sim.run(2.0)
    first = [n.node for n in sim.history.worlds[-1].nodes]
    for name in first[:3]:
        sim.nodes[name].link.is_cut_from_etcd = True
    sim.run(2.5)
    stopped = sim.nodes[first[3]].agent
    assert stopped is not None
    stopped.is_stopped = True
    sim.run(45.0, until=lambda: trains(sim) and len(sim.history.worlds) >= 2)
    assert trains(sim) and first[3] not in [n.node for n in sim.history.worlds[-1].nodes]


@pytest.mark.parametrize("seed", SEEDS)
def test_script_that_exits_with_0_on_sigterm_has_not_finished(seed: int) -> None:
    """Rule 9, the other way round: a world that was stopped did not succeed."""
    sim = started(seed, spec_of(min_nodes=2, max_nodes=2), 2)
    for each in sim.nodes.values():
        each.stop_code = 0
    sim.drain(node(1))
    sim.run(6.0)
    assert sim.status is not None and sim.status.phase is Phase.WAITING


@pytest.mark.parametrize("seed", SEEDS)
def test_finished_node_may_be_lost_without_a_new_generation(seed: int) -> None:
    """Rule 9: its ranks exited with 0; that its machine goes away changes nothing."""
    sim = started(seed, spec_of(min_nodes=1, max_nodes=2), 2)
    early = sim.history.worlds[-1].nodes[1].node
    worker = next(iter(sim.nodes[early].workers.values()))
    sim.training.finished.setdefault(worker.generation, set()).add(worker.rank)
    worker.ended(0, None)
    sim.run(0.2)
    sim.nodes[early].kill_agent()
    sim.run(TTL_S + 2.0)
    assert len(sim.history.worlds) == 1
    other = next(w for w in sim.training.alive() if w.is_alive)
    sim.training.finished[worker.generation].add(other.rank)
    other.ended(0, None)
    assert sim.run(2.0, until=lambda: sim.is_over)
    assert sim.status is not None and sim.status.phase is Phase.SUCCEEDED


@pytest.mark.parametrize("seed", SEEDS)
def test_formation_deadline_names_who_did_not_arrive(seed: int) -> None:
    """Rule 8: the others go on without it, and the status says why."""
    sim = booted(seed, spec_of(min_nodes=1, max_nodes=3), 3, 60.0)
    late = node(seed % 3)
    sim.nodes[late].start_delay_s = (50.0, 60.0)
    assert sim.run(14.0, until=lambda: trains(sim, nodes=2))
    world = sim.history.worlds[-1]
    assert world.reason is Reason.DID_NOT_ARRIVE and world.lost == (late,)
    assert sim.status is not None
    assert f"{late}, which did not arrive" in sim.status.message


@pytest.mark.parametrize("seed", SEEDS)
def test_arrival_that_a_watch_missed_accuses_nobody(seed: int) -> None:
    """Rule 7: before the deadline's verdict the members are read once more."""
    sim = booted(seed, spec_of(min_nodes=2, max_nodes=3), 3, 60.0)
    assert sim.run(5.0, until=lambda: bool(sim.history.worlds))
    sim.weather.lost_event = 1.0
    sim.run(1.0, until=lambda: trains(sim))
    sim.run(0.3)
    sim.weather.lost_event = 0.0
    sim.run(12.0)
    assert Reason.DID_NOT_ARRIVE not in [world.reason for world in sim.history.worlds]


@pytest.mark.parametrize("seed", SEEDS)
def test_record_that_somebody_deleted_is_written_again(seed: int) -> None:
    """A standby, too, sees that it has gone missing, and does not wait for ever."""
    sim = started(seed, spec_of(min_nodes=2, max_nodes=2), 3)
    inside = {n.node for n in sim.history.worlds[-1].nodes}
    (standby,) = set(sim.nodes) - inside
    sim.etcd.commit([Delete("member", standby)])
    sim.run(1.0)
    assert sim.etcd.get("member", standby) is not None
    assert len(sim.history.worlds) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_flapping_node_is_readmitted_ever_more_slowly(seed: int) -> None:
    """P12: it dies as soon as it is back; the others lose ever less to it."""
    sim = started(seed, spec_of(min_nodes=2, max_nodes=3), 3, work_s=600.0)
    flapper = sim.nodes[node(2)]
    for _ in range(120):
        here = any(n.node == flapper.name for n in sim.history.worlds[-1].nodes)
        if here and trains(sim):
            flapper.kill_agent()
            sim.clock.after(0.5, flapper.start_agent)
        sim.run(0.5)
    worlds = len(sim.history.worlds)
    assert worlds <= 16, f"{worlds} generations in a minute"


@pytest.mark.parametrize("seed", SEEDS)
def test_journal_of_an_agent_replays_to_the_same_effects(seed: int) -> None:
    """`decide` is deterministic: what was recorded is decided again."""
    spec = spec_of(min_nodes=2, max_nodes=3)
    sim = Simulation(seed=seed, spec=spec, slots=[2] * 3, work_s=4.0)
    sim.journal_of = node(0)
    sim.submit()
    for each in sim.nodes.values():
        each.start_agent()
    sim.clock.after(2.0, lambda: sim.nodes[node(1)].kill_agent())
    sim.clock.after(3.0, sim.nodes[node(1)].start_agent)
    sim.clock.after(4.0, lambda: sim.training.raises(next(iter(sim.training.alive())), Raised()))
    assert sim.run(60.0, until=lambda: sim.is_over)
    agent = sim.nodes[node(0)].agent
    assert agent is not None and agent.journal is not None and len(agent.journal) > 30
    assert replay(agent.journal) is None

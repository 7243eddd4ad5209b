"""Stories of nodes that lose their lease or share a name: no two worlds train at once."""

import pytest

from elasticd.records.ids import life_of
from elasticd.records.reason import Reason
from tests.sim.etcd import Backup
from tests.sim.lease import TTL_S
from tests.sim.schedule import spec_of
from tests.sim.simulation import Simulation
from tests.sim.test_scenarios import SEEDS, started, trains, until_next


def planned_world_with_a_spare(seed: int, **more: object) -> Simulation:
    """One node trains in a world that was made for a drain, another stands by."""
    sim = started(seed, spec_of(min_nodes=1, max_nodes=1, **more), 3, work_s=600.0)
    sim.drain(sim.history.worlds[-1].nodes[0].node)
    world = until_next(sim, 40.0)  # One in ten takes all of its grace.
    assert world.reason is Reason.DRAINED
    sim.run(0.5)
    return sim


@pytest.mark.parametrize("seed", SEEDS)
def test_workers_of_a_lost_lease_end_at_the_old_limit_whatever_their_grace(seed: int) -> None:
    """etcd comes back just before the isolation limit: its new lease gives them no more time."""
    sim = planned_world_with_a_spare(seed, shutdown_timeout_s=30.0, failure_timeout_s=30.0)
    lone = sim.nodes[sim.history.worlds[-1].nodes[0].node]
    lone.is_stubborn = True
    lone.link.is_cut_from_etcd = True
    sim.run(TTL_S + sim.spec.isolation_limit_s - 1.0)
    lone.link.is_cut_from_etcd = False
    # The history breaks if the next world begins while a worker of this one lives.
    world = until_next(sim, 12.0)
    assert world.nodes[0].node != lone.name and trains(sim)


@pytest.mark.parametrize("seed", SEEDS)
def test_another_agent_of_the_same_name_waits_for_the_end_of_the_first_ones_workers(
    seed: int,
) -> None:
    """The first one is only stopped: its workers train on until the isolation limit."""
    sim = started(seed, spec_of(min_nodes=1, max_nodes=1), 1, work_s=600.0)
    first = sim.nodes[sim.history.worlds[-1].nodes[0].node]
    assert first.agent is not None
    first.agent.is_stopped = True
    sim.run(TTL_S + 1.0)
    sim.twin(first.name).start_agent()
    # The history breaks if the next world begins while a worker of the first one lives.
    sim.run(sim.spec.isolation_limit_s - 1.0)
    assert len(sim.history.worlds) == 1, "the first agent's workers may still train"
    assert sim.status is not None and "vanished without a goodbye" in sim.status.message
    world = until_next(sim, 12.0)
    assert life_of(world.nodes[0].incarnation) == f"{first.name}-101"
    # What comes back stands by: the name is taken, and is not fought for.
    first.agent.go_on()
    sim.run(30.0)
    assert sim.history.worlds[-1] is world and trains(sim)


@pytest.mark.parametrize("seed", SEEDS)
def test_agent_that_is_started_anew_does_not_wait_for_itself(seed: int) -> None:
    """Nobody else is there to say that the one before has ended: its old address does."""
    sim = started(seed, spec_of(min_nodes=1, max_nodes=1), 1, work_s=600.0)
    only = sim.nodes[sim.history.worlds[-1].nodes[0].node]
    only.kill_agent()
    only.start_agent()
    world = until_next(sim, 3.0)
    assert world.reason in (Reason.NODE_RETURNED, Reason.NODE_DEAD)
    assert not [each for each in sim.history.statuses if "vanished" in each.message]


@pytest.mark.parametrize("seed", SEEDS)
def test_machine_that_was_without_power_does_not_wait_for_itself(seed: int) -> None:
    """Once it is back it refuses at its old address."""
    sim = started(seed, spec_of(min_nodes=1, max_nodes=1), 1, work_s=600.0)
    only = sim.nodes[sim.history.worlds[-1].nodes[0].node]
    only.kill_agent(is_power_off=True)
    sim.run(TTL_S + 2.0)
    only.start_agent()
    until_next(sim, 3.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_job_goes_on_after_etcd_was_restored_from_a_backup(seed: int) -> None:
    """It knows an older world, and leases that its holders have still: all of them begin anew."""
    sim = started(seed, spec_of(min_nodes=2, max_nodes=3), 3, work_s=600.0)
    backup = sim.etcd.backup()
    for _ in range(2):
        killed = sim.nodes[sim.history.worlds[-1].nodes[seed % 3].node]
        killed.kill_worker(next(iter(killed.workers.values())))
        until_next(sim, 3.0, nodes=3)
    generation = sim.history.worlds[-1].generation
    sim.etcd.restore(backup)
    world = until_next(sim, 30.0)
    assert world.generation > generation, "logs and checkpoints of that one stand"
    assert not [each for each in sim.history.statuses if "does not know" in each.message]
    sim.run(20.0)
    killed = sim.nodes[sim.history.worlds[-1].nodes[0].node]
    killed.kill_worker(next(iter(killed.workers.values())))
    until_next(sim, 3.0)


LONG_TTL_S = 60.0


def restored_before(seed: int, **more: object) -> tuple[Simulation, Backup]:
    """One node trains, two stand by, with long leases; a backup is taken."""
    spec = spec_of(min_nodes=1, max_nodes=1, **more)
    sim = started(seed, spec, 3, work_s=600.0, lease_ttl_s=LONG_TTL_S)
    sim.run(seed * 3.0)
    return sim, sim.etcd.backup()


@pytest.mark.parametrize("seed", SEEDS)
def test_workers_of_a_lease_that_a_restore_took_end_at_the_limit_of_others(seed: int) -> None:
    """The holder revokes it long before its deadline: others count from then."""
    sim, backup = restored_before(seed, failure_timeout_s=100.0)
    only = sim.nodes[sim.history.worlds[-1].nodes[0].node]
    only.is_stubborn = True
    sim.etcd.restore(backup)
    # The history breaks if the next world begins while a worker of this one lives.
    until_next(sim, LONG_TTL_S)
    assert trains(sim)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_cut", [False, True])
def test_world_that_a_restored_etcd_does_not_know_ends_before_the_next_one(
    seed: int, is_cut: bool
) -> None:
    """Its node hears of the restore late, or of nothing until its license is over."""
    sim, backup = restored_before(seed)
    first = sim.nodes[sim.history.worlds[-1].nodes[0].node]
    for spare in sim.nodes.values():
        if spare is not first:
            spare.kill_agent()
            spare.start_agent()
    sim.run(5.0)
    first.kill_agent()
    world = until_next(sim, 3.0)
    sim.run(1.0)
    sim.nodes[world.nodes[0].node].link.is_cut_from_etcd = is_cut
    sim.etcd.restore(backup)
    # The history breaks if the next world begins while a worker of this one lives.
    until_next(sim, 2 * LONG_TTL_S + 30.0)
    assert trains(sim)

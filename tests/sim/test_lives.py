"""Stories of nodes that lose their lease or share a name: no two worlds train at once."""

import pytest

from elasticd.records.reason import Reason
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

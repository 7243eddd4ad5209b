"""Jobs that share nodes: who gets which, how soon, and that nobody changes his mind."""

import os

import pytest

from elasticd.records.ids import NodeId
from tests.sim.in_process import Script
from tests.sim.shared import Shared

SCHEDULES = int(os.environ.get("ELASTICD_SCHEDULES", "2000")) // 20
BROKE = (312,)
"""Two jobs waited for ever for slots of a node that a third one had given back."""


@pytest.mark.parametrize("seed", range(8))
def test_job_that_lacks_nodes_gets_the_spare_of_another(seed: int) -> None:
    """Within two seconds, of which the pool's start is most; and it keeps it."""
    shared = Shared([1, 1, 1], seed)
    shared.submit("A", min_nodes=2, max_nodes=2)
    shared.run(4.0)
    assert len(shared.nodes_of("A")) == 2
    shared.submit("B")
    shared.run(2.0)
    assert len(shared.nodes_of("B")) == 1
    assert not shared.nodes_of("A") & shared.nodes_of("B")
    shared.run(20.0)
    assert all(len(times) <= 1 for times in shared.joins.values()), shared.joins


@pytest.mark.parametrize("seed", range(8))
def test_node_that_a_smaller_job_frees_goes_to_one_that_waits(seed: int) -> None:
    """Nobody has to submit anything to wake it."""
    shared = Shared([1, 1, 1], seed)
    big = shared.submit("big", min_nodes=2, max_nodes=3)
    shared.run(4.0)
    assert len(shared.nodes_of("big")) == 3
    shared.submit("waits")
    shared.run(4.0)
    assert not shared.nodes_of("waits"), "the first that was submitted is served first"
    big.want(nodes=2)
    shared.run(4.0)
    assert len(shared.nodes_of("big")) == 2
    assert len(shared.nodes_of("waits")) == 1


def test_spare_comes_back_when_the_other_job_has_ended() -> None:
    """And is there when a node is lost."""
    shared = Shared([1, 1, 1])
    shared.submit("A", min_nodes=2, max_nodes=2)
    shared.run(4.0)
    other = shared.submit("B", work_s=2.0)
    shared.run(12.0)
    assert other.is_over
    lost = shared.nodes_of("A").pop()
    for sim in shared.jobs.values():
        sim.nodes[lost].kill_agent()
    shared.run(6.0)
    assert len(shared.nodes_of("A")) == 2 and lost not in shared.nodes_of("A")


def test_prepared_processes_of_a_spare_give_way_too() -> None:
    """In in-process mode a spare has workers that wait to be named; they are no work."""
    shared = Shared([1, 1, 1])
    shared.submit("A", min_nodes=2, max_nodes=2, script=Script(steps=10_000))
    shared.run(8.0)
    assert len(shared.nodes_of("A")) == 2
    shared.submit("B")
    shared.run(5.0)
    assert len(shared.nodes_of("B")) == 1


@pytest.mark.parametrize("seed", sorted({*range(SCHEDULES), *BROKE}))
def test_any_jobs_on_any_nodes_settle(seed: int) -> None:
    """Jobs come, change their size and end; whoever can be served is, and nobody oscillates."""
    shared = Shared([1, 1, 1], seed)
    rng = shared.rng
    shared.slots[:] = [rng.choice((1, 1, 2, 4)) for _ in range(rng.choice((2, 3, 4)))]
    for number in range(rng.choice((2, 3, 4))):
        count = len(shared.slots)
        least = rng.randint(1, count)
        wide = min(shared.slots)
        shared.submit(
            f"job-{number}",
            min_nodes=least,
            max_nodes=rng.randint(least, count),
            workers_per_node=rng.choice((0, 1, wide)),
            work_s=rng.choice((0.5, 2.0, 5.0)),
            priority=(seed + number) % 3,
        )
        shared.run(rng.uniform(0.0, 3.0))
        if rng.random() < 0.5:
            sim = rng.choice(list(shared.jobs.values()))
            if not sim.is_over:
                sim.want(nodes=rng.randint(sim.spec.min_nodes, sim.spec.max_nodes))
        if rng.random() < 0.3:
            name = NodeId(f"node-{rng.randrange(count)}")
            for sim in shared.jobs.values():
                sim.nodes[name].kill_agent()
                sim.clock.after(1.0, sim.nodes[name].start_agent)
            shared.clock.after(1.2, shared.wake_all)
        shared.run(rng.uniform(0.0, 3.0))
    shared.run(400.0)
    assert all(sim.is_over for sim in shared.jobs.values()), f"seed {seed}"

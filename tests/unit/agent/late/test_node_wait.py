"""What a node tells of its waits, from its workers' heartbeats."""

import dataclasses

from elasticd.channel.worker import Beat, Waits
from elasticd.records.ids import Generation, Nonce, Slot
from elasticd.records.world import World, WorldWorker
from elasticd.rendezvous.state import JobState, replace
from elasticd_agent.late.node_wait import NodeWaits
from tests.unit.rendezvous.cases import Told, running, world


def state_in(standing: World, slots: int = 1) -> JobState:
    """Node 0's, with so many workers on each node."""
    workers = tuple(WorldWorker(slot=Slot(slot), nonce=Nonce(1)) for slot in range(slots))
    nodes = tuple(dataclasses.replace(node, workers=workers) for node in standing.nodes)
    standing = dataclasses.replace(standing, nodes=nodes)
    return replace(Told(0).state, world=standing, status=running(int(standing.generation)))


def beat(wait_s: float, *, generation: int = 1, steps: int = 50, total_s: float = 0.0) -> Beat:
    waits = Waits(steps=steps, step_s=0.1, wait_s=wait_s, low_s=wait_s, high_s=wait_s)
    return Beat(
        generation=Generation(generation),
        step=1,
        step_s=0.1,
        batches=1,
        sequence=1,
        waits=waits,
        step_wait_s=total_s,
    )


def test_node_is_as_late_as_its_slowest_rank() -> None:
    """Which waits least; nothing is told before all ranks of the node are known."""
    state = state_in(world(1, 0, 1), slots=2)
    waits = NodeWaits()
    assert waits.receive(Slot(0), Nonce(1), beat(0.02), state, 1.0) is None
    told = waits.receive(Slot(1), Nonce(1), beat(0.005, steps=30), state, 1.1)
    assert told is not None
    assert (told.generation, told.wait_s, told.steps) == (1, 0.005, 30)


def test_waits_of_another_generation_are_not_told() -> None:
    """They were for other ranks."""
    state = state_in(world(2, 0, 1))
    waits = NodeWaits()
    assert waits.receive(Slot(0), Nonce(1), beat(0.02, generation=1), state, 1.0) is None
    assert waits.receive(Slot(0), Nonce(1), beat(0.02, generation=2), state, 1.2) is not None


def test_node_that_is_alone_tells_nothing() -> None:
    """There is nobody to compare it with."""
    waits = NodeWaits()
    assert waits.receive(Slot(0), Nonce(1), beat(0.02), state_in(world(1, 0)), 1.0) is None


def test_older_worker_tells_no_waits() -> None:
    """One of a version that does not measure them."""
    state, waits = state_in(world(1, 0, 1)), NodeWaits()
    old = Beat(generation=Generation(1), step=1, step_s=0.1, batches=1, sequence=1)
    assert waits.receive(Slot(0), Nonce(1), old, state, 1.0) is None


def test_sum_of_waits_only_grows() -> None:
    """Another process in the slot counts from 0."""
    state, waits = state_in(world(1, 0)), NodeWaits()
    for nonce, total_s in ((1, 1.0), (1, 3.0), (2, 0.5), (2, 1.0)):
        waits.receive(Slot(0), Nonce(nonce), beat(0.02, total_s=total_s), state, 1.0)
    assert waits.total_s == 4.0


def test_workers_that_were_kept_are_not_counted_twice() -> None:
    """Their sums began with them, in an earlier part of this node in the job."""
    state, waits = state_in(world(1, 0, 1)), NodeWaits(kept=(Slot(0),))
    waits.receive(Slot(0), Nonce(1), beat(0.02, total_s=500.0), state, 1.0)
    waits.receive(Slot(0), Nonce(1), beat(0.02, total_s=501.0), state, 1.2)
    assert waits.total_s == 1.0
    waits.receive(Slot(0), Nonce(2), beat(0.02, total_s=0.5), state, 1.4)
    assert waits.total_s == 1.5

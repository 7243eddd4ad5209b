"""Facts of jobs in in-process mode, for the tests of the rendezvous."""

import dataclasses
from collections.abc import Sequence

from elasticd.records.ids import Generation, Nonce, Rank, Slot
from elasticd.records.member import Member, SlotOffer, Stall, StallLimit, Training
from elasticd.records.world import World, WorldWorker
from elasticd.rendezvous import event as ev
from tests.unit.rendezvous.cases import Told, member, running, world

Offer = tuple[int, int, str]
"""Slot, nonce, and what holds: p(repared), s(tate), f(inished)."""


def trainer(index: int, *offers: Offer, arrived: int = 1, **more: object) -> Member:
    """A member with these processes; without any: process 1 in slot 0, which has the state."""
    slots = tuple(
        SlotOffer(
            slot=Slot(slot),
            nonce=Nonce(nonce),
            is_prepared="p" in what,
            has_state="s" in what,
            is_finished="f" in what,
        )
        for slot, nonce, what in offers or ((0, 1, "ps"),)
    )
    return dataclasses.replace(member(index, arrived=arrived), slots=slots, **more)  # type: ignore[arg-type]


def kept(
    generation: int, *nodes: int, nonces: dict[int, Sequence[int]] | None = None, **more: object
) -> World:
    """A world of processes that keep their numbers: by node, those of slots 0, 1, ...; else 1."""
    found = world(generation, *nodes)
    rank, changed = 0, []
    for node in found.nodes:
        numbers = (nonces or {}).get(int(node.node.rpartition("-")[2]), (1,))
        workers = tuple(WorldWorker(slot=Slot(s), nonce=Nonce(n)) for s, n in enumerate(numbers))
        changed.append(dataclasses.replace(node, first_rank=Rank(rank), workers=workers))
        rank += len(workers)
    return dataclasses.replace(found, nodes=tuple(changed), **more)  # type: ignore[arg-type]


def stall(
    sequence: int,
    *,
    generation: int = 1,
    step: int = 5,
    has_returned: bool = False,
    limit: StallLimit = StallLimit.PROGRESS,
    is_in_step: bool = False,
    is_in_collective: bool = False,
) -> Stall:
    return Stall(
        generation=Generation(generation),
        slot=Slot(0),
        nonce=Nonce(1),
        step=step,
        sequence=sequence,
        has_returned=has_returned,
        limit=limit,
        is_in_step=is_in_step,
        is_in_collective=is_in_collective,
        why="No progress for 5 s, while others waited for it.",
        stacks_path="/runs/stacks.txt",
    )


def training(*others: int, step: int = 5, **spec: object) -> Told:
    """node-0 in generation 1 with the others, all in `elasticd.run`, at this step."""
    told = Told(0, **{"workers_per_node": 0, **spec})
    told.standby()
    told.status(running(1, is_in_process=True))
    told.world(world(1, 0, *others))
    told.started()
    told.tell(ev.ResultsListed(results=()))
    told.members(trainer(0), *(trainer(i) for i in others))
    attach(told)
    entered(told, 1)
    stepped(told, 1, step)
    while told.written():
        pass
    told.members(trainer(0), *(trainer(i) for i in others))
    told.tick(0.5)
    paced(told, 1, step, step_s=0.1)
    assert told.state.formed_s is not None and told.state.is_in_process
    return told


def attach(told: Told, slot: int = 0, nonce: int = 1) -> None:
    told.tell(ev.WorkerAttached(slot=Slot(slot), nonce=Nonce(nonce)))


def entered(told: Told, generation: int, slot: int = 0, nonce: int = 1) -> None:
    worker = {"slot": Slot(slot), "nonce": Nonce(nonce)}
    told.tell(ev.WorkerEntered(generation=Generation(generation), **worker))  # type: ignore[arg-type]


def stepped(told: Told, generation: int, step: int, slot: int = 0, nonce: int = 1) -> None:
    told.tell(
        ev.WorkerStepped(
            slot=Slot(slot), nonce=Nonce(nonce), generation=Generation(generation), step=step
        )
    )


def paced(
    told: Told,
    generation: int,
    step: int,
    *,
    step_s: float = 0.1,
    is_paused: bool = False,
    nonce: int = 1,
) -> None:
    told.tell(
        ev.WorkerPaced(
            slot=Slot(0),
            nonce=Nonce(nonce),
            generation=Generation(generation),
            step=step,
            step_s=step_s,
            is_paused=is_paused,
        )
    )


def finished(told: Told, slot: int = 0, nonce: int = 1) -> None:
    done = Training(steps=9, epochs=1, samples=9, repeated=0, skipped=0)
    told.tell(ev.WorkerFinished(slot=Slot(slot), nonce=Nonce(nonce), training=done))

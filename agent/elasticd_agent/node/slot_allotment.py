"""Which jobs get which of this node's slots: a pure function of the facts, without memory.

What decides between two jobs is how each of them stands in etcd (`elasticd_agent.node.demand`), and
never whether this node serves it already: a job that was sent away for another one would look as if
it lacked nodes, get its place back before the other one could use it, and so on without end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.records.ids import Generation, JobName, Slot
from elasticd.records.job import JobSpec
from elasticd.rendezvous.own_record import is_working
from elasticd.rendezvous.state import JobState

__all__ = ["SlotClaim", "allot", "claim_of", "rivals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotClaim:
    """The slots of this node that one job would like."""

    job: JobName
    order: int
    """When it was submitted (revision); of equal priority earlier ones are served first."""
    wanted: int
    """Workers per node; 0: all slots."""
    held: tuple[Slot, ...] = ()
    is_working: bool = False
    """Its workers run here, or a world counts on them: it keeps what it holds."""
    lacks_nodes: bool | None = None
    """It would use this node at once, and not as a spare; None: not known yet."""
    is_stuck: bool = False
    """It had begun, and has too few nodes to go on: those that it has serve nobody."""
    priority: int = 0


def claim_of(
    spec: JobSpec,
    order: int,
    state: JobState | None,
    *,
    kept: tuple[Slot, ...] | None = None,
    lacks_nodes: bool | None,
    is_stuck: bool = False,
    generation: Generation,
) -> SlotClaim:
    """Return a job's claim here; `state` is this node's part in the job, None if it has none.

    `kept` are the slots of workers that wait for the next incarnation here. `generation` is the
    world of which `lacks_nodes` speaks. Until this node's part in the job has seen that world,
    `lacks_nodes` does not count: the job may lack no node because it has just taken this one.
    """
    held, is_busy = kept or (), kept is not None
    if state is not None:
        held, is_busy = state.slots, is_working(state) or state.leaving is not None
        if generation >= state.next_generation:
            lacks_nodes = None
    return SlotClaim(
        job=spec.name,
        order=order,
        wanted=spec.workers_per_node,
        held=held,
        is_working=is_busy,
        lacks_nodes=lacks_nodes,
        is_stuck=is_stuck,
        priority=spec.priority,
    )


def rivals(claims: Sequence[SlotClaim], slot_count: int) -> frozenset[JobName]:
    """Name the jobs that compete for slots here: how they stand has to be known."""
    taken = sum(len(claim.held) for claim in claims if claim.is_working)
    waiting = frozenset(claim.job for claim in claims if not claim.is_working)
    return waiting if len(waiting) > 1 and taken < slot_count else frozenset()


def allot(claims: Sequence[SlotClaim], slot_count: int) -> dict[JobName, tuple[Slot, ...]]:
    """Give each job its slots or none; a job never gets fewer than it asks for.

    Working jobs keep theirs, then jobs that lack nodes are served, then those that would only
    keep a spare here. Of jobs that lack nodes those that had begun come first: two that each wait
    for what the other has would do so for ever. Then decides the priority, and then which was
    submitted first. As long as it is not known how a rival stands, all of them keep what they have.
    """
    free = [Slot(i) for i in range(slot_count)]
    given: dict[JobName, tuple[Slot, ...]] = {}
    contested = rivals(claims, slot_count)
    is_open = all(c.lacks_nodes is not None for c in claims if c.job in contested)
    for claim in claims:
        if claim.is_working or not is_open:
            given[claim.job] = claim.held
            free = [slot for slot in free if slot not in claim.held]
    for claim in sorted(claims, key=_turn):
        if claim.job in given:
            continue
        wanted = claim.wanted or slot_count
        if claim.wanted and len(free) < wanted:
            given[claim.job] = ()
            continue
        # A job that holds slots keeps the same ones: a device stays with its worker.
        taken = tuple(sorted(_by_preference(claim, claims, free)[:wanted]))
        given[claim.job] = taken
        free = [slot for slot in free if slot not in taken]
    return given


def _turn(claim: SlotClaim) -> tuple[bool, bool, int, int]:
    return claim.lacks_nodes is False, not claim.is_stuck, -claim.priority, claim.order


def _by_preference(
    claim: SlotClaim, claims: Sequence[SlotClaim], free: Sequence[Slot]
) -> list[Slot]:
    others = {slot for each in claims if each is not claim for slot in each.held}
    return sorted(free, key=lambda slot: (slot not in claim.held, slot in others, slot))

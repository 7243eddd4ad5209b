"""Which jobs get which of this node's slots. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.records.ids import JobName, Slot

__all__ = ["Claim", "allot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one job would like of this node."""

    job: JobName
    order: int
    """When it was submitted (revision); earlier ones are served first."""
    wanted: int
    """Workers per node; 0: all slots."""
    held: tuple[Slot, ...] = ()
    is_working: bool = False
    """Its workers run here, or a world counts on them: it keeps what it holds."""
    is_spare: bool = False
    """Its world is complete without us: others go first."""


def allot(claims: Sequence[Claim], slot_count: int) -> dict[JobName, tuple[Slot, ...]]:
    """Give each job its slots or none; a job never gets fewer than it asks for.

    Working jobs keep theirs, then jobs that lack nodes are served, then those that would only
    keep a spare here.
    """
    free = [Slot(i) for i in range(slot_count)]
    given: dict[JobName, tuple[Slot, ...]] = {}
    for claim in claims:
        if claim.is_working:
            given[claim.job] = claim.held
            free = [slot for slot in free if slot not in claim.held]
    for claim in sorted(claims, key=lambda c: (c.is_spare, c.order)):
        if claim.job in given:
            continue
        wanted = claim.wanted or slot_count
        if claim.wanted and len(free) < wanted:
            given[claim.job] = ()
            continue
        # A job that holds slots keeps the same ones: a device stays with its worker.
        kept = [slot for slot in claim.held if slot in free]
        taken = tuple(sorted((kept + [s for s in free if s not in kept])[:wanted]))
        given[claim.job] = taken
        free = [slot for slot in free if slot not in taken]
    return given

"""One change of world, joined from the incidents that its nodes wrote. Pure.

Every member of a world writes an incident about the world's beginning, with its own observations
and times, by its own clock. All incidents of a generation form one change. The reason and the
culprit come from the proposer and are equal in all incidents; the time of a phase is the longest
time on any node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from elasticd.records.account.incident import PHASES, Incident
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, NodeId
from elasticd.records.reason import Reason

__all__ = ["ChangeReport", "change_reports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeReport:
    """One change of world, as `why` shows it."""

    generation: Generation
    reason: Reason
    culprit: Failure | None
    lost: tuple[NodeId, ...]
    joined: tuple[NodeId, ...] = ()
    """The nodes that wrote about this generation and not about the generation before."""
    has_no_new_node: bool = False
    """True if all nodes wrote about this generation, and about the one before: then a change whose
    reason is that something joined has new workers."""
    members: tuple[NodeId, ...] = ()
    """The nodes that wrote about this generation, in the order of their names."""
    nodes: int
    world_size: int
    phases_s: Mapping[str, float]
    """The longest time that each phase took on any node."""
    at_unix_s: float
    unnoticed_s: float = 0.0
    """The longest time without a step on any node when the change was noticed."""
    told: int = 1
    """The number of nodes that finished the change and wrote their measurements; 0 if the next
    change came first, or if this change still goes on."""
    step: int | None = None
    lost_steps: int = 0
    received_bytes: int = 0
    restored_from: str = ""
    """The source of a restored state: ranks, memory or storage."""
    spent_s: Mapping[str, float] = field(default_factory=dict)
    """Slot-seconds of all nodes by time cause, from the last commit before to the first after."""
    note: str = ""

    @property
    def is_fault(self) -> bool:
        """Return whether the change has a fault as its reason.

        A node may also be gone because it was drained, or because the job needs fewer nodes.
        """
        return self.culprit is not None or self.reason.is_fault

    @property
    def slot_s(self) -> float:
        """Return the change's cost in slot-seconds, as far as nodes wrote it; 0 if not known."""
        return sum(self.spent_s.values())

    @property
    def total_s(self) -> float:
        """Return the sum of the phases, in seconds.

        The sum is an upper bound if the phases have different slowest nodes.
        """
        return sum(self.phases_s.values())


def change_reports(incidents: Iterable[Incident]) -> tuple[ChangeReport, ...]:
    """Return the changes of a job, joined from its incidents, in the order of generations."""
    by_generation: dict[Generation, list[Incident]] = {}
    for incident in incidents:
        by_generation.setdefault(incident.generation, []).append(incident)
    changes = []
    before: set[NodeId] = set()
    for generation in sorted(by_generation):
        found = by_generation[generation]
        here = {incident.node for incident in found if not incident.is_announced}
        joined = tuple(sorted(here - before)) if before else ()
        change = _change(generation, found, joined)
        is_whole = len(here) >= change.nodes
        change = replace(change, has_no_new_node=is_whole and here <= before)
        changes.append(replace(change, members=tuple(sorted(here))))
        before = here or before
    return tuple(changes)


def _change(
    generation: Generation, found: list[Incident], joined: tuple[NodeId, ...]
) -> ChangeReport:
    first = found[0]
    phases = {
        phase: max(seconds)
        for phase in PHASES
        if (seconds := [i.phases_s[phase] for i in found if phase in i.phases_s])
    }
    culprit = next((incident.culprit for incident in found if incident.culprit is not None), None)
    return ChangeReport(
        generation=generation,
        reason=first.reason,
        culprit=culprit,
        lost=next((incident.lost for incident in found if incident.lost), ()),
        joined=joined,
        nodes=max(incident.nodes for incident in found),
        told=sum(not incident.is_announced for incident in found),
        world_size=max(incident.world_size for incident in found),
        phases_s=phases,
        unnoticed_s=max(incident.unnoticed_s for incident in found),
        at_unix_s=min(incident.at_unix_s for incident in found),
        step=max((i.step for i in found if i.step is not None), default=None),
        lost_steps=max(incident.lost_steps for incident in found),
        received_bytes=sum(incident.received_bytes for incident in found),
        restored_from=next((i.restored_from for i in found if i.restored_from), ""),
        spent_s=_added(incident.spent_s for incident in found),
        note=next((incident.note for incident in found if incident.note), ""),
    )


def _added(parts: Iterable[Mapping[str, float]]) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for part in parts:
        for cause, seconds in part.items():
            found[cause] = round(found.get(cause, 0.0) + seconds, 2)
    return found

"""The stacks that show why a world ended: those of a rank that hung, or of all silent ranks.

The agents write stacks before they end the ranks of that world. Each node writes its own file
(`incidents/gen-<n>.<node>.stacks.txt` in the job's folder). This module only names the files. Other
modules read them: the dashboard asks the nodes, a page has the files of this machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.control.report.change_report import ChangeReport
from elasticd.control.report.report import JobReport
from elasticd.records.ids import Generation, NodeId
from elasticd.records.reason import Reason

__all__ = ["HangStacks", "hang_stacks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HangStacks:
    generation: Generation
    """The generation of the ranks: usually the generation before the change."""
    nodes: Sequence[NodeId]
    """The nodes with stacks, at least one; the most useful one is first."""


def hang_stacks(report: JobReport, change: ChangeReport) -> HangStacks | None:
    """Return the generation and nodes of the stacks of a change; None if no rank hung.

    If all ranks were silent for too long, no single rank is the cause, and every node of the world
    before has stacks.
    """
    if change.culprit is not None:
        of = change.culprit.stacks_generation
        return HangStacks(generation=of, nodes=(change.culprit.node,)) if of is not None else None
    if change.reason is not Reason.NO_OUTPUT:
        return None
    before = [each for each in report.changes if each.generation < change.generation]
    earlier = next((each for each in reversed(before) if each.members), None)
    return (
        HangStacks(generation=earlier.generation, nodes=earlier.members)
        if earlier is not None
        else None
    )

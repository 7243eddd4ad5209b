"""Which stacks show why a world ended: those of a rank that hung, or of all where none wrote.

The agents write them before they end the ranks of that world, each node into a file of its own
(`incidents/gen-<n>.<node>.stacks.txt` in the job's folder). This module only names the files.
Others read them: the dashboard asks the nodes, a page has the files of this machine.
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
    """The generation in which the ranks were: the one before the change, mostly."""
    nodes: Sequence[NodeId]
    """The nodes to look at, at least one, the first one first."""


def hang_stacks(report: JobReport, change: ChangeReport) -> HangStacks | None:
    """Return where the stacks are that belong to a change; None if nothing hung.

    Where no rank wrote anything for too long nobody is to blame, and every node of the world before
    has stacks.
    """
    if change.culprit is not None:
        of = change.culprit.stacks_generation
        return HangStacks(generation=of, nodes=(change.culprit.node,)) if of is not None else None
    if change.reason is not Reason.NO_OUTPUT:
        return None
    before = [each for each in report.changes if each.generation < change.generation]
    told = next((each for each in reversed(before) if each.members), None)
    return HangStacks(generation=told.generation, nodes=told.members) if told is not None else None

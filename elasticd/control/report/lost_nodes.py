"""The nodes that jobs lost recently, from the jobs' incidents. Pure.

A node's own record is deleted with its lease; the changes of world that its loss caused stay as
long as the jobs' records. So the loss of a node without a job is not known here.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from elasticd.control.report.report import JobReport
from elasticd.records.ids import JobName, NodeId
from elasticd.records.reason import Reason

__all__ = ["LATELY_S", "LostNode", "lost_nodes"]

LATELY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LostNode:
    """A node that a job lost, and that is not registered now."""

    node: NodeId
    job: JobName
    reason: Reason
    at_unix_s: float
    """The time by the clock of a node that noticed the loss."""


def lost_nodes(
    reports: Iterable[JobReport], present: Collection[NodeId], *, now_unix_s: float
) -> list[LostNode]:
    """Return each lost node once, with its newest loss, newest first.

    Nodes in `present` have come back, so they are left out.
    """
    newest: dict[NodeId, LostNode] = {}
    for report in reports:
        for change in report.changes:
            if now_unix_s - change.at_unix_s > LATELY_S:
                continue
            for node in change.lost:
                each = LostNode(
                    node=node,
                    job=report.spec.name,
                    reason=change.reason,
                    at_unix_s=change.at_unix_s,
                )
                before = newest.get(node)
                if node not in present and (before is None or before.at_unix_s < each.at_unix_s):
                    newest[node] = each
    return sorted(newest.values(), key=lambda each: (-each.at_unix_s, each.node))

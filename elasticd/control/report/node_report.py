"""The records in etcd about nodes, joined for readers. Pure over a snapshot."""

from collections.abc import Iterable
from dataclasses import dataclass

from elasticd.control.report.occupancy import Use
from elasticd.control.report.unreadable import UnreadableRecords, readable_nodes
from elasticd.goodput.late_record import latest_of_each
from elasticd.records.account.late import LateNode
from elasticd.records.codec import decode
from elasticd.records.ids import NodeId
from elasticd.records.keys import Keys
from elasticd.records.member import Drain, Node
from elasticd.store.api import KeyValue

__all__ = ["NodeReport", "node_reports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    node: Node
    is_drained: bool
    """True if an operator drains the node; `node.is_draining` is true once the agent knows this."""
    drain_why: str = ""
    uses: tuple[Use, ...] = ()
    """The jobs on the node, and their slots."""
    late: LateNode | None = None
    """The lateness of the node, if the other nodes of a job wait for it; of several jobs, that of
    the job that waits most."""

    @property
    def used_slots(self) -> int:
        return sum(use.slots for use in self.uses)

    @property
    def free_slots(self) -> int:
        return max(0, self.node.slots - self.used_slots)


def node_reports(
    nodes: Iterable[KeyValue],
    drains: Iterable[KeyValue],
    keys: Keys,
    unreadable: UnreadableRecords,
    uses: Iterable[Use] = (),
    late: Iterable[LateNode] = (),
) -> tuple[NodeReport, ...]:
    """Return the reports of nodes, joined from `nodes/`, `drains/`, the jobs' `uses` and `late`.

    `unreadable` notes the nodes that are left out; a drain that cannot be read is a drain all the
    same.
    """
    latest = latest_of_each(late)
    whys: dict[str, str] = {}
    for item in drains:
        name = item.key.removeprefix(keys.drains)
        whys[name] = ""
        with unreadable.left_out(f"the reason of the drain of {name}"):
            whys[name] = decode(Drain, item.value).why
    found = sorted(readable_nodes(nodes, keys, unreadable), key=lambda node: node.node)
    by_node: dict[NodeId, list[Use]] = {}
    for use in uses:
        by_node.setdefault(use.node, []).append(use)
    return tuple(
        NodeReport(
            node=node,
            is_drained=node.node in whys,
            drain_why=whys.get(node.node, ""),
            uses=tuple(by_node.get(node.node, ())),
            late=latest.get(node.node),
        )
        for node in found
    )

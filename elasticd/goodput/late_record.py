"""The record of late nodes: computes the next record from the present one. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from elasticd.records.account.late import HISTORY_LIMIT, LateNode, LateNodes
from elasticd.records.ids import NodeId

if TYPE_CHECKING:
    from elasticd.goodput.late import Lateness

__all__ = ["begun_or_over", "drained", "followed", "latest_of_each"]


def followed(
    record: LateNodes,
    late: Mapping[NodeId, "Lateness"],
    *,
    unknown: Collection[NodeId] = (),
    notes: Mapping[NodeId, str] | None = None,
    now_unix_s: float,
) -> LateNodes:
    """Return the record, updated to these late nodes; `unknown` nodes keep what it says of them.

    A node that was late already keeps the time since when it is late. For new entries the oldest of
    the nodes that are not late any more are removed.
    """
    notes, nodes = notes or {}, []
    standing = set()
    for known in record.nodes:
        if known.until_unix_s:
            nodes.append(known)
        elif (found := late.get(known.node)) is not None and known.node not in standing:
            standing.add(known.node)
            nodes.append(
                replace(
                    known,
                    ratio=round(found.ratio, 3),
                    cost_nodes=round(found.cost_nodes, 2),
                    note=notes.get(known.node, ""),
                )
            )
        elif known.node in unknown:
            nodes.append(known)
        else:
            nodes.append(replace(known, until_unix_s=now_unix_s))
    nodes += [
        LateNode(
            node=node,
            ratio=round(found.ratio, 3),
            cost_nodes=round(found.cost_nodes, 2),
            since_unix_s=now_unix_s,
            note=notes.get(node, ""),
        )
        for node, found in sorted(late.items())
        if node not in standing
    ]
    spare = max(0, len(nodes) - HISTORY_LIMIT)
    over = [known for known in nodes if known.until_unix_s][:spare]
    kept = [known for known in nodes if known not in over][-HISTORY_LIMIT:]
    return record if tuple(kept) == record.nodes else replace(record, nodes=tuple(kept))


def drained(record: LateNodes, node: NodeId, *, now_unix_s: float) -> LateNodes:
    """Return the record after this node was drained because it is late."""
    nodes = tuple(
        replace(known, drained_unix_s=now_unix_s, note="")
        if known.node == node and not known.until_unix_s
        else known
        for known in record.nodes
    )
    return replace(record, nodes=nodes)


def begun_or_over(before: LateNodes, after: LateNodes) -> list[LateNode]:
    """Return the nodes that became late between the two records, or ceased to be late."""
    known = {(each.node, each.since_unix_s, bool(each.until_unix_s)) for each in before.nodes}
    return [
        each
        for each in after.nodes
        if (each.node, each.since_unix_s, bool(each.until_unix_s)) not in known
    ]


def latest_of_each(nodes: Iterable[LateNode]) -> dict[NodeId, LateNode]:
    """Return the nodes that are late now, each with the entry of the job that it delays most."""
    found: dict[NodeId, LateNode] = {}
    for node in nodes:
        known = found.get(node.node)
        if not node.until_unix_s and (known is None or known.ratio < node.ratio):
            found[node.node] = node
    return found

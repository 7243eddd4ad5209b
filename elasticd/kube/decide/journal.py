"""A log of the operator's observations and decisions, as text that can be replayed.

It has one JSON line for each decision with an action: the changes since the line before, by object
and record, and the actions. Since `decide` is deterministic, the same input at the same time gives
the same actions. If it does not, either the code has changed or `decide` is not pure.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, get_args

from elasticd.errors import NotSupported
from elasticd.kube.decide.action import Action
from elasticd.kube.decide.cluster import AgentPod, KubeNode, ObservedCluster, Records
from elasticd.kube.decide.decide import decide
from elasticd.kube.decide.memory import NodeMemory, ObjectMemory, OperatorMemory
from elasticd.kube.resource.elastic_job import ElasticJob
from elasticd.kube.resource.job_records import JobRecords
from elasticd.records.codec import from_plain, to_plain
from elasticd.records.member import Drain, Node, NodeLabels

__all__ = ["line", "opening", "replay"]

_FORMAT = "elasticd-operator-journal-1"
_KINDS: Mapping[str, type] = {
    "jobs": ElasticJob,
    "nodes": KubeNode,
    "pods": AgentPod,
    "memory": ObjectMemory,
    "memory.nodes": NodeMemory,
    "records.jobs": JobRecords,
    "records.drains": Drain,
    "records.agents": Node,
    "records.labels": NodeLabels,
}
"""The parts of the observed cluster that are written by their keys."""
_ACTIONS = {kind.__name__ for kind in get_args(Action)}


def opening(identity: str) -> str:
    """Return the first line of a journal, before which nothing was observed."""
    return _dump({"format": _FORMAT, "identity": identity})


def line(
    before: ObservedCluster,
    seen: ObservedCluster,
    actions: Iterable[Action],
    *,
    now_s: float,
    now_unix_s: float,
) -> str:
    """Return the line for one decision; `before` is the observed cluster of the line before."""
    old, new = _parts(before), _parts(seen)
    changes = {
        part: {
            **{
                key: to_plain(item) for key, item in new[part].items() if old[part].get(key) != item
            },
            **{key: None for key in old[part] if key not in new[part]},
        }
        for part in _KINDS
    }
    return _dump(
        {
            "at": now_s,
            "at_unix": now_unix_s,
            "has_records": seen.records is not None,
            "is_etcd_away": seen.is_etcd_away,
            "reserved": sorted(seen.records.reserved) if seen.records is not None else [],
            "changes": {part: found for part, found in changes.items() if found},
            "actions": [_named(action) for action in actions],
        }
    )


def replay(lines: Iterable[str]) -> str | None:
    """Decide all lines again; return the first difference as a sentence, None if there is none.

    Raises: NotSupported: the lines are not a journal that this version can read.
    """
    seen: ObservedCluster | None = None
    for number, text in enumerate(lines, start=1):
        row = _loaded(number, text)
        if seen is None:
            if row.get("format") != _FORMAT:
                raise NotSupported(f"Line 1 is no opening of a journal of format {_FORMAT}.")
            seen = ObservedCluster(identity=str(row.get("identity", "")), records=Records())
            continue
        try:
            seen = _changed(seen, row)
            actions = decide(
                _shown(seen, row), now_s=float(row["at"]), now_unix_s=float(row["at_unix"])
            )
            recorded = [_dump(action) for action in row["actions"]]
            names = {str(action[0]) for action in row["actions"]}
        except (KeyError, TypeError, ValueError, IndexError) as exc:
            raise NotSupported(f"Line {number} of the journal does not fit: {exc}.") from exc
        if unknown := names - _ACTIONS:
            raise NotSupported(f"Line {number} of the journal has an unknown action {unknown}.")
        found = [_dump(_named(action)) for action in actions]
        if found != recorded:
            return f"line {number}: recorded {recorded}, decided now {found}"
    return None


# --- private ----------------------------------------------------------------------------------


def _parts(seen: ObservedCluster) -> dict[str, Mapping[Any, Any]]:
    """Return the parts that are written by their keys; while etcd is away there are no records."""
    records = seen.records or Records()
    return {
        "jobs": seen.jobs,
        "nodes": seen.nodes,
        "pods": seen.pods,
        "memory": seen.memory.objects,
        "memory.nodes": seen.memory.nodes,
        "records.jobs": records.jobs,
        "records.drains": records.drains,
        "records.agents": records.agents,
        "records.labels": records.labels,
    }


def _changed(seen: ObservedCluster, row: Mapping[str, Any]) -> ObservedCluster:
    """Return the observed cluster after the changes of a line."""
    parts: dict[str, Any] = {}
    for part, before in _parts(seen).items():
        found = dict(before)
        for key, item in row["changes"].get(part, {}).items():
            if item is None:
                found.pop(key, None)
            else:
                found[key] = from_plain(_KINDS[part], item)
        parts[part] = found
    records = Records(
        jobs=parts["records.jobs"],
        reserved=frozenset(row["reserved"]),
        drains=parts["records.drains"],
        agents=parts["records.agents"],
        labels=parts["records.labels"],
    )
    return replace(
        seen,
        jobs=parts["jobs"],
        nodes=parts["nodes"],
        pods=parts["pods"],
        memory=OperatorMemory(objects=parts["memory"], nodes=parts["memory.nodes"]),
        records=records,
        is_etcd_away=bool(row["is_etcd_away"]),
    )


def _shown(seen: ObservedCluster, row: Mapping[str, Any]) -> ObservedCluster:
    return seen if row["has_records"] else replace(seen, records=None)


def _named(action: Action) -> list[object]:
    return [type(action).__name__, to_plain(action)]


def _loaded(number: int, text: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except ValueError as exc:
        raise NotSupported(f"Line {number} of the journal is not JSON: {exc}.") from exc
    if not isinstance(row, dict):
        raise NotSupported(f"Line {number} of the journal is not a JSON object.")
    return row


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)

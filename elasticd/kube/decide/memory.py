"""The operator's memory of its own actions. Without it, the operator writes more than necessary."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from elasticd.kube.decide.action import (
    Action,
    AddFinalizer,
    ApplyReplicas,
    ApplyStatus,
    DrainNode,
    TellEvent,
    UndrainNode,
    WriteJob,
)
from elasticd.kube.resource.elastic_job import ElasticJob
from elasticd.records.ids import NodeId

__all__ = [
    "NodeMemory",
    "ObjectMemory",
    "OperatorMemory",
    "refused",
    "remembered",
    "with_nodes",
    "without",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMemory:
    """The operator's actions on one object."""

    status_s: float | None = None
    """The time of the last write of the status, in seconds of the operator's own clock."""
    status_version: str = ""
    """The object's resourceVersion at the decision on that write: while it stays the same, the
    operator has not observed the write yet."""
    replicas: int | None = None
    """The last applied value of `spec.replicas`."""
    replicas_generation: int = 0
    """The object's generation at the decision on that value."""
    told: Mapping[str, str] = field(default_factory=dict)
    """The newest event of each topic."""
    generation: int = 0
    """The generation of the newest world that had an event."""
    refusal: str = ""
    """Why the last submission of the job failed, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMemory:
    """The memory of one node: whether it was ever observed, and when it was drained."""

    was_seen: bool = False
    """True if its Node object was observed; if the object is missing now, it was deleted."""
    missed_s: float | None = None
    """The time since which the node is missing, in seconds of the operator's own clock."""
    silent_s: float | None = None
    """The time since which the node is not ready while most nodes are, by the same clock."""
    drained_s: float | None = None
    """The time of the operator's last drain of the node, by the same clock; None if it withdrew the
    drain."""
    why: str = ""
    """The cause of that drain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorMemory:
    """The operator's actions since its start, by the objects' uids, and its memory of nodes."""

    objects: Mapping[str, ObjectMemory] = field(default_factory=dict)
    nodes: Mapping[NodeId, NodeMemory] = field(default_factory=dict)
    """The nodes with a Node object, and those with an agent's pod."""


def remembered(
    memory: OperatorMemory, action: Action, seen: Mapping[str, ElasticJob], *, now_s: float
) -> OperatorMemory:
    """Return the memory after an action has succeeded; `seen` are the objects at its decision."""
    match action:
        case ApplyStatus():
            found = seen.get(action.job.uid)
            version = found.resource_version if found is not None else ""
            return _changed(memory, action.job.uid, status_s=now_s, status_version=version)
        case AddFinalizer() | ApplyReplicas() if action.replicas is not None:
            return _changed(
                memory,
                action.job.uid,
                replicas=action.replicas,
                replicas_generation=action.at_generation,
            )
        case TellEvent():
            before = memory.objects.get(action.job.uid, ObjectMemory())
            if action.generation:
                return _changed(memory, action.job.uid, generation=action.generation)
            told = {**before.told, action.topic: action.content}
            return _changed(memory, action.job.uid, told=told)
        case WriteJob():
            return _changed(memory, action.job.uid, refusal="")
        case DrainNode() | UndrainNode():
            known = memory.nodes.get(action.node, NodeMemory())
            if isinstance(action, DrainNode):
                after = replace(known, drained_s=now_s, why=action.why)
            else:
                after = replace(known, drained_s=None, why="")
            return replace(memory, nodes={**memory.nodes, action.node: after})
        case _:
            return memory


def refused(memory: OperatorMemory, action: Action, why: str) -> OperatorMemory:
    """Return the memory after an action has failed; `why` is a sentence for the object's status."""
    return _changed(memory, action.job.uid, refusal=why) if isinstance(action, WriteJob) else memory


def with_nodes(
    memory: OperatorMemory,
    present: Collection[NodeId],
    serving: Collection[NodeId],
    *,
    silent: Collection[NodeId] = (),
    now_s: float,
) -> OperatorMemory:
    """Note the present nodes and the nodes with an agent's pod; forget nodes that are neither.

    `silent` are the present nodes that are not ready, as long as they are fewer than half of all.
    """
    known = {name: memory.nodes.get(name, NodeMemory()) for name in {*present, *serving}}
    nodes = {}
    for name, before in known.items():
        if name in present:
            since_s = _since_s(before.silent_s, now_s) if name in silent else None
            nodes[name] = replace(before, was_seen=True, missed_s=None, silent_s=since_s)
        else:
            missed_s = _since_s(before.missed_s, now_s)
            nodes[name] = replace(before, missed_s=missed_s, silent_s=None)
    return memory if nodes == memory.nodes else replace(memory, nodes=nodes)


def without(memory: OperatorMemory, seen: Mapping[str, ElasticJob]) -> OperatorMemory:
    """Forget objects that are gone."""
    kept = {uid: one for uid, one in memory.objects.items() if uid in seen}
    return memory if len(kept) == len(memory.objects) else replace(memory, objects=kept)


def _since_s(before_s: float | None, now_s: float) -> float:
    return now_s if before_s is None else before_s


def _changed(memory: OperatorMemory, uid: str, **changes: object) -> OperatorMemory:
    before = memory.objects.get(uid, ObjectMemory())
    # The keys are names of fields, which `replace` checks.
    after = replace(before, **changes)  # type: ignore[arg-type]
    return replace(memory, objects={**memory.objects, uid: after})

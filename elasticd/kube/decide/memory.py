"""What the operator remembers of what it did. Without it, it writes more than necessary."""

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
    """What the operator did to one object."""

    status_s: float | None = None
    """When the status was last written, by the operator's own clock."""
    status_version: str = ""
    """The object's resourceVersion when that was decided: as long as it is the same, the write was
    not seen yet."""
    replicas: int | None = None
    """What was last applied as `spec.replicas`."""
    replicas_generation: int = 0
    """The object's generation when that was decided."""
    told: Mapping[str, str] = field(default_factory=dict)
    """The newest event of each topic."""
    generation: int = 0
    """The newest world that an event was about."""
    refusal: str = ""
    """Why the job could not be submitted when that was last tried, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMemory:
    """Whether a node was ever there, and when it was drained."""

    was_seen: bool = False
    """True if its object was seen; if it is missing now, it was deleted."""
    missed_s: float | None = None
    """Since when it was missing, by the operator's own clock."""
    silent_s: float | None = None
    """Since when it was not ready while most nodes were, by the same clock."""
    drained_s: float | None = None
    """When the operator last drained it, by the same clock; None if it took that back."""
    why: str = ""
    """The cause of that drain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorMemory:
    """What the operator did in its life, by the objects' uid. Without it, it only writes more."""

    objects: Mapping[str, ObjectMemory] = field(default_factory=dict)
    nodes: Mapping[NodeId, NodeMemory] = field(default_factory=dict)
    """The nodes that are there, and those on which an agent's pod is."""


def remembered(
    memory: OperatorMemory, action: Action, seen: Mapping[str, ElasticJob], *, now_s: float
) -> OperatorMemory:
    """Return the memory after an action has succeeded, decided when `seen` were the objects."""
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
    """Note which nodes are there, and on which agents' pods are; forget those that are neither.

    `silent`: those that are there and not ready, as long as they are fewer than half of all.
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
    # The names are the fields', which `replace` checks.
    after = replace(before, **changes)  # type: ignore[arg-type]
    return replace(memory, objects={**memory.objects, uid: after})

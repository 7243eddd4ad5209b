"""What the operator remembers of what it did. Without it, it writes and tells more than it need."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elasticd.kube.decide.action import Action, ApplyReplicas, ApplyStatus, TellEvent, WriteJob
from elasticd.kube.resource.elastic_job import ElasticJob

__all__ = ["Memory", "ObjectMemory", "refused", "remembered", "without"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMemory:
    """What the operator did to one object."""

    status_s: float | None = None
    """When the status was last written, by the operator's own clock."""
    status_version: str = ""
    """The object's resourceVersion when that was decided: with the same one it was not seen yet."""
    replicas: int | None = None
    """What was last applied as `spec.replicas`."""
    replicas_generation: int = 0
    """The object's generation when that was decided."""
    told: Mapping[str, str] = field(default_factory=dict)
    """The newest event of each topic."""
    generation: int = 0
    """The newest world that an event told of."""
    refusal: str = ""
    """Why the job could not be submitted when that was last tried, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the operator did in its life, by the objects' uid. Without it, it only tells more."""

    objects: Mapping[str, ObjectMemory] = field(default_factory=dict)


def remembered(
    memory: Memory, action: Action, seen: Mapping[str, ElasticJob], *, now_s: float
) -> Memory:
    """Return the memory after an action has succeeded, decided when `seen` were the objects."""
    match action:
        case ApplyStatus():
            found = seen.get(action.job.uid)
            version = found.resource_version if found is not None else ""
            return _changed(memory, action.job.uid, status_s=now_s, status_version=version)
        case ApplyReplicas():
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
            told = {**before.told, action.topic: action.said}
            return _changed(memory, action.job.uid, told=told)
        case WriteJob():
            return _changed(memory, action.job.uid, refusal="")
        case _:
            return memory


def refused(memory: Memory, action: Action, why: str) -> Memory:
    """Return the memory after an action has failed; `why` is a sentence for the object's status."""
    return _changed(memory, action.job.uid, refusal=why) if isinstance(action, WriteJob) else memory


def without(memory: Memory, seen: Mapping[str, ElasticJob]) -> Memory:
    """Forget objects that are gone."""
    kept = {uid: one for uid, one in memory.objects.items() if uid in seen}
    return memory if len(kept) == len(memory.objects) else Memory(objects=kept)


def _changed(memory: Memory, uid: str, **changes: object) -> Memory:
    before = memory.objects.get(uid, ObjectMemory())
    # The names are the fields', which `replace` checks.
    after = replace(before, **changes)  # type: ignore[arg-type]
    return Memory(objects={**memory.objects, uid: after})

"""What the operator can do: each is one write, to the API server or to etcd, and can be repeated.

Writes to etcd hold only while the operator leads (the election's key in the same transaction), and
only for the job of that uid. A write that fails is not tried again by itself: what it should have
changed is still as it was, so the next decision requests it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from elasticd.kube.resource.elastic_job import JobKey
from elasticd.kube.resource.status import ElasticJobStatus
from elasticd.records.autoscale.policy import Policy
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import JobSpec

__all__ = [
    "Action",
    "AddFinalizer",
    "ApplyReplicas",
    "ApplyStatus",
    "DeleteObject",
    "DrainNode",
    "LabelNode",
    "RemoveFinalizer",
    "RemovePolicy",
    "StopJob",
    "TellEvent",
    "ToApi",
    "ToEtcd",
    "UndrainNode",
    "WriteJob",
    "WritePolicy",
    "WriteWant",
]


# --- to the API server ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFinalizer:
    """Keep the object after its deletion until its job has stopped."""

    job: JobKey
    replicas: int | None = None
    """`spec.replicas`, filled in by the same write; None if the object has it."""
    at_generation: int = 0
    """The object's generation, as in `ApplyReplicas`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFinalizer:
    """Let the deleted object go."""

    job: JobKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyReplicas:
    """Apply `spec.replicas`, and nothing else, by force."""

    job: JobKey
    replicas: int
    at_generation: int
    """The object's generation when this was decided: as long as it is the same, the write was not
    seen yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyStatus:
    """Apply the whole status."""

    job: JobKey
    status: ElasticJobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteObject:
    """Delete the object of a finished job."""

    job: JobKey


@dataclass(frozen=True, slots=True, kw_only=True)
class TellEvent:
    """Write an event about the object."""

    job: JobKey
    reason: str
    """One word in CamelCase, from a closed list."""
    message: str
    is_warning: bool = False
    topic: str = ""
    """What this is about: the newest event of each topic is remembered, and not written twice in a
    row."""
    mark: str = ""
    """Distinguishes it from an event that says the same, if both are to be written."""
    generation: int = 0
    """The world that this event is about; 0 for none."""

    @property
    def content(self) -> str:
        """Return what distinguishes it from others of its topic."""
        return f"{self.reason}: {self.message}{self.mark}"


# --- to etcd ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """Submit a job, as `elasticd run --detach` does; the records of an ended one are removed."""

    job: JobKey
    spec: JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePolicy:
    job: JobName
    policy: Policy
    """The policy; its uid is the job's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePolicy:
    """Take the policy back, and the autoscaler's want."""

    job: JobName
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteWant:
    """Write the operator's wish for a size; None takes it back."""

    job: JobName
    uid: str
    nodes: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopJob:
    """Write the wish that the job ends; if no node serves it, end it at once (`elasticd stop`)."""

    job: JobName
    uid: str
    why: str
    gone: JobKey | None = None
    """True if the job must be stopped only if the API server itself says that this object does not
    exist: what was seen may be old, since another leader may have submitted the job of an object
    that is not seen here yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainNode:
    """Write the wish that a node takes no more work, unless somebody else wishes so already."""

    node: NodeId
    why: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UndrainNode:
    """Withdraw the drain of a node, if it still is the operator's own (`by`)."""

    node: NodeId
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelNode:
    """Give a node's agent its labels in Kubernetes; with none, take them back."""

    node: NodeId
    labels: Mapping[str, str]
    by: str


ToApi = AddFinalizer | RemoveFinalizer | ApplyReplicas | ApplyStatus | DeleteObject | TellEvent
ToEtcd = (
    WriteJob
    | WritePolicy
    | RemovePolicy
    | WriteWant
    | StopJob
    | DrainNode
    | UndrainNode
    | LabelNode
)
Action = ToApi | ToEtcd

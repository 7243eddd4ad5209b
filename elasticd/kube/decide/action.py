"""What the operator can do: each is one write, to the API server or to etcd, and can be repeated.

Writes to etcd hold only while the operator leads (the election's key in the same transaction), and
only for the job of that uid. A write that fails is not tried again by itself: what it should have
changed is still as it was, so the next decision asks for it again.
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
    "UndrainNode",
    "WriteJob",
    "WritePolicy",
    "WriteWant",
]


# --- to the API server ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFinalizer:
    """Have the object stay, once it is deleted, until its job has stopped."""

    job: JobKey
    replicas: int | None = None
    """Fill in `spec.replicas` by the same write; None: the object has it."""
    at_generation: int = 0
    """As `ApplyReplicas` has it."""


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
    """The object's, when this was decided: with the same one the write was not seen yet."""


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
    """What this is about: of each topic the newest is remembered, and not told twice in a row."""
    mark: str = ""
    """Tells it from one that says the same, where both are to be told."""
    generation: int = 0
    """The world that this tells of; 0: of none."""

    @property
    def said(self) -> str:
        """What tells it from others of its topic."""
        return f"{self.reason}: {self.message}{self.mark}"


# --- to etcd ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """Submit a job, as `elasticd run --detach` does; the records of an ended one go."""

    job: JobKey
    spec: JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePolicy:
    job: JobName
    policy: Policy
    """Its uid is the job's."""


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
    """Wish that the job ends; where no node serves it, end it at once (`elasticd stop`)."""

    job: JobName
    uid: str
    why: str
    gone: JobKey | None = None
    """Only if the API server itself says that this object is not there: what was seen may be old,
    since another leader may have submitted the job of an object that is not seen here yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainNode:
    """Wish that a node takes no more work; not where somebody else wishes so already."""

    node: NodeId
    why: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UndrainNode:
    """Take that wish back, if it still is the one `by` the operator."""

    node: NodeId
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelNode:
    """Tell a node's agent which labels its node has in Kubernetes; with none, take that back."""

    node: NodeId
    labels: Mapping[str, str]
    by: str


Action = (
    AddFinalizer
    | RemoveFinalizer
    | ApplyReplicas
    | ApplyStatus
    | DeleteObject
    | TellEvent
    | WriteJob
    | WritePolicy
    | RemovePolicy
    | WriteWant
    | StopJob
    | DrainNode
    | UndrainNode
    | LabelNode
)

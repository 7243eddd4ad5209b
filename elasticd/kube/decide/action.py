"""The operator's actions: each is one write, to the API server or to etcd, and can be repeated.

Writes to etcd hold only while the operator leads (the election's key is in the same transaction),
and only for the job of that uid. A write that fails is not retried on its own: the observed cluster
is unchanged then, so the next decision requests the write again.
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
    """The `spec.replicas` that the same write sets; None if the object has it."""
    at_generation: int = 0
    """The object's generation, as in `ApplyReplicas`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFinalizer:
    """Let the API server remove the deleted object."""

    job: JobKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyReplicas:
    """Apply `spec.replicas`, and nothing else, by force."""

    job: JobKey
    replicas: int
    at_generation: int
    """The object's generation at the time of the decision: while it stays the same, the operator
    has not observed the write yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyStatus:
    """Replace the status of an ElasticJob by this one."""

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
    """The topic of the event: the operator remembers the newest event of each topic, and does not
    write the same event twice in a row."""
    mark: str = ""
    """A text that distinguishes two events with the same message, if both must be written."""
    generation: int = 0
    """The generation of the world that this event is about; 0 for none."""

    @property
    def content(self) -> str:
        """Return the text that distinguishes the event from others of its topic."""
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
    """Remove the policy, and the autoscaler's want."""

    job: JobName
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteWant:
    """Write the operator's want for a size; None removes it."""

    job: JobName
    uid: str
    nodes: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopJob:
    """Write the want that the job ends (`elasticd stop`)."""

    job: JobName
    uid: str
    why: str
    may_end: bool
    """True if the job is ended at once where no node serves it."""
    gone: JobKey | None = None
    """The object that must not exist, which the API server is asked about first; None if the job is
    stopped in any case. The operator's view may be old: another leader may have submitted the job
    of an object that this operator has not observed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainNode:
    """Request the drain of a node, unless somebody else has requested it."""

    node: NodeId
    why: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UndrainNode:
    """Withdraw the drain of a node, if the operator requested it (`by`)."""

    node: NodeId
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelNode:
    """Write the labels of a node in Kubernetes for its agent; without any, remove the record."""

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

"""The status of an ElasticJob as dataclasses; the operator alone writes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from elasticd.kube.resource.json_form import to_json

__all__ = [
    "CheckpointStatus",
    "Condition",
    "ConditionType",
    "ElasticJobStatus",
    "ElasticPhase",
    "status_json",
]


class ElasticPhase(StrEnum):
    """Where the job of an object stands."""

    PENDING = "Pending"
    """The job is not submitted yet, or submitted and without its first world."""
    RUNNING = "Running"
    WAITING = "Waiting"
    """It had a world, and has too few nodes for the next one. It goes on by itself."""
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"
    """Somebody stopped it (`elasticd stop`)."""
    INVALID = "Invalid"
    """It is not submitted, because of what the condition Invalid says."""
    LOST = "Lost"
    """It was submitted, and etcd has no record of it any more; nobody saw its end."""

    @property
    def is_final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset({ElasticPhase.SUCCEEDED, ElasticPhase.FAILED, ElasticPhase.STOPPED})


class ConditionType(StrEnum):
    """The types that `kubectl wait --for=condition=...` takes."""

    RUNNING = "Running"
    WAITING = "Waiting"
    COMPLETE = "Complete"
    FAILED = "Failed"
    INVALID = "Invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition as Kubernetes has them; `kubectl wait --for=condition=TYPE` reads it."""

    type: str
    status: str
    """True or False."""
    reason: str = ""
    """One word."""
    message: str = ""
    """One sentence."""
    last_transition_time: str = ""
    observed_generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStatus:
    """The newest durable checkpoint."""

    step: int | None = None
    """The step; None if not known."""
    time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJobStatus:
    observed_generation: int = 0
    """The object's generation when this was written."""
    job: str = ""
    """The job's name in etcd, which `elasticd status`, `why` and `logs` take."""
    phase: str = ""
    message: str = ""
    """One sentence: what it waits for, why it ended, what is wrong."""
    size: str = ""
    """`nodes/wanted`, for the table of kubectl."""
    nodes: int = 0
    """The nodes of the world."""
    wanted: int = 0
    """The number of nodes that all wants together result in."""
    generation: int = 0
    """The generation of the world."""
    step: int | None = None
    """The applied steps; None if not known."""
    steps_per_second: float | None = None
    goodput: float | None = None
    """Between 0 and 1."""
    losses_by_reason: Mapping[str, int] = field(default_factory=dict)
    """Changes of world that nobody planned, by their reason."""
    checkpoint: CheckpointStatus | None = None
    replicas: int = 0
    """The same as `nodes`: what /scale shows as the current size."""
    selector: str = ""
    start_time: str = ""
    """When the job was submitted to elasticd."""
    completion_time: str = ""
    """When its end was first seen."""
    conditions: tuple[Condition, ...] = ()
    unknown: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_final(self) -> bool:
        """Return whether the job was seen to be over; an unknown word of another version counts as
        no.
        """
        return self.phase in _FINAL

    def condition(self, kind: str) -> Condition | None:
        return next((one for one in self.conditions if one.type == kind), None)


def status_json(status: ElasticJobStatus) -> dict[str, Any]:
    """Return what the API takes as the status; 0 and empty mean something here and stay."""
    found: dict[str, Any] = to_json(status)
    return found

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
    """The phase of an object's job."""

    PENDING = "Pending"
    """The job is not submitted yet, or it is submitted and has no world yet."""
    RUNNING = "Running"
    WAITING = "Waiting"
    """The job had a world, and has too few nodes for the next one. It goes on without help once
    there are enough nodes."""
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"
    """Somebody stopped the job (`elasticd stop`)."""
    INVALID = "Invalid"
    """The job is not submitted, for the reason in the condition Invalid."""
    LOST = "Lost"
    """The job was submitted, and etcd has no record of it any more; its end was not observed."""

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
    """A condition in the form of Kubernetes; `kubectl wait --for=condition=TYPE` reads it."""

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
    """The object's generation at the time of this status."""
    job: str = ""
    """The job's name in etcd, which the commands `elasticd status`, `why` and `logs` take."""
    phase: str = ""
    message: str = ""
    """One sentence: why the job waits, why it ended, or the error in the object."""
    size: str = ""
    """The text `nodes/wanted`, for the table of kubectl."""
    nodes: int = 0
    """The number of nodes in the world."""
    wanted: int = 0
    """The number of nodes that results from all wants."""
    generation: int = 0
    """The generation of the world."""
    step: int | None = None
    """The applied steps; None if not known."""
    steps_per_second: float | None = None
    goodput: float | None = None
    """The goodput, between 0 and 1."""
    losses_by_reason: Mapping[str, int] = field(default_factory=dict)
    """The numbers of unplanned changes of world, by reason."""
    checkpoint: CheckpointStatus | None = None
    replicas: int = 0
    """The same as `nodes`: /scale shows it as the current size."""
    selector: str = ""
    start_time: str = ""
    """The time at which the job was submitted to elasticd."""
    completion_time: str = ""
    """The time at which its end was first observed."""
    conditions: tuple[Condition, ...] = ()
    unknown: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_final(self) -> bool:
        """Return whether the status says that the job is over; an unknown phase counts as no."""
        return self.phase in _FINAL

    def condition(self, kind: str) -> Condition | None:
        return next((one for one in self.conditions if one.type == kind), None)


def status_json(status: ElasticJobStatus) -> dict[str, Any]:
    """Return the status in the API's form; 0 and empty texts have a meaning here and are kept."""
    found: dict[str, Any] = to_json(status)
    return found

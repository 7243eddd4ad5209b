"""What the API server says of agents' pods and of ElasticJobs, as far as chaos looks at it. Pure.

A field that is missing, or that a newer version writes in another way, is read as not known.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ALLOWED",
    "FINAL",
    "LABEL",
    "RUNNING",
    "AgentPod",
    "JobView",
    "Observation",
    "Worker",
    "agent_pods",
    "job_view",
    "workers",
]

LABEL, ALLOWED = "elasticd.dev/chaos", "allowed"
"""The label without which a job is left alone."""
RUNNING = "Running"
FINAL = frozenset({"Succeeded", "Failed", "Stopped", "Lost"})

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPod:
    """The pod of an agent that stands on a node."""

    name: str
    uid: str
    node: str
    is_ready: bool
    is_deleted: bool
    """Somebody wants it gone; it may still run."""

    @property
    def serves(self) -> bool:
        return self.is_ready and not self.is_deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One ElasticJob, as its operator last wrote its status."""

    name: str
    uid: str = ""
    is_allowed: bool = False
    """It has the label `elasticd.dev/chaos: allowed`."""
    has_checkpoint: bool = False
    job: str = ""
    """Its name in etcd, which its workers have in their titles."""
    phase: str = ""
    message: str = ""
    nodes: int = 0
    wanted: int = 0
    generation: int = 0
    step: int | None = None
    is_measured: bool = False
    """The step is what the ranks themselves reported, and no older record of etcd."""
    losses: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """It runs with all the nodes that it is to have."""
        return self.phase == RUNNING and 0 < self.wanted == self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process in an agent's pod that trains, or waits to."""

    pid: int
    ticks: int
    """When it began, by the kernel's count: another process with its pid has another number."""
    job: str
    """The job's name in etcd; empty: it cannot be told."""
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One look at the cluster."""

    pods: Sequence[AgentPod]
    jobs: Mapping[str, JobView]

    @property
    def serving(self) -> Mapping[str, AgentPod]:
        """The pods that are ready and stay, by their node."""
        return {pod.node: pod for pod in self.pods if pod.serves}

    @property
    def absent(self) -> frozenset[str]:
        """The nodes whose agent's pod is not ready, or goes, and has no successor that is ready."""
        return frozenset(pod.node for pod in self.pods) - self.serving.keys()


def agent_pods(items: Iterable[Object]) -> tuple[AgentPod, ...]:
    """Read a list of pods; one that stands on no node yet is left out."""
    found = []
    for item in items:
        node = str(_of(item, "spec").get("nodeName") or "")
        metadata, conditions = _of(item, "metadata"), _of(item, "status").get("conditions") or ()
        if not node:
            continue
        found.append(
            AgentPod(
                name=str(metadata.get("name") or ""),
                uid=str(metadata.get("uid") or ""),
                node=node,
                is_ready=any(
                    (one.get("type"), one.get("status")) == ("Ready", "True") for one in conditions
                ),
                is_deleted="deletionTimestamp" in metadata,
            )
        )
    return tuple(sorted(found, key=lambda pod: (pod.node, pod.name)))


def job_view(item: Object) -> JobView:
    """Read an ElasticJob."""
    metadata, spec, status = (_of(item, part) for part in ("metadata", "spec", "status"))
    return JobView(
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        is_allowed=_of(metadata, "labels").get(LABEL) == ALLOWED,
        has_checkpoint=bool(_of(spec, "checkpoint").get("url")),
        job=str(status.get("job") or ""),
        phase=str(status.get("phase") or ""),
        message=str(status.get("message") or ""),
        nodes=_number(status.get("nodes")) or 0,
        wanted=_number(status.get("wanted")) or 0,
        generation=_number(status.get("generation")) or 0,
        step=_number(status.get("step")),
        # The operator writes a rate where it has heard from the ranks, and nowhere else.
        is_measured=status.get("stepsPerSecond") is not None,
        losses={
            str(reason): count
            for reason, given in _of(status, "lossesByReason").items()
            if (count := _number(given)) is not None
        },
    )


def workers(found: Iterable[Object]) -> tuple[Worker, ...]:
    """Read what the program inside the pod has found there."""
    return tuple(
        Worker(
            pid=int(one["pid"]),
            ticks=int(one["ticks"]),
            job=str(one["job"]),
            rank=_number(one.get("rank")),
        )
        for one in found
    )


def _of(item: Object, part: str) -> Object:
    found = item.get(part)
    return found if isinstance(found, Mapping) else {}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None

"""ElasticJob as dataclasses: the object, its spec, its status.

The names are the API's, spelled as Python does (`json_form`). What each field means, its unit and
its default stand once, in `field`; here is what a spec without it comes to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticd.kube.resource.json_form import from_json, to_json
from elasticd.kube.resource.timestamp import unix_s

__all__ = [
    "AutoscaleField",
    "CheckpointField",
    "CheckpointStatus",
    "Condition",
    "ElasticJob",
    "ElasticJobSpec",
    "ElasticJobStatus",
    "EnvVar",
    "EnvVarSource",
    "JobKey",
    "LimitsField",
    "NodesField",
    "SecretKeyRef",
    "TimeoutsField",
    "elastic_job",
    "status_json",
]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class JobKey:
    """Where an object is; `uid` tells it from one of the same name that came before."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKeyRef:
    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvVarSource:
    secret_key_ref: SecretKeyRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvVar:
    name: str
    value: str | None = None
    value_from: EnvVarSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesField:
    min: int | None = None
    max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointField:
    url: str = ""
    every: str = "60s"
    keep: int = 3
    keep_every_steps: int = 0
    copy: str = "auto"
    timeout_s: float = 120.0
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsField:
    max_restarts: int = 3
    max_node_losses: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutsField:
    shutdown_s: float = 30.0
    formation_s: float = 60.0
    join_window_s: float = 0.2
    isolation_s: float = 60.0
    progress_s: float = 60.0
    output_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleField:
    policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJobSpec:
    script: str = ""
    module: str = ""
    command: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    python: str = ""
    working_dir: str = ""
    preload: tuple[str, ...] = ()
    nodes: NodesField = field(default_factory=NodesField)
    replicas: int | None = None
    slots_per_node: int = 1
    checkpoint: CheckpointField | None = None
    limits: LimitsField = field(default_factory=LimitsField)
    timeouts: TimeoutsField = field(default_factory=TimeoutsField)
    autoscale: AutoscaleField | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    priority: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    unknown: Mapping[str, object] = field(default_factory=dict)

    @property
    def min_nodes(self) -> int:
        """As of `elasticd run --nnodes`: one number means exactly so many."""
        least, most = self.nodes.min, self.nodes.max
        return least if least is not None else most if most is not None else 1

    @property
    def max_nodes(self) -> int:
        most = self.nodes.max
        return most if most is not None else self.min_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """As of all conditions of Kubernetes; `kubectl wait --for=condition=TYPE` reads it."""

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
    """None: not known."""
    time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJobStatus:
    observed_generation: int = 0
    """Of the object, when this was written."""
    job: str = ""
    """Its name in etcd: what `elasticd status`, `why` and `logs` take."""
    phase: str = ""
    message: str = ""
    """One sentence: for whom it waits, why it ended, what is wrong."""
    size: str = ""
    """`nodes/wanted`, for the table of kubectl."""
    nodes: int = 0
    """Nodes of the world."""
    wanted: int = 0
    """Nodes that the wants come to."""
    generation: int = 0
    """Of the world."""
    step: int | None = None
    """Applied steps; None: not known."""
    steps_per_second: float | None = None
    goodput: float | None = None
    """Between 0 and 1."""
    losses_by_reason: Mapping[str, int] = field(default_factory=dict)
    """Changes of world that nobody planned, by their reason."""
    checkpoint: CheckpointStatus | None = None
    replicas: int = 0
    """As `nodes`: what /scale shows as the current size."""
    selector: str = ""
    start_time: str = ""
    """When the job was submitted to elasticd."""
    completion_time: str = ""
    """When its end was first seen."""
    conditions: tuple[Condition, ...] = ()
    unknown: Mapping[str, object] = field(default_factory=dict)

    def condition(self, kind: str) -> Condition | None:
        return next((one for one in self.conditions if one.type == kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob:
    """One object, as far as the operator looks at it."""

    namespace: str
    name: str
    uid: str
    generation: int = 0
    """Of its spec; the API server counts it."""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    created_unix_s: float = 0.0
    deleted_unix_s: float | None = None
    """When somebody asked for its deletion; None: nobody did."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """The spec as it stands in the API."""
    spec: ElasticJobSpec | None = None
    """None: it does not have the form of one (`misfit`)."""
    misfit: str = ""
    """What of it does not fit, for people."""
    status: ElasticJobStatus = field(default_factory=ElasticJobStatus)

    @property
    def key(self) -> JobKey:
        return JobKey(namespace=self.namespace, name=self.name, uid=self.uid)


def elastic_job(plain: Mapping[str, Any]) -> ElasticJob:
    """Read an object of the API; one whose spec makes no sense is read as far as it does.

    Raises:
        ValueError: it has no name, which no object of the API lacks.
    """
    meta = plain.get("metadata")
    if not isinstance(meta, Mapping) or not meta.get("name"):
        raise ValueError("The object has no metadata.name: it is none of the Kubernetes API.")
    given = plain.get("spec")
    spec, misfit = _spec(given)
    deleted = meta.get("deletionTimestamp")
    return ElasticJob(
        namespace=str(meta.get("namespace") or "default"),
        name=str(meta["name"]),
        uid=str(meta.get("uid") or ""),
        generation=_whole(meta.get("generation")),
        resource_version=str(meta.get("resourceVersion") or ""),
        labels=_texts(meta.get("labels")),
        annotations=_texts(meta.get("annotations")),
        finalizers=tuple(str(each) for each in meta.get("finalizers") or ()),
        created_unix_s=unix_s(str(meta.get("creationTimestamp") or "")) or 0.0,
        deleted_unix_s=(unix_s(str(deleted)) or 0.0) if deleted else None,
        given=given if isinstance(given, Mapping) else {},
        spec=spec,
        misfit=misfit,
        status=_status(plain.get("status")),
    )


def status_json(status: ElasticJobStatus) -> dict[str, Any]:
    """Return what the API takes as the status; 0 and empty mean something here and stay."""
    found: dict[str, Any] = to_json(status)
    return found


# --- private ----------------------------------------------------------------------------------


def _spec(given: object) -> tuple[ElasticJobSpec | None, str]:
    if not isinstance(given, Mapping):
        return None, "spec is missing: say at least script, module or command."
    try:
        return from_json(ElasticJobSpec, given), ""
    except (TypeError, ValueError, KeyError) as exc:
        return None, f"The spec cannot be read: {exc}."


def _status(given: object) -> ElasticJobStatus:
    """Read what an operator wrote; what makes no sense is written anew."""
    try:
        found: ElasticJobStatus = from_json(ElasticJobStatus, given or {})
    except (TypeError, ValueError, KeyError):
        return ElasticJobStatus()
    return found


def _texts(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {str(key): str(item) for key, item in value.items()}


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0

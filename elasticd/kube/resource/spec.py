"""The spec of an ElasticJob as dataclasses, with the defaults of absent fields.

The names are the API's, in Python's spelling (`json_form`). `schema.field` has the meaning, unit
and limits of each field.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "AutoscaleField",
    "CheckpointField",
    "ElasticJobSpec",
    "EnvVar",
    "EnvVarSource",
    "LimitsField",
    "NodesField",
    "SecretKeyRef",
    "TimeoutsField",
    "digests",
]

DIGESTED_LENGTH = 1024
"""A text of more characters than this is replaced by its digest."""


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

    @property
    def is_secret(self) -> bool:
        return self.value_from is not None and self.value_from.secret_key_ref is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesField:
    min: int | None = None
    max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointField:
    url: str = ""
    every: str = "60s"
    upload_every: str | None = None
    mirror_bandwidth: str | None = None
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
        return self.nodes.min if self.nodes.min is not None else 1

    @property
    def max_nodes(self) -> int:
        return self.nodes.max if self.nodes.max is not None else self.min_nodes


def digests(files: Mapping[str, str]) -> Mapping[str, str]:
    """Return files with digests in place of long texts; digests stay as they are.

    That is enough to see whether the files of a submitted job were changed. An operator holds all
    objects, and their files may have a megabyte each.
    """
    return {
        name: _digest(text) if isinstance(text, str) and len(text) > DIGESTED_LENGTH else text
        for name, text in files.items()
    }


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

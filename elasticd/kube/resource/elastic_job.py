"""One object ElasticJob, as the operator reads it: its spec, what is wrong with it, its status."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticd.kube.resource.json_form import from_json
from elasticd.kube.resource.schema.check import wrong
from elasticd.kube.resource.spec import ElasticJobSpec
from elasticd.kube.resource.status import ElasticJobStatus
from elasticd.kube.resource.timestamp import unix_s

__all__ = ["ElasticJob", "JobKey", "elastic_job"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class JobKey:
    """Where an object is; `uid` distinguishes it from an earlier one of the same name."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob:
    """One object, as far as the operator looks at it."""

    namespace: str
    name: str
    uid: str
    generation: int = 0
    """The generation of its spec; the API server counts it."""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    created_unix_s: float = 0.0
    deleted_unix_s: float | None = None
    """When somebody asked for its deletion; None if nobody did."""
    spec: ElasticJobSpec | None = None
    """The spec; None if it does not have the form of one."""
    wrong: str = ""
    """Why it cannot be submitted, as one sentence; empty if it can. Never empty if `spec` is
    None."""
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
    spec, sentence = _spec(given)
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
        spec=spec,
        wrong=sentence,
        status=_status(plain.get("status")),
    )


# --- private ----------------------------------------------------------------------------------


def _spec(given: object) -> tuple[ElasticJobSpec | None, str]:
    """Return the spec, and what is wrong with it."""
    if not isinstance(given, Mapping) or not given:
        return None, "spec is missing: say at least script, module or command."
    try:
        spec: ElasticJobSpec = from_json(ElasticJobSpec, given)
    except (TypeError, ValueError, KeyError) as exc:
        return None, wrong(given, None) or f"The spec cannot be read: {exc}."
    try:
        return spec, wrong(given, spec)
    except Exception as exc:  # A bug of ours: one team's object must not stop those of all others.
        return None, f"The spec cannot be checked ({type(exc).__name__}: {exc})."


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

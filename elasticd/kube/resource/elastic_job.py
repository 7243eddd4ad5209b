"""One object ElasticJob, as the operator reads it: its spec, the error in it, its status."""

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
    """The key of an object; `uid` distinguishes it from an earlier object of the same name."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob:
    """One object, with the fields that the operator reads."""

    namespace: str
    name: str
    uid: str
    generation: int = 0
    """The generation of the spec, which the API server counts."""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    created_unix_s: float = 0.0
    deleted_unix_s: float | None = None
    """The time at which its deletion was requested, in seconds since 1970; None if it was not."""
    spec: ElasticJobSpec | None = None
    """The spec; None if the JSON does not have the form of a spec."""
    wrong: str = ""
    """Why the job cannot be submitted, as one sentence; empty if it can. Never empty if `spec` is
    None."""
    status: ElasticJobStatus = field(default_factory=ElasticJobStatus)

    @property
    def key(self) -> JobKey:
        return JobKey(namespace=self.namespace, name=self.name, uid=self.uid)


def elastic_job(plain: Mapping[str, Any]) -> ElasticJob:
    """Build an `ElasticJob` from an object of the API; an invalid spec is read as far as possible.

    Raises: ValueError: the object has no name, which no object of the API lacks.
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
    """Return the spec, and the error in it."""
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
    """Read a status that an operator wrote; fields that are not valid get their defaults."""
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

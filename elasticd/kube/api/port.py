"""What the operator may ask of Kubernetes' API server.

Two implementations pass the same contract tests. Objects are the JSON of the API, as mappings that
nobody changes. A watch *begins with a listing* and begins again with one whenever continuity was
lost (410 Gone, a silent connection), as the watch of `elasticd.store` does, so a consumer needs one
code path: a listing replaces all that it knew of the kind.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias

__all__ = [
    "ELASTIC_JOBS",
    "FIELD_MANAGER",
    "NAMESPACES",
    "NODES",
    "PODS",
    "Api",
    "Changed",
    "EventNote",
    "EventType",
    "Name",
    "Object",
    "ObjectWatch",
    "ResourceKind",
    "ResourceList",
    "WatchSink",
    "name_of",
]

FIELD_MANAGER = "elasticd-operator"
"""The name under which the operator owns the fields that it applies."""

Object: TypeAlias = Mapping[str, Any]
"""An object of the API as its JSON says it, without `metadata.managedFields`."""


class Name(NamedTuple):
    """What distinguishes an object from others of its kind."""

    namespace: str
    """The namespace; empty for a kind that has none, as nodes."""
    name: str


def name_of(found: Object) -> Name:
    """Return the name that an object carries."""
    metadata = found.get("metadata") or {}
    return Name(str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKind:
    """A kind of object, as the API server spells it."""

    group: str
    """The group; empty for the core."""
    version: str
    kind: str
    plural: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The kind as `kubectl get` takes it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, name: Name | None = None, subresource: str = "", *, namespace: str = "") -> str:
        """Return the path of an object, or of all objects, of one namespace or of all."""
        namespace = name.namespace if name is not None else namespace
        parts = ["apis" if self.group else "api", self.api_version]
        parts += ["namespaces", namespace] if self.is_namespaced and namespace else []
        parts += [self.plural]
        parts += [name.name] if name is not None else []
        parts += [subresource] if subresource else []
        return "/" + "/".join(parts)


ELASTIC_JOBS = ResourceKind(
    group="elasticd.dev", version="v1alpha1", kind="ElasticJob", plural="elasticjobs"
)
NODES = ResourceKind(group="", version="v1", kind="Node", plural="nodes", is_namespaced=False)
NAMESPACES = ResourceKind(
    group="", version="v1", kind="Namespace", plural="namespaces", is_namespaced=False
)
PODS = ResourceKind(group="", version="v1", kind="Pod", plural="pods")


# --- watches ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceList:
    """All objects of the kind at one version; it replaces everything known of it."""

    kind: ResourceKind
    version: str
    items: tuple[Object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """An object was added or changed (`item`), or deleted (None)."""

    kind: ResourceKind
    name: Name
    item: Object | None


WatchSink = Callable[[ResourceList | Changed], None]
"""A thread of the watch calls it; it must not block.

If it raises, that is printed on stderr, and the watch begins again with a listing.
"""


class ObjectWatch(Protocol):
    """Lists and watches one kind until it is closed."""

    @property
    def trouble(self) -> str:
        """Return why it cannot follow now, as a sentence; empty if it follows, or tries the first
        time.
        """

    def close(self) -> None:
        """Stop; no call of the sink begins after this returns."""


# --- the API server ---------------------------------------------------------------------------


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventNote:
    """What happened to an object, as `kubectl describe` shows it."""

    about: Object
    """The object, or at least its apiVersion, kind and metadata."""
    type: EventType
    reason: str
    """One word in CamelCase."""
    message: str


class Api(Protocol):
    """All calls may block for at most the time-out of the API.

    Raises, from every call:
        Unavailable: the API server does not answer, or answers 429 or 5xx.
        Refused: it does not know us, or we may not do this; or the object is invalid.
        NotFound: it does not know the object, or the kind.
        Fenced: the object is not what we saw any more, or another one of that name.
    """

    def list(
        self, kind: ResourceKind, *, namespace: str = "", labels: str = "", name: str = ""
    ) -> ResourceList:
        """Read all objects of a kind, of one namespace or of all, with these labels, or one."""

    def watch(
        self, kind: ResourceKind, sink: WatchSink, *, namespace: str = "", labels: str = ""
    ) -> ObjectWatch:
        """Give the sink a listing, then every change. It resumes by itself, and returns at once."""

    def apply(self, kind: ResourceKind, body: Object, *, subresource: str = "") -> Object:
        """Make the fields of `body` stand as they are there (server-side apply), and be ours.

        Fields that we applied before and that `body` lacks are removed, if they are ours alone; so
        what is applied to one (sub-)resource is always applied whole. With `metadata.uid` in it no
        object is made where that one is gone; with `metadata.resourceVersion` too nothing is done
        where it is not as it was seen. Returns the object as it stands now.
        """

    def patch(
        self, kind: ResourceKind, seen: Object, change: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        """Merge a change into an object, if it is still as `seen`; None removes a field.

        For what must not become ours: finalizers, which are a list of several owners, and
        `subresource="scale"`. Returns the object as it stands now.
        """

    def delete(self, kind: ResourceKind, seen: Object) -> None:
        """Delete that very object; does nothing if it is gone or another one has its name."""

    def note(self, event: EventNote) -> None:
        """Write an event; one that was written before is counted up."""

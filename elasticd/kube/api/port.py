"""The port through which the operator uses Kubernetes' API server.

Two implementations pass the same contract tests. Objects are the JSON of the API, as mappings that
no code changes. A watch *begins with a listing*. It begins again with a listing whenever it may
have missed a change (410 Gone, a silent connection), as the watch of `elasticd.store` does. So a
consumer needs one code path: a listing replaces all objects of the kind.
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
"""An object of the API as its JSON, without `metadata.managedFields`."""


class Name(NamedTuple):
    """The namespace and name that distinguish an object from others of its kind."""

    namespace: str
    """The namespace; empty for a kind without namespaces, such as nodes."""
    name: str


def name_of(found: Object) -> Name:
    """Return the name of an object."""
    metadata = found.get("metadata") or {}
    return Name(str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKind:
    """A kind of object, with the API server's names for it."""

    group: str
    """The API group; empty for the core group."""
    version: str
    kind: str
    plural: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Return the kind in the form that `kubectl get` takes."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, name: Name | None = None, subresource: str = "", *, namespace: str = "") -> str:
        """Return the path of one object, or of all objects in one namespace or in all of them."""
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
    """All objects of the kind at one version; they replace a consumer's objects of the kind."""

    kind: ResourceKind
    version: str
    items: tuple[Object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The change of one object: it was added or changed (`item`), or deleted (None)."""

    kind: ResourceKind
    name: Name
    item: Object | None


WatchSink = Callable[[ResourceList | Changed], None]
"""The function to which a watch gives listings and changes; a thread of the watch calls it, and it
must not block.

If the function raises, the watch prints the error on stderr and begins again with a listing.
"""


class ObjectWatch(Protocol):
    """Lists and watches one kind until it is closed."""

    @property
    def trouble(self) -> str:
        """Return why the watch cannot follow now; empty if it follows or tries the first time."""

    def close(self) -> None:
        """Stop the watch; no call of the sink begins after this returns."""


# --- the API server ---------------------------------------------------------------------------


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventNote:
    """An event about an object, as `kubectl describe` shows it."""

    about: Object
    """The object, or at least its apiVersion, kind and metadata."""
    type: EventType
    reason: str
    """One word in CamelCase."""
    message: str


class Api(Protocol):
    """The operations of the API server; each call blocks for at most the time-out of the API.

    Raises, from every call:
        Unavailable: the API server does not answer, or answers 429 or 5xx.
        Refused: the API server does not know this client, or the client has no right to do this; or
            the object is invalid.
        NotFound: the API server does not know the object, or the kind.
        Fenced: the object has changed since the caller read it, or another object has that name.
    """

    def list(
        self, kind: ResourceKind, *, namespace: str = "", labels: str = "", name: str = ""
    ) -> ResourceList:
        """Return the objects of a kind: in one namespace or all, with these labels or one name."""

    def watch(
        self, kind: ResourceKind, sink: WatchSink, *, namespace: str = "", labels: str = ""
    ) -> ObjectWatch:
        """Give the sink a listing, then every change; return at once. The watch resumes itself."""

    def apply(self, kind: ResourceKind, body: Object, *, subresource: str = "") -> Object:
        """Set the fields of `body` in the object, and own them (server-side apply).

        The server removes the fields that elasticd applied before, that it alone owns, and that
        `body` lacks; so each call must apply all fields of the resource or sub-resource. If `body`
        has a `metadata.uid`, no new object is made in place of a deleted one. If it also has a
        `metadata.resourceVersion`, an object of another version is not changed. The method returns
        the object after the write.
        """

    def patch(
        self, kind: ResourceKind, seen: Object, change: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        """Merge a change into an object, if it has not changed since `seen`; None removes a field.

        This is for fields that elasticd must not own: finalizers, which several owners write, and
        `subresource="scale"`. The method returns the object after the write.
        """

    def delete(self, kind: ResourceKind, seen: Object) -> None:
        """Delete exactly this object; do nothing if it is gone, or another has its name.

        If `seen` has a `metadata.resourceVersion`, an object of another version is not deleted:
        whoever changed it may want to keep it.
        """

    def note(self, event: EventNote) -> None:
        """Write an event; if the event was written before, raise its count."""

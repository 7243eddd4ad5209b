"""The objects of an API server in memory, and the rules by which they change.

These are the rules of the real server: versions and uids, server-side apply of one manager, merge
patches that hold only for the version that the caller saw, writes of the spec that leave the status
alone and the reverse, a deletion that waits for finalizers, events that are objects as well. The
changes are kept until `compact`, so that a watch can continue from a version.
"""

import copy
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticd.errors import Fenced, NotFound, Refused
from elasticd.kube.api.failure import Gone
from elasticd.kube.api.port import Name, Object, ResourceKind, name_of

__all__ = ["MemoryObjects", "ObjectChange", "has_labels", "merge"]

JSON = dict[str, Any]
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """One change of one object."""

    version: int
    kind: ResourceKind
    name: Name
    before: Object | None
    after: Object | None


class MemoryObjects:
    """All objects and their changes. Several threads may use it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.version = 1
        self._oldest = 1
        self._steps: list[ObjectChange] = []
        self._found: dict[tuple[ResourceKind, Name], JSON] = {}
        self._applied: dict[tuple[ResourceKind, Name, str], JSON] = {}
        self._uids = itertools.count(1)

    # --- reading ------------------------------------------------------------------------------

    def items(
        self, kind: ResourceKind, namespace: str = "", labels: str = ""
    ) -> tuple[Object, ...]:
        with self.lock:
            found = [
                item
                for (of, name), item in sorted(self._found.items(), key=lambda one: one[0][1])
                if of == kind and namespace in ("", name.namespace) and has_labels(item, labels)
            ]
            return tuple(copy.deepcopy(found))

    def get(self, kind: ResourceKind, name: Name) -> Object:
        with self.lock:
            return copy.deepcopy(self._standing(kind, name))

    def since(self, version: int) -> Sequence[ObjectChange]:
        """Return the changes after a version.

        Raises: Gone: these changes were forgotten.
        """
        with self.lock:
            if version < self._oldest:
                raise Gone(f"too old resource version: {version} ({self.version})")
            return [step for step in self._steps if step.version > version]

    def compact(self) -> None:
        """Forget all changes until now."""
        with self.lock:
            # The version rises, as after a compaction of etcd: even a watch that lacks only the
            # changes of other kinds must list again.
            self.version += 1
            self._steps.clear()
            self._oldest = self.version

    # --- writing ------------------------------------------------------------------------------

    def create(self, kind: ResourceKind, body: Object) -> Object:
        """Create an object.

        Raises: Refused: the object exists already.
        """
        with self.lock:
            name = name_of(body)
            if (kind, name) in self._found:
                raise Refused(f'{kind.resource} "{name.name}" already exists')
            item = copy.deepcopy(dict(body))
            item |= {"apiVersion": kind.api_version, "kind": kind.kind}
            uid = f"uid-{next(self._uids)}"
            item["metadata"] = {**item.get("metadata", {}), "uid": uid, "generation": 1}
            return self._write(kind, name, item)

    def apply(self, kind: ResourceKind, body: Object, subresource: str = "") -> Object:
        """Apply the writer's fields to an object, and create the object if it does not exist.

        Raises: NotFound: the write is to a sub-resource, and the object does not exist. Fenced: the
        object with this uid is gone.
        """
        with self.lock:
            name = name_of(body)
            wanted = _part(copy.deepcopy(dict(body)), subresource)
            metadata = dict(body.get("metadata") or {})
            if (kind, name) not in self._found:
                if subresource:
                    raise NotFound(f'{kind.resource} "{name.name}" not found')
                if metadata.get("uid"):
                    raise Fenced(f"uid mismatch: {name.name} is gone")
                made = self.create(kind, {**wanted, "metadata": metadata})
                self._applied[kind, name, subresource] = wanted
                return made
            item = self._unchanged(kind, name, metadata)
            before = self._applied.get((kind, name, subresource), {})
            _take_back(item, before, wanted)
            _put_in(item, wanted)
            self._applied[kind, name, subresource] = wanted
            return self._write(kind, name, item)

    def patch(
        self, kind: ResourceKind, name: Name, change: Mapping[str, Any], subresource: str = ""
    ) -> Object:
        """Merge a change into an object.

        Raises: Refused: the write is to the scale, and the spec has no replicas. NotFound, Fenced:
        there is no such object, or it has another version.
        """
        with self.lock:
            metadata = dict(change.get("metadata") or {})
            item = self._unchanged(kind, name, metadata)
            if subresource == "scale":
                if "replicas" not in item.get("spec", {}):
                    raise Refused(f"the spec replicas field .spec.replicas of {name} is missing")
                replicas = change.get("spec", {}).get("replicas")
                return _scale(
                    self._write(kind, name, merge(item, {"spec": {"replicas": replicas}}))
                )
            wanted = _part(dict(change), subresource)
            if not subresource and metadata:
                kept = ("uid", "resourceVersion", "name", "namespace")
                wanted["metadata"] = {k: v for k, v in metadata.items() if k not in kept}
            return self._write(kind, name, merge(item, wanted))

    def delete(self, kind: ResourceKind, name: Name, uid: str = "", version: str = "") -> None:
        with self.lock:
            item = self._unchanged(kind, name, {"uid": uid, "resourceVersion": version})
            metadata = item["metadata"]
            if metadata.get("finalizers"):
                metadata.setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
                self._write(kind, name, item)
            else:
                self._remove(kind, name)

    # --- private ------------------------------------------------------------------------------

    def _standing(self, kind: ResourceKind, name: Name) -> JSON:
        found = self._found.get((kind, name))
        if found is None:
            raise NotFound(f'{kind.resource} "{name.name}" not found')
        return found

    def _unchanged(self, kind: ResourceKind, name: Name, metadata: Mapping[str, Any]) -> JSON:
        """Return a copy of the stored object, if its uid and version are those of `metadata`."""
        item = copy.deepcopy(self._standing(kind, name))
        for field in ("uid", "resourceVersion"):
            if metadata.get(field, item["metadata"][field]) not in ("", item["metadata"][field]):
                raise Fenced(f"{name.name}: the object has been modified, {field} is another one")
        return item

    def _write(self, kind: ResourceKind, name: Name, item: JSON) -> Object:
        before = self._found.get((kind, name))
        if before is not None and before == item:
            return copy.deepcopy(before)
        metadata = item["metadata"]
        if before is not None and before.get("spec") != item.get("spec"):
            metadata["generation"] = metadata.get("generation", 0) + 1
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        self._found[kind, name] = item
        self._steps.append(ObjectChange(self.version, kind, name, before, item))
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            self._remove(kind, name)
        return copy.deepcopy(item)

    def _remove(self, kind: ResourceKind, name: Name) -> None:
        before = self._found.pop((kind, name))
        for key in [key for key in self._applied if key[:2] == (kind, name)]:
            del self._applied[key]
        self.version += 1
        self._steps.append(ObjectChange(self.version, kind, name, before, None))


def has_labels(item: Object, labels: str) -> bool:
    """Return whether an object has all labels of a selector `a=b,c=d`."""
    own = item.get("metadata", {}).get("labels") or {}
    wanted = (part.partition("=") for part in labels.split(",") if part)
    return all(own.get(name) == value for name, _, value in wanted)


def merge(into: Any, change: Any) -> Any:
    """Return the result of a JSON merge patch (RFC 7396); the arguments are not changed."""
    if not isinstance(change, Mapping):
        return copy.deepcopy(change)
    made = dict(into) if isinstance(into, Mapping) else {}
    for key, value in change.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merge(made.get(key), value)
    return made


def _part(body: JSON, subresource: str) -> JSON:
    """Return the part of an object that a write concerns: the status, or all but the status."""
    names = ("apiVersion", "kind", "metadata")
    if subresource:
        return {key: value for key, value in body.items() if key == subresource}
    return {key: value for key, value in body.items() if key not in (*names, "status")}


def _scale(item: Object) -> Object:
    metadata = {key: item["metadata"][key] for key in ("name", "uid", "resourceVersion")}
    replicas = item["spec"]["replicas"]
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata} | {
        "spec": {"replicas": replicas}
    }


def _by_type(items: Any) -> dict[str, JSON] | None:
    """Return a list of conditions as a mapping by type; None if it is another list."""
    if not isinstance(items, list) or not all(
        isinstance(item, Mapping) and "type" in item for item in items
    ):
        return None
    return {item["type"]: item for item in items}


def _put_in(item: JSON, wanted: JSON) -> None:
    """Set the fields of `wanted`; conditions are merged by their types, other lists replaced."""
    for key, value in wanted.items():
        old = item.get(key)
        mine, theirs = _by_type(value), _by_type(old)
        if isinstance(value, dict) and isinstance(old, dict):
            _put_in(old, value)
        elif mine and theirs:
            item[key] = copy.deepcopy(list({**theirs, **mine}.values()))
        else:
            item[key] = copy.deepcopy(value)


def _take_back(item: JSON, before: JSON, wanted: JSON) -> None:
    """Remove fields that were applied before and not now, and that nobody changed since."""
    for key, old in list(before.items()):
        standing, new = item.get(key, _ABSENT), wanted.get(key, _ABSENT)
        if standing is _ABSENT:
            continue
        if isinstance(old, dict) and isinstance(standing, dict) and new is not _ABSENT:
            _take_back(standing, old, new if isinstance(new, dict) else {})
        elif isinstance(old, dict) and isinstance(standing, dict):
            _take_back(standing, old, {})
            if not standing:
                del item[key]
        elif (types := _by_type(old)) is not None and isinstance(standing, list):
            wanted_types = _by_type(new) or {}
            item[key] = list(_left(standing, types, wanted_types))
        elif new is _ABSENT and standing == old:
            del item[key]


def _left(
    standing: Sequence[JSON], before: Mapping[str, JSON], wanted: Mapping[str, JSON]
) -> Iterator[JSON]:
    for one in standing:
        if one.get("type") in wanted or one != before.get(str(one.get("type"))):
            yield one

"""The implementation of `Api` that talks to Kubernetes' API server over HTTP."""

import builtins
from collections.abc import Mapping
from typing import Any

from elasticd.errors import Fenced, NotFound, NotSupported, Unavailable
from elasticd.kube.api.connection import ApiServerConnection
from elasticd.kube.api.event import EVENTS, event_body, event_name, now_text
from elasticd.kube.api.failure import Gone
from elasticd.kube.api.port import (
    ELASTIC_JOBS,
    FIELD_MANAGER,
    EventNote,
    Object,
    ResourceKind,
    ResourceList,
    WatchSink,
    name_of,
)
from elasticd.kube.api.stream import trimmed
from elasticd.kube.api.watch import KubernetesWatch, WatchTimes

__all__ = ["KubernetesApi"]

PAGE = 500
JOBS_PAGE = 50
"""The page of a listing of ElasticJobs, which hold files of users: each may have 1.5 MB, and an
operator parses a page as a whole."""
LIST_TRIES = 3
"""The number of times that a listing of several pages begins again because the API server has
forgotten its version."""
APPLY = "application/apply-patch+yaml"  # JSON is also YAML.
MERGE = "application/merge-patch+json"


def _manager(subresource: str) -> str:
    """Return the manager's name for applied fields: each sub-resource has a name of its own.

    The server removes the fields that a manager applied before and does not apply now. Servers
    before 1.22 keep one list of these fields for an object and its sub-resources.
    """
    return f"{FIELD_MANAGER}-{subresource}" if subresource else FIELD_MANAGER


class KubernetesApi:
    """The real `Api`."""

    def __init__(self, connection: ApiServerConnection, times: WatchTimes | None = None) -> None:
        self._connection = connection
        self._times = times if times is not None else WatchTimes()

    def list(
        self, kind: ResourceKind, *, namespace: str = "", labels: str = "", name: str = ""
    ) -> ResourceList:
        chosen = {
            "labelSelector": labels,
            "fieldSelector": f"metadata.name={name}" if name else "",
        }
        page = JOBS_PAGE if kind == ELASTIC_JOBS else PAGE
        for _ in range(LIST_TRIES - 1):
            try:
                return self._listed(kind, namespace, chosen, page)
            except Gone:
                continue
        return self._listed(kind, namespace, chosen, 0)

    def watch(
        self, kind: ResourceKind, sink: WatchSink, *, namespace: str = "", labels: str = ""
    ) -> KubernetesWatch:
        return KubernetesWatch(
            self._connection,
            kind,
            sink,
            namespace=namespace,
            labels=labels,
            list_all=lambda: self.list(kind, namespace=namespace, labels=labels),
            times=self._times,
        )

    def apply(self, kind: ResourceKind, body: Object, *, subresource: str = "") -> Object:
        name = name_of(body)
        whole = {**body, "apiVersion": kind.api_version, "kind": kind.kind}
        found = self._connection.ask(
            "PATCH",
            kind.path(name, subresource),
            {"fieldManager": _manager(subresource), "force": "true"},
            whole,
            what=f"apply {kind.resource} {name.name}",
            content_type=APPLY,
        )
        return trimmed(kind, found)

    def patch(
        self, kind: ResourceKind, seen: Object, change: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        name, known = name_of(seen), seen["metadata"]
        metadata = {key: known[key] for key in ("uid", "resourceVersion")}
        whole = {**change, "metadata": {**(change.get("metadata") or {}), **metadata}}
        found = self._connection.ask(
            "PATCH",
            kind.path(name, subresource),
            {"fieldManager": FIELD_MANAGER},
            whole,
            what=f"patch {kind.resource} {name.name}",
            content_type=MERGE,
        )
        return found if subresource == "scale" else trimmed(kind, found)

    def delete(self, kind: ResourceKind, seen: Object) -> None:
        name, uid = name_of(seen), seen["metadata"]["uid"]
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {
                key: seen["metadata"][key]
                for key in ("uid", "resourceVersion")
                if key in seen["metadata"]
            },
        }
        try:
            self._connection.ask(
                "DELETE", kind.path(name), {}, options, what=f"delete {kind.resource} {name.name}"
            )
        except NotFound:
            return
        except Fenced:
            standing = self.list(kind, namespace=name.namespace, name=name.name).items
            if any(item["metadata"]["uid"] == uid for item in standing):
                raise

    def note(self, event: EventNote) -> None:
        name, what = event_name(event), f"write the event {event.reason}"
        everything = EVENTS.path(namespace=name.namespace)
        try:
            self._connection.ask("POST", everything, {}, event_body(event, 1), what=what)
        except Fenced:  # The event was written before, so its count is raised.
            path = EVENTS.path(name)
            standing = self._connection.ask("GET", path, {}, what=what)
            change = {"count": int(standing.get("count") or 1) + 1, "lastTimestamp": now_text()}
            self._connection.ask("PATCH", path, {}, change, what=what, content_type=MERGE)

    def check(self, kind: ResourceKind, subresources: tuple[str, ...] = ()) -> None:
        """Check that the API server serves a kind with its version and sub-resources.

        Raises: NotFound: the server does not know the kind. NotSupported: the server has another
        version of the kind, or lacks a sub-resource. ElasticdError: the errors that `Api` lists.
        """
        host, what = self._connection.host, f"tell of {kind.resource}"
        mend = "apply the CRD that belongs to this version (deploy/kustomize/base/crd.yaml)"
        try:
            group = self._connection.ask("GET", f"/apis/{kind.group}", {}, what=what)
        except NotFound as exc:
            raise NotFound(f"The API server at {host} has no {kind.resource}: {mend}.") from exc
        versions = [str(each.get("version")) for each in group.get("versions") or ()]
        if kind.version not in versions:
            raise NotSupported(
                f"The API server at {host} has {kind.resource} as {', '.join(versions)}, and this "
                f"operator needs {kind.version}: {mend}."
            )
        found = self._connection.ask("GET", f"/apis/{kind.api_version}", {}, what=what)
        names = {str(each.get("name")) for each in found.get("resources") or ()}
        wanted = [kind.plural, *(f"{kind.plural}/{each}" for each in subresources)]
        if kind.plural not in names:
            raise NotFound(f"The API server at {host} has no {kind.resource}: {mend}.")
        if lacks := [name for name in wanted if name not in names]:
            raise NotSupported(
                f"The CRD {kind.resource} at {host} is of another version, it lacks "
                f"{', '.join(lacks)}: {mend}."
            )

    def close(self) -> None:
        self._connection.close()

    # --- private ------------------------------------------------------------------------------

    def _listed(
        self, kind: ResourceKind, namespace: str, chosen: Mapping[str, str], page: int
    ) -> ResourceList:
        items: builtins.list[Object] = []
        more = ""
        while True:
            found = self._connection.ask(
                "GET",
                kind.path(namespace=namespace),
                {**chosen, "limit": str(page or ""), "continue": more},
                what=f"list {kind.resource}",
            )
            items += (trimmed(kind, item) for item in found.get("items") or ())
            metadata = found.get("metadata") or {}
            more = str(metadata.get("continue") or "")
            if not more:
                version = str(metadata.get("resourceVersion") or "")
                if not version:
                    raise Unavailable(
                        f"The API server at {self._connection.host} sent no list of "
                        f"{kind.resource}: is that address an API server's?"
                    )
                return ResourceList(kind=kind, version=version, items=tuple(items))

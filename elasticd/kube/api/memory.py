"""The API server in memory, for tests, with the rules of the real server.

All work happens inside the calls, in the caller's thread: a watch gets a change before the call
that made the change returns, or right after if another thread is delivering changes at that time.
"""

import builtins
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from elasticd.errors import NotFound, Unavailable
from elasticd.kube.api.event import EVENTS, event_body, event_name
from elasticd.kube.api.failure import Gone
from elasticd.kube.api.memory_objects import MemoryObjects, has_labels
from elasticd.kube.api.port import (
    Changed,
    EventNote,
    Object,
    ResourceKind,
    ResourceList,
    WatchSink,
    name_of,
)
from elasticd.store.sink import has_taken

__all__ = ["MemoryApi", "MemoryWatch"]

AWAY = "The API server in memory was made to stay away."


class MemoryWatch:
    """The `ObjectWatch` of `MemoryApi`."""

    def __init__(
        self, api: "MemoryApi", kind: ResourceKind, sink: WatchSink, namespace: str, labels: str
    ) -> None:
        self.kind, self.namespace, self.labels = kind, namespace, labels
        self._api, self._sink = api, sink
        self._lock = threading.RLock()
        self._is_closed = False
        self.version: int | None = None
        """The version up to which the watch has all changes; None if the watch begins again."""
        self.failed_at: int | None = None
        """The version at which the sink raised on a listing. The next listing comes with the next
        change, since there is no thread here that could wait."""
        self.trouble = ""

    def give(self, event: ResourceList | Changed) -> None:
        with self._lock:
            if self._is_closed or has_taken(self._sink, event):
                return
            self.failed_at = self.version if isinstance(event, ResourceList) else None
            self.version = None

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._api.forget(self)


class MemoryApi:
    """The `Api` in memory."""

    def __init__(self, objects: MemoryObjects | None = None) -> None:
        """`objects` may be shared by several of these servers; None for objects of its own."""
        self.objects = objects if objects is not None else MemoryObjects()
        self._lock = threading.RLock()
        self._watches: list[MemoryWatch] = []
        self._is_giving = False
        self._is_dropped = self._is_away = False
        self.calls: list[str] = []
        """The calls that this server got, without watches, in the form `apply
        elasticjobs/status`."""

    # --- Api ----------------------------------------------------------------------------------

    def list(
        self, kind: ResourceKind, *, namespace: str = "", labels: str = "", name: str = ""
    ) -> ResourceList:
        self._enter("list", kind)
        listed = self._listed(kind, namespace, labels)
        items = (item for item in listed.items if name in ("", item["metadata"]["name"]))
        return replace(listed, items=tuple(items))

    def watch(
        self, kind: ResourceKind, sink: WatchSink, *, namespace: str = "", labels: str = ""
    ) -> MemoryWatch:
        watch = MemoryWatch(self, kind, sink, namespace, labels)
        with self._lock:
            self._watches.append(watch)
            watch.trouble = AWAY if self._is_away else ""
        self.hand_out()
        return watch

    def apply(self, kind: ResourceKind, body: Object, *, subresource: str = "") -> Object:
        return self._do("apply", kind, subresource, self.objects.apply, kind, body, subresource)

    def patch(
        self, kind: ResourceKind, seen: Object, change: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        metadata = dict(change.get("metadata") or {})
        metadata |= {key: seen["metadata"][key] for key in ("uid", "resourceVersion")}
        whole = {**change, "metadata": metadata}
        do = self.objects.patch
        return self._do("patch", kind, subresource, do, kind, name_of(seen), whole, subresource)

    def delete(self, kind: ResourceKind, seen: Object) -> None:
        def done() -> Object:
            name, known = name_of(seen), seen["metadata"]
            with suppress(NotFound):
                if self.objects.get(kind, name)["metadata"]["uid"] == known["uid"]:
                    self.objects.delete(kind, name, known["uid"], known.get("resourceVersion", ""))
            return {}

        self._do("delete", kind, "", done)

    def note(self, event: EventNote) -> None:
        def done() -> Object:
            name = event_name(event)
            try:
                standing = self.objects.get(EVENTS, name)
            except NotFound:
                return self.objects.create(EVENTS, event_body(event, 1))
            count = int(standing["count"]) + 1
            return self.objects.patch(EVENTS, name, {"count": count})

        self._do("note", EVENTS, "", done)

    # --- for tests ----------------------------------------------------------------------------

    def create(self, kind: ResourceKind, body: Object) -> Object:
        """Create an object as another client does."""
        return self._do("create", kind, "", self.objects.create, kind, body)

    def go_away(self) -> None:
        """Answer every call with Unavailable until `come_back` is called."""
        with self._lock:
            self._is_away = self._is_dropped = True
            for watch in self._watches:
                watch.trouble = AWAY

    def come_back(self) -> None:
        with self._lock:
            self._is_away = False
        self.resume_watches()

    def drop_watches(self) -> None:
        """Keep all changes back until `resume_watches` is called."""
        with self._lock:
            self._is_dropped = True

    def resume_watches(self) -> None:
        with self._lock:
            self._is_dropped = False
            for watch in self._watches:
                watch.trouble = ""
        self.hand_out()

    def forget(self, watch: MemoryWatch) -> None:
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)

    # --- private ------------------------------------------------------------------------------

    def _enter(self, verb: str, kind: ResourceKind, subresource: str = "") -> None:
        with self._lock:
            self.calls.append(f"{verb} {kind.plural}{'/' if subresource else ''}{subresource}")
            if self._is_away:
                raise Unavailable(AWAY)

    def _do(
        self,
        verb: str,
        kind: ResourceKind,
        subresource: str,
        act: Callable[..., Object],
        *args: Any,
    ) -> Object:
        self._enter(verb, kind, subresource)
        try:
            return act(*args)
        finally:
            self.hand_out()

    def _listed(self, kind: ResourceKind, namespace: str, labels: str) -> ResourceList:
        with self.objects.lock:
            items = self.objects.items(kind, namespace, labels)
            return ResourceList(kind=kind, version=str(self.objects.version), items=items)

    def hand_out(self) -> None:
        """Deliver to every watch the changes that it lacks, one at a time and without the lock.

        A sink may itself use the API; the outer call delivers the changes of such an inner call.
        """
        while True:
            with self._lock:
                if self._is_giving or self._is_dropped:
                    return
                due = [(watch, events) for watch in self._watches if (events := self._next(watch))]
                if not due:
                    return
                self._is_giving = True
            try:
                for watch, events in due:
                    for event in events:
                        watch.give(event)
                        if watch.version is None:
                            break
            finally:
                self._is_giving = False

    def _next(self, watch: MemoryWatch) -> "tuple[ResourceList | Changed, ...]":
        """Return the changes that a watch does not have yet, and count them as delivered."""
        with self.objects.lock:
            if watch.version is None and watch.failed_at == self.objects.version:
                return ()
            version, watch.version = watch.version, self.objects.version
            try:
                if version is None:
                    return (self._listed(watch.kind, watch.namespace, watch.labels),)
                steps = self.objects.since(version)
            except Gone:
                return (self._listed(watch.kind, watch.namespace, watch.labels),)
        events: builtins.list[Changed] = []
        for step in steps:
            if step.kind != watch.kind or watch.namespace not in ("", step.name.namespace):
                continue
            was = step.before is not None and has_labels(step.before, watch.labels)
            item = step.after if step.after and has_labels(step.after, watch.labels) else None
            if was or item is not None:
                events.append(Changed(kind=watch.kind, name=step.name, item=item))
        return tuple(events)

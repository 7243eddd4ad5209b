"""The objects of one kind in memory, kept up to date by a watch.

The mapping that it returns is immutable: a change makes another mapping. A change that matters for
no decision (a node's heartbeat, a new version alone) updates the mapping, but calls no `wake`.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from elasticd.kube.api.port import Api, Changed, Name, Object, ResourceKind, ResourceList, name_of

__all__ = ["ObjectCache"]


class ObjectCache:
    """The objects of one kind. Any thread may read them."""

    def __init__(
        self,
        api: Api,
        kind: ResourceKind,
        wake: Callable[[], None],
        *,
        namespace: str = "",
        labels: str = "",
    ) -> None:
        """The watch's thread calls `wake` after each change that matters."""
        self._wake = wake
        self._lock = threading.Lock()
        self._items: Mapping[Name, Object] | None = None
        self._watch = api.watch(kind, self._take, namespace=namespace, labels=labels)

    @property
    def items(self) -> Mapping[Name, Object] | None:
        """Return the objects by name, in the same mapping until a change; None before a listing.

        An object that has not changed is the same Python object as before.
        """
        return self._items

    @property
    def trouble(self) -> str:
        """Return why the watch cannot follow now; empty if it follows."""
        return self._watch.trouble

    def close(self) -> None:
        self._watch.close()

    # --- private ------------------------------------------------------------------------------

    def _take(self, event: ResourceList | Changed) -> None:
        with self._lock:
            before = self._items
            after: dict[Name, Object] = dict(before or {})
            if isinstance(event, ResourceList):
                after = {name_of(item): item for item in event.items}
            else:
                after.pop(event.name, None)
                if event.item is not None:
                    after[event.name] = event.item
            self._items = after
        if before is None or _differ(before, after):
            self._wake()


def _differ(before: Mapping[Name, Object], after: Mapping[Name, Object]) -> bool:
    if before.keys() != after.keys():
        return True
    return any(
        item is not before[name] and _notable(item) != _notable(before[name])
        for name, item in after.items()
    )


def _notable(item: Object) -> dict[str, Any]:
    """Return the object without the fields whose changes have no meaning."""
    metadata = {k: v for k, v in (item.get("metadata") or {}).items() if k != "resourceVersion"}
    found = {**item, "metadata": metadata}
    status = item.get("status")
    if isinstance(status, Mapping) and isinstance(status.get("conditions"), list):
        conditions = [
            {key: value for key, value in each.items() if key != "lastHeartbeatTime"}
            for each in status["conditions"]
        ]
        found["status"] = {**status, "conditions": conditions}
    return found

"""A range of etcd in memory, kept up to date by a watch.

What it shows is never changed: a change makes another mapping. So one evaluation works on one state
of a job, of one revision, while the next changes come in.
"""

import threading
from collections.abc import Callable, Mapping

from elasticd.store.api import KeyRange, KeysChanged, KeyValue, Store, WatchSnapshot

__all__ = ["RENEW_S", "WatchCache"]

RENEW_S = 300.0
"""How often what decides by a cache renews it."""


def _all(key: str) -> bool:
    return True


def _nobody() -> None:
    """The callback where nobody wants to know."""


class WatchCache:
    """Any thread may read it, and wait for its first snapshot."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        is_kept: Callable[[str], bool] = _all,
        wake: Callable[[], None] = _nobody,
    ) -> None:
        """Watch all keys under the prefix, and keep those that `is_kept` says.

        `wake` is called by the store's thread after what is kept has changed.
        """
        self._is_kept, self._wake = is_kept, wake
        self._ready = threading.Event()
        self._items: Mapping[str, KeyValue] = {}
        self._store, self._range = store, KeyRange(key=prefix, is_prefix=True)
        self._watch = store.watch(self._range, self._take)

    @property
    def items(self) -> Mapping[str, KeyValue]:
        """Return the records by key, as of one revision; the same object as long as nothing has
        changed.
        """
        return self._items

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait for the first snapshot; return False if there is none in time."""
        return self._ready.wait(timeout_s)

    def renew(self) -> None:
        """Watch anew, which begins with a list: etcd has lost events of watches that stayed open.

        The thread calls it that calls `close`; what is kept stays until then.
        """
        self._watch.close()
        self._watch = self._store.watch(self._range, self._take)

    def close(self) -> None:
        self._watch.close()

    def _take(self, seen: WatchSnapshot | KeysChanged) -> None:
        """Take in a change; the store's thread calls this."""
        if isinstance(seen, WatchSnapshot):
            self._items = {item.key: item for item in seen.items if self._is_kept(item.key)}
            self._ready.set()
            self._wake()
            return
        changes = [change for change in seen.changes if self._is_kept(change.key)]
        if not changes:
            return
        items = dict(self._items)
        for change in changes:
            items.pop(change.key, None)
            if change.item is not None:
                items[change.key] = change.item
        self._items = items
        self._wake()

"""A watch that begins anew about once a minute, with a list: what it missed does no harm for long.

etcd has lost events of watches that stayed open (issues 17529, 18089, 20221). What a job's own
records are re-read for, the core decides; this is for what the agent itself watches.
"""

import random
from collections.abc import Callable, Mapping
from contextlib import suppress

from elasticd.errors import NotSupported
from elasticd.records.codec import decode
from elasticd.records.member import NodeLabels
from elasticd.rendezvous.decide import REREAD_S
from elasticd.store.api import KeyRange, KeysChanged, KeyValue, Store, Watch, WatchSnapshot
from elasticd_agent.loop.clock import now_s

__all__ = ["ResyncWatch", "drain_listing", "label_listing"]


class ResyncWatch:
    """`open` begins the watch. All methods run on the owner's thread."""

    def __init__(self, open: Callable[[], Watch]) -> None:
        self._open = open
        self._watch = open()
        self._set_due()

    @property
    def wake_s(self) -> float:
        """Return when `take_due` is wanted next."""
        return self._due_s

    def take_due(self) -> None:
        """Begin anew if it is time."""
        if self._due_s > now_s():
            return
        self._watch.close()
        self._watch = self._open()
        self._set_due()

    def close(self) -> None:
        self._watch.close()

    def _set_due(self) -> None:
        # Not at the moment at which a thousand others, started together, do the same.
        self._due_s = now_s() + REREAD_S * random.uniform(0.75, 1.25)  # noqa: S311


def drain_listing(store: Store, key: str, on_change: Callable[[bool], None]) -> ResyncWatch:
    """Watch the wish that a node should be drained; `on_change` is called by the store's thread."""

    def on_event(seen: WatchSnapshot | KeysChanged) -> None:
        if isinstance(seen, WatchSnapshot):
            on_change(bool(seen.items))
        else:
            on_change(seen.changes[-1].item is not None)

    return ResyncWatch(lambda: store.watch(KeyRange(key=key), on_event))


def label_listing(
    store: Store, key: str, on_change: Callable[[Mapping[str, str]], None]
) -> ResyncWatch:
    """Watch labels that others give this node; `on_change` is called by the store's thread."""

    def on_event(seen: WatchSnapshot | KeysChanged) -> None:
        item: KeyValue | None
        if isinstance(seen, WatchSnapshot):
            item = seen.items[0] if seen.items else None
        else:
            item = seen.changes[-1].item
        with suppress(NotSupported):  # Of a newer version: what was known stays.
            on_change(decode(NodeLabels, item.value).labels if item is not None else {})

    return ResyncWatch(lambda: store.watch(KeyRange(key=key), on_event))

"""Feeders: what etcd's watches say about one job, as typed events.

A record that cannot be read (a newer schema, somebody's hand in etcd) is reported once and then
treated as absent: one bad record must not stop a job that does not need it.
"""

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from elasticd.errors import NotSupported
from elasticd.records.codec import decode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import JobStatus, Want
from elasticd.records.keys import Keys
from elasticd.records.member import Member, Result
from elasticd.records.world import World
from elasticd.rendezvous import event as ev
from elasticd.store.api import KeyRange, KeysChanged, KeyValue, Store, Watch, WatchSnapshot
from elasticd.telemetry.log import get_logger

__all__ = ["JobWatches"]

R = TypeVar("R")
Feed = Callable[[ev.Event], None]

log = get_logger()


class JobWatches:
    """All watches of one job. The store's thread calls `feed`."""

    def __init__(self, store: Store, keys: Keys, job: JobName, feed: Feed) -> None:
        self._store, self._keys, self._job, self._feed = store, keys, job, feed
        self._fixed: list[Watch] = []
        self._observed: list[Watch] = []

    def reread(self) -> None:
        """Watch the world, the status and the wants, or watch them anew; each watch begins with a
        list.
        """
        self._close(self._fixed)
        store, keys, job = self._store, self._keys, self._job
        self._fixed = [
            store.watch(KeyRange(key=keys.world(job)), self._world),
            store.watch(KeyRange(key=keys.status(job)), self._status),
            store.watch(KeyRange(key=keys.wants(job), is_prefix=True), _Wants(self._feed)),
        ]

    def observe(self, nodes: tuple[NodeId, ...] | None) -> None:
        """Watch all members and results, or only the members of these nodes; each watch begins with
        a list.
        """
        self._close(self._observed)
        members, results = self._keys.members(self._job), self._keys.results(self._job)
        if nodes is None:
            self._observed = [
                self._store.watch(KeyRange(key=results, is_prefix=True), self._results),
                self._store.watch(KeyRange(key=members, is_prefix=True), self._members),
            ]
            return
        few = _Few(nodes, members, self._feed)
        self._observed = [
            self._store.watch(KeyRange(key=self._keys.member(self._job, node)), few.sink)
            for node in nodes
        ]
        if not nodes:
            self._feed(ev.MembersListed(revision=0, members=(), watched=()))

    def close(self) -> None:
        self._close(self._fixed)
        self._close(self._observed)

    def _close(self, watches: list[Watch]) -> None:
        for watch in watches:
            watch.close()
        watches.clear()

    def _world(self, seen: WatchSnapshot | KeysChanged) -> None:
        for item in _items(seen):
            world = _read(World, item)
            if world is not None:
                self._feed(ev.WorldSeen(world=world, revision=item.mod_revision))

    def _status(self, seen: WatchSnapshot | KeysChanged) -> None:
        for item in _items(seen):
            status = _read(JobStatus, item)
            if status is not None:
                self._feed(ev.StatusSeen(status=status, revision=item.mod_revision))
        is_there = bool(seen.items) if isinstance(seen, WatchSnapshot) else seen.changes[-1].item
        if not is_there:
            self._feed(ev.StatusSeen(status=None, revision=seen.revision))

    def _members(self, seen: WatchSnapshot | KeysChanged) -> None:
        if isinstance(seen, WatchSnapshot):
            members = _members_of(seen.items)
            self._feed(ev.MembersListed(revision=seen.revision, members=members))
            return
        for event in _member_changes(seen, self._keys.members(self._job)):
            self._feed(event)

    def _results(self, seen: WatchSnapshot | KeysChanged) -> None:
        if isinstance(seen, WatchSnapshot):
            results = [_read(Result, item) for item in seen.items]
            self._feed(ev.ResultsListed(results=tuple(r for r in results if r is not None)))
            return
        prefix = self._keys.results(self._job)
        for change in seen.changes:
            if change.item is None:
                self._feed(ev.ResultDeleted(node=NodeId(change.key.removeprefix(prefix))))
                continue
            result = _read(Result, change.item)
            if result is not None:
                self._feed(ev.ResultSeen(result=result))


class _Wants:
    """Report the wants. They are few and change rarely, so each event carries the whole list."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._wants: dict[str, Want] = {}

    def __call__(self, seen: WatchSnapshot | KeysChanged) -> None:
        if isinstance(seen, WatchSnapshot):
            self._wants = {}
            for item in seen.items:
                self._take(item)
        else:
            for change in seen.changes:
                if change.item is not None:
                    self._take(change.item)
                else:
                    self._wants.pop(change.key.rpartition("/")[2], None)
        self._feed(ev.WantsListed(wants=dict(self._wants)))

    def _take(self, item: KeyValue) -> None:
        want = _read(Want, item)
        if want is not None:
            self._wants[item.key.rpartition("/")[2]] = want


class _Few:
    """Report single keys, each with a watch of its own, as one list when all have answered."""

    def __init__(self, nodes: tuple[NodeId, ...], prefix: str, feed: Feed) -> None:
        self._nodes, self._prefix, self._feed = nodes, prefix, feed
        self._first: dict[str, WatchSnapshot] = {}
        self._is_listed = False
        self._early: list[KeysChanged] = []
        self._lock = Lock()

    def sink(self, seen: WatchSnapshot | KeysChanged) -> None:
        with self._lock:  # Lists and changes come from two threads of the store.
            self._take(seen)

    def _take(self, seen: WatchSnapshot | KeysChanged) -> None:
        if isinstance(seen, KeysChanged) and not self._is_listed:
            self._early.append(seen)
        elif isinstance(seen, KeysChanged):
            for event in _member_changes(seen, self._prefix):
                self._feed(event)
        elif not self._is_listed:
            self._first[seen.range.key] = seen
            if len(self._first) == len(self._nodes):
                self._list()
        elif seen.items:
            for member, created, modified in _members_of(seen.items):
                self._feed(_seen(member, created, modified, seen.revision))
        else:
            node = NodeId(seen.range.key.removeprefix(self._prefix))
            self._feed(ev.MemberDeleted(revision=seen.revision, node=node))

    def _list(self) -> None:
        self._is_listed = True
        items = tuple(item for snapshot in self._first.values() for item in snapshot.items)
        revision = min(snapshot.revision for snapshot in self._first.values())
        self._feed(
            ev.MembersListed(revision=revision, members=_members_of(items), watched=self._nodes)
        )
        # The list would undo what came before it was complete.
        for early in self._early:
            for event in _member_changes(early, self._prefix):
                self._feed(event)
        self._early.clear()


def _items(seen: WatchSnapshot | KeysChanged) -> list[KeyValue]:
    if isinstance(seen, WatchSnapshot):
        return list(seen.items)
    return [change.item for change in seen.changes if change.item is not None]


def _members_of(items: tuple[KeyValue, ...]) -> tuple[tuple[Member, int, int], ...]:
    read = [(_read(Member, item), item) for item in items]
    return tuple((m, item.create_revision, item.mod_revision) for m, item in read if m is not None)


def _member_changes(seen: KeysChanged, prefix: str) -> list[ev.Event]:
    events: list[ev.Event] = []
    for change in seen.changes:
        if change.item is None:
            node = NodeId(change.key.removeprefix(prefix))
            events.append(ev.MemberDeleted(revision=seen.revision, node=node))
            continue
        member = _read(Member, change.item)
        if member is not None:
            events.append(
                _seen(
                    member,
                    change.item.create_revision,
                    change.item.mod_revision,
                    change.item.mod_revision,
                )
            )
    return events


def _seen(member: Member, created: int, modified: int, revision: int) -> ev.MemberSeen:
    return ev.MemberSeen(
        revision=revision, member=member, create_revision=created, mod_revision=modified
    )


def _read(kind: type[R], item: KeyValue) -> R | None:
    try:
        return decode(kind, item.value)
    except NotSupported as exc:
        log.error("record.refused", key=item.key, why=str(exc))
        return None

"""A simulated etcd: one revision counter, compare-and-set, leases, watches in order per watch.

Records are kept as they are, not as bytes: the codec has its own tests, and a thousand agents that
decode the same world are not what is simulated here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from tests.sim.clock import Clock

__all__ = [
    "Changes",
    "Delete",
    "Etcd",
    "Item",
    "Line",
    "ModifiedAt",
    "Op",
    "Put",
    "UnchangedSince",
    "Watch",
    "When",
]


class Item(NamedTuple):
    value: object
    create: int
    mod: int
    lease: int | None


class Put(NamedTuple):
    kind: str
    name: str
    value: object
    lease: int | None = None


class Delete(NamedTuple):
    kind: str
    name: str


class ModifiedAt(NamedTuple):
    kind: str
    name: str
    revision: int


class UnchangedSince(NamedTuple):
    kind: str
    revision: int


Op = Put | Delete
When = ModifiedAt | UnchangedSince
Changes = Sequence[tuple[str, Item | None]]
Sink = Callable[[bool, int, Changes], None]
"""(is it a whole list, revision, changes)."""


@dataclass(slots=True)
class Lease:
    id: int
    ttl_s: float
    expires_s: float
    keys: set[tuple[str, str]] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Watch:
    """One watch of one client; its events keep their order."""

    kind: str
    names: frozenset[str] | None
    sink: Sink
    line: "Line"
    is_open: bool = True
    is_broken: bool = False
    """An event was lost: nothing more until it is resumed with a list."""
    last_s: float = 0.0


class Backup(NamedTuple):
    revision: int
    kinds: dict[str, dict[str, Item]]
    leases: dict[int, tuple[float, set[tuple[str, str]]]]
    """The TTL and the keys of each."""


class Line:
    """The way of a watch's events to its client; a perfect one unless overridden."""

    def delay_s(self) -> float:
        return 0.002

    def is_cut(self) -> bool:
        return False

    def is_lost(self) -> bool:
        return False

    def is_repeated(self) -> bool:
        return False

    def lost(self, watch: Watch) -> None:
        """An event of this watch got lost."""


class Etcd:
    def __init__(self, clock: Clock, rng: Random) -> None:
        self.revision = 1
        self.kinds: dict[str, dict[str, Item]] = {}
        self.leases: dict[int, Lease] = {}
        self.is_down = False
        self.history = 0
        """Counts how often its past was lost."""
        self.puts = 0
        self.on_put: Callable[[str, str, Item, Item | None], None] = lambda k, n, i, b: None
        self._clock = clock
        self._rng = rng
        # Dicts as sets that keep their order.
        self._all: dict[str, dict[Watch, None]] = {}
        self._some: dict[tuple[str, str], dict[Watch, None]] = {}
        self._next_lease = 1

    # --- keys

    def get(self, kind: str, name: str) -> Item | None:
        return self.kinds.get(kind, {}).get(name)

    def table(self, kind: str) -> dict[str, Item]:
        return self.kinds.get(kind, {})

    def commit(
        self,
        then: Sequence[Op],
        when: Sequence[When] = (),
        otherwise: Sequence[Op] = (),
    ) -> bool:
        holds = all(self._holds(condition) for condition in when)
        self._apply(then if holds else otherwise)
        return holds

    def _holds(self, condition: When) -> bool:
        if isinstance(condition, ModifiedAt):
            item = self.get(condition.kind, condition.name)
            return (item.mod if item is not None else 0) == condition.revision
        return all(item.mod <= condition.revision for item in self.table(condition.kind).values())

    def _apply(self, ops: Sequence[Op]) -> None:
        if not ops:
            return
        revision = self.revision + 1
        changes: list[tuple[str, str, Item | None]] = []
        for op in ops:
            table = self.kinds.setdefault(op.kind, {})
            before = table.get(op.name)
            if before is not None and before.lease is not None and before.lease in self.leases:
                self.leases[before.lease].keys.discard((op.kind, op.name))
            if isinstance(op, Delete):
                if table.pop(op.name, None) is not None:
                    changes.append((op.kind, op.name, None))
                continue
            created = before.create if before is not None else revision
            item = Item(op.value, created, revision, op.lease)
            table[op.name] = item
            self.puts += 1
            if op.lease is not None:
                self.leases[op.lease].keys.add((op.kind, op.name))
            self.on_put(op.kind, op.name, item, before)
            changes.append((op.kind, op.name, item))
        if changes:
            self.revision = revision
            self._notify(changes)

    # --- leases

    def grant(self, ttl_s: float) -> Lease:
        lease = Lease(self._next_lease, ttl_s, self._clock.now_s + ttl_s)
        self._next_lease += 1
        self.leases[lease.id] = lease
        self._clock.at(lease.expires_s, lambda: self._expire(lease))
        return lease

    def keep(self, lease: int) -> bool:
        found = self.leases.get(lease)
        if found is not None:
            found.expires_s = self._clock.now_s + found.ttl_s
        return found is not None

    def revoke(self, lease: int) -> None:
        found = self.leases.pop(lease, None)
        if found is not None:
            self._apply([Delete(kind, name) for kind, name in sorted(found.keys)])

    def _expire(self, lease: Lease) -> None:
        if self.leases.get(lease.id) is not lease:
            return
        if self.is_down or lease.expires_s > self._clock.now_s:
            due_s = max(lease.expires_s, self._clock.now_s + 0.1)
            self._clock.at(due_s, lambda: self._expire(lease))
            return
        # It is not revoked on the spot: etcd looks every half second.
        late_s = self._rng.uniform(0.0, 0.3)

        def revoke() -> None:
            if self.is_down or lease.expires_s > self._clock.now_s:
                self._expire(lease)
            else:
                self.revoke(lease.id)

        self._clock.after(late_s, revoke)

    def come_back(self) -> None:
        """After an outage every lease begins anew: no lease runs out for want of a server."""
        self.is_down = False
        for lease in self.leases.values():
            lease.expires_s = self._clock.now_s + lease.ttl_s

    # --- a backup

    def backup(self) -> Backup:
        kinds = {kind: dict(table) for kind, table in self.kinds.items()}
        leases = {lease.id: (lease.ttl_s, set(lease.keys)) for lease in self.leases.values()}
        return Backup(self.revision, kinds, leases)

    def restore(self, backup: Backup) -> None:
        """Go back to what was then: keys, revision and leases, which all begin anew."""
        self.history += 1
        self.revision = backup.revision
        self.kinds = {kind: dict(table) for kind, table in backup.kinds.items()}
        self.leases.clear()
        for lease_id, (ttl_s, keys) in backup.leases.items():
            lease = Lease(lease_id, ttl_s, self._clock.now_s + ttl_s, set(keys))
            self.leases[lease_id] = lease
            self._clock.at(lease.expires_s, lambda lease=lease: self._expire(lease))  # type: ignore[misc]
        watches = dict.fromkeys(w for table in self._all.values() for w in table)
        watches |= dict.fromkeys(w for table in self._some.values() for w in table)
        for watch in watches:
            watch.is_broken = True
            self._clock.after(self._rng.uniform(0.1, 0.5), lambda w=watch: self.resume(w))  # type: ignore[misc]

    # --- watches

    def watch(self, kind: str, names: frozenset[str] | None, sink: Sink, line: Line) -> Watch:
        watch = Watch(kind, names, sink, line)
        if names is None:
            self._all.setdefault(kind, {})[watch] = None
        else:
            for name in names:
                self._some.setdefault((kind, name), {})[watch] = None
        self.resume(watch)
        return watch

    def close(self, watch: Watch) -> None:
        if not watch.is_open:
            return
        watch.is_open = False
        if watch.names is None:
            del self._all[watch.kind][watch]
        else:
            for name in watch.names:
                del self._some[(watch.kind, name)][watch]

    def resume(self, watch: Watch) -> None:
        """Begin (again) with a list of the range."""
        if not watch.is_open:
            return
        if self.is_down or watch.line.is_cut():
            watch.is_broken = True
            self._clock.after(0.5, lambda: self.resume(watch))
            return
        watch.is_broken = False
        table = self.table(watch.kind)
        if watch.names is None:
            items: Changes = sorted(table.items())
        else:
            items = [(name, table[name]) for name in sorted(watch.names) if name in table]
        self._deliver(watch, True, items)

    def _notify(self, changes: Sequence[tuple[str, str, Item | None]]) -> None:
        for kind, name, item in changes:
            for watch in (*self._all.get(kind, ()), *self._some.get((kind, name), ())):
                if watch.is_broken:
                    continue
                if watch.line.is_cut() or watch.line.is_lost():
                    watch.is_broken = watch.line.is_cut()
                    watch.line.lost(watch)
                    continue
                self._deliver(watch, False, [(name, item)])

    def _deliver(self, watch: Watch, is_list: bool, changes: Changes) -> None:
        revision = self.revision

        def arrive() -> None:
            if watch.is_open:
                watch.sink(is_list, revision, changes)

        watch.last_s = max(watch.last_s, self._clock.now_s + watch.line.delay_s())
        self._clock.at(watch.last_s, arrive)
        if not is_list and watch.line.is_repeated():
            self._clock.at(watch.last_s + 0.05, arrive)

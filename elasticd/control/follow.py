"""Follows one job: it yields news for a person while the job runs.

It has two watches, on `world` and `status`, and a slow re-read, which repairs gaps of a watch or
reports that etcd does not answer. The follower only reads; if it dies, the job does not notice.
"""

import queue
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from elasticd.control.report.occupancy import elsewhere, read_cluster, waiting_for
from elasticd.control.report.unreadable import UnreadableRecords, readable_nodes
from elasticd.errors import NotFound, Unavailable
from elasticd.records.codec import decode
from elasticd.records.ids import Generation, JobName, NodeId
from elasticd.records.job import JobSpec, JobStatus
from elasticd.records.keys import Keys
from elasticd.records.member import Member, Node
from elasticd.records.reason import Phase
from elasticd.records.world import World
from elasticd.store.api import KeyRange, KeysChanged, KeyValue, Store, WatchSnapshot

__all__ = ["EtcdAway", "EtcdBack", "Follower", "JobEnded", "News", "Waiting", "WorldFormed"]

REREAD_S = 5.0
STALL_S = 10.0
"""A job without a world for this long gets a sentence that says for what it waits."""
PROPOSERS = 3
"""The number of nodes of a world, from the first on, that may propose the next world."""
QUEUE_LIMIT = 1000
"""The limit of queued changes of two keys; a slower reader gets the rest by the re-read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldFormed:
    """A new world was formed."""

    world: World
    nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    """The nodes of the cluster at that time, whose log servers can be asked."""
    has_no_new_node: bool = False
    """True if all its nodes were in the world that was seen before: then workers joined it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """No world can be formed now; the message says for what the job waits."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAway:
    """etcd does not answer; the workers go on for as long as their world works."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdBack:
    """etcd answers again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """The job is over."""

    status: JobStatus


News = WorldFormed | Waiting | EtcdAway | EtcdBack | JobEnded


class Follower:
    """Returns one piece of news at a time. Only `wake` may be called from another thread."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        spec: JobSpec,
        *,
        trouble: Callable[[Node], str] = lambda node: "",
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to watch; `trouble` asks a node which of its writes etcd refuses."""
        self._trouble = trouble
        self._proposers: deque[Node] = deque()
        self._store, self._keys, self._spec, self._now_s = store, keys, spec, now_s
        self._hints: queue.SimpleQueue[tuple[str, KeyValue | None] | None] = queue.SimpleQueue()
        self._pending: list[News] = []
        self._status: JobStatus | None = None
        self._generation = Generation(0)
        self._in_world: frozenset[NodeId] = frozenset()
        self._said = ""
        self._is_away = False
        self._is_over = False
        self._began_s = self._reread_s = now_s()
        job: JobName = spec.name
        self._world_key, self._status_key = keys.world(job), keys.status(job)
        self._watches = [
            store.watch(KeyRange(key=key), self._take)
            for key in (self._world_key, self._status_key)
        ]

    def next(self, timeout_s: float) -> News | None:
        """Return the next piece of news; None after `timeout_s`, or after a call of `wake`.

        Raises:
            NotFound: the job's records were removed.
            NotSupported: a record has a newer schema.
        """
        if not self._pending and not self._is_over:
            self._wait(timeout_s)
        return self._pending.pop(0) if self._pending else None

    def wake(self) -> None:
        """Make a waiting `next` return; a signal handler may call this."""
        self._hints.put(None)

    def close(self) -> None:
        for watch in self._watches:
            watch.close()

    # --- private ------------------------------------------------------------------------------

    def _take(self, seen: WatchSnapshot | KeysChanged) -> None:
        """Put the changes that a watch saw into the queue; the store's thread calls this."""
        if self._hints.qsize() > QUEUE_LIMIT:
            return
        if isinstance(seen, WatchSnapshot):
            self._hints.put((seen.range.key, seen.items[0] if seen.items else None))
        else:
            for change in seen.changes:
                self._hints.put((change.key, change.item))

    def _wait(self, timeout_s: float) -> None:
        now_s = self._now_s()
        due_s = self._reread_s + REREAD_S
        try:
            hint = self._hints.get(timeout=max(0.0, min(timeout_s, due_s - now_s)))
        except queue.Empty:
            if self._now_s() >= due_s:
                self._reread()
            return
        if hint is not None:
            self._apply(*hint)

    def _apply(self, key: str, item: KeyValue | None) -> None:
        if key == self._world_key and item is not None:
            self._see_world(decode(World, item.value))
        elif key == self._status_key and item is not None:
            self._see_status(decode(JobStatus, item.value))
        elif key == self._status_key and self._status is not None:
            raise self._replaced()

    def _check_uid(self, uid: str) -> None:
        """Check that a record is of this job: a watch that begins anew may show only the next one.

        Raises: NotFound: another job has the name.
        """
        if uid not in ("", self._spec.uid):
            raise self._replaced()

    def _replaced(self) -> NotFound:
        return NotFound(
            f"The records of job {self._spec.name!r} were removed: another job took its name."
        )

    def _see_world(self, world: World) -> None:
        self._check_uid(world.uid)
        if world.generation <= self._generation:
            return
        self._generation = world.generation
        names = frozenset(place.node for place in world.nodes)
        has_no_new_node, self._in_world = names <= self._in_world, names
        self._said = ""
        nodes = self._nodes()
        found = (nodes.get(each.node) for each in world.nodes[:PROPOSERS])
        self._proposers = deque(node for node in found if node is not None)
        self._pending.append(WorldFormed(world=world, nodes=nodes, has_no_new_node=has_no_new_node))

    def _see_status(self, status: JobStatus) -> None:
        self._check_uid(status.uid)
        self._status = status
        if status.phase.is_final:
            self._is_over = True
            self._pending.append(JobEnded(status=status))
        elif status.phase is Phase.WAITING or (status.message and not self._generation):
            self._say(status.message)

    def _say(self, message: str) -> None:
        if message and message != self._said:
            self._said = message
            self._pending.append(Waiting(message=message))

    def _reread(self) -> None:
        try:
            world = self._store.get(self._world_key)
            status = self._store.get(self._status_key)
            if world is None and self._now_s() - self._began_s >= STALL_S:
                self._say(self._stall())
        except Unavailable as exc:
            if not self._is_away:
                self._is_away = True
                self._pending.append(EtcdAway(message=str(exc)))
        else:
            if self._is_away:
                self._is_away = False
                self._pending.append(EtcdBack())
            self._apply(self._world_key, world)
            self._apply(self._status_key, status)
            self._ask_for_trouble()
        self._reread_s = self._now_s()

    def _stall(self) -> str:
        """Return a sentence that says for what a job without a world waits."""
        if self._status is not None and self._status.message:
            return self._status.message
        items = self._store.list(self._keys.members(self._spec.name)).items
        members = [decode(Member, item.value) for item in items]
        unreadable = UnreadableRecords()
        cluster = read_cluster(self._store, self._keys, unreadable)
        said = waiting_for(self._spec, members) + elsewhere(self._spec, members, cluster)
        return f"{said}; {unreadable.clause}" if unreadable.clause else said

    def _ask_for_trouble(self) -> None:
        """Return why no new world comes, if etcd refuses the writes of its proposers."""
        if self._proposers and not self._is_over:
            self._proposers.rotate(-1)
            node = self._proposers[0]
            if sentence := self._trouble(node):
                self._say(f"node {node.node} cannot write to etcd: {sentence}")

    def _nodes(self) -> Mapping[NodeId, Node]:
        """Return the nodes' records, which have the addresses of their log servers.

        The mapping is empty if etcd does not answer now; nodes whose records have a newer schema
        are left out.
        """
        try:
            items = self._store.list(self._keys.nodes).items
        except Unavailable:
            return {}
        nodes = readable_nodes(items, self._keys, UnreadableRecords())
        return {node.node: node for node in nodes}

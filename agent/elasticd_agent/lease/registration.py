"""This node's standing in etcd: its lease, its record, and whether it may write at all.

The record under `nodes/` makes one life of an agent the node's: other agents rely on its reports
about the node's workers. So it is written by compare-and-set, also after a lease was lost, and only
where no other life's record stands. An agent that finds one stands by: two that overwrote each
other would cost their jobs a generation a turn. A record is taken over only if that agent's machine
answers that nobody listens there any more.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import elasticd
from elasticd.errors import ElasticdError, Refused, Unavailable
from elasticd.net.listener import host_port
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName, Life, incarnation_of, life_of
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.store.api import Lease, ModifiedAt, Put, Store, Txn, always
from elasticd.telemetry.log import get_logger
from elasticd_agent.lease.peer_links import is_refused
from elasticd_agent.loop.clock import now_s
from elasticd_agent.loop.effect_thread import EffectThread, later
from elasticd_agent.loop.inbox import Item
from elasticd_agent.settings import AgentSettings

__all__ = ["Registration"]

CONNECT_TIMEOUT_S = 1.0
POLL_WHILE_FENCED_S = 0.2
RETRY_S = 1.0
NAME_RETRY_S = 5.0
"""The pause between two looks whether another agent still has this node's name."""
TTLS_WAITED = 3
"""How many TTLs to wait at the start for the record of an agent that cannot be reached: if that
agent is gone, its record goes."""
GRANT, RECORD = "lease.not_granted", "node.not_registered"
"""The steps that may fail, as the log names them."""
OF_THE_NODE = JobName("")
"""The name under which failures of the node's own writes are kept: they belong to no job."""
RACES = 3
"""How many writes of the record may lose a race; a fourth would be no race any more."""

log = get_logger()


class Registration:
    """Hold one lease for the whole node, and the node's record under it.

    `lost` is called on the owner's thread when etcd says that the lease is over. It then seeks a
    new one by itself, and calls `found` when there is one. `may_renew` is asked before each
    keepalive, on the store's thread.
    """

    def __init__(
        self,
        settings: AgentSettings,
        store: Store,
        effect_thread: EffectThread,
        life: Life,
        post: Callable[[Item], None],
        *,
        lost: Callable[[], None],
        found: Callable[[], None],
        may_renew: Callable[[], bool] = always,
    ) -> None:
        self._settings, self._store, self._effect_thread = settings, store, effect_thread
        self._key = Keys(settings.cluster).node(settings.node)
        self._life, self._post, self._lost, self._found = life, post, lost, found
        self._ports = (0, 0)
        self.is_draining, self._labels = False, settings.labels
        self._recorded = self._said_of_us
        """What the newest record that we wrote says."""
        self._may_renew = may_renew
        self._is_closing = self._is_seeking = False
        self._said = ""
        self.lease: Lease | None = None

    @property
    def is_fenced(self) -> bool:
        """Return True if the lease is not surely alive: nothing may be written."""
        return self.lease is None or now_s() >= self.lease.deadline_s

    @property
    def wake_s(self) -> float | None:
        """Return when `is_fenced` may next change by itself."""
        if self.lease is None:
            return None
        return now_s() + POLL_WHILE_FENCED_S if self.is_fenced else self.lease.deadline_s

    def open(self, peer_port: int, http_port: int) -> None:
        """Register, waiting for etcd.

        Raises:
            Refused: another agent serves under this node's name, or may.
            ElasticdError: etcd cannot be used.
        """
        self._ports = (peer_port, http_port)
        limit_s = now_s() + TTLS_WAITED * self._settings.lease_ttl_s
        while isinstance(found := self._register(), Node):
            is_there = _is_listening(found.address, found.port)
            if is_there or now_s() >= limit_s:
                silent = (
                    "" if is_there else ", which cannot be reached from here and keeps its lease"
                )
                raise Refused(
                    f"Node {found.node!r} is already served by an agent at "
                    f"{host_port(found.address, found.port)} (pid {found.pid} on {found.host})"
                    f"{silent}: stop that one, or give this one another --node-id."
                )
            self._warn_name_taken(found)
            time.sleep(RETRY_S)
        self.lease = found
        log.info(
            "node.registered",
            node=self._settings.node,
            life=self._life,
            ttl_seconds=found.ttl_s,
        )

    @property
    def _said_of_us(self) -> tuple[bool, Mapping[str, str]]:
        """Return what a person may change while the node serves: draining, and its labels."""
        return self.is_draining, self._labels

    def set_draining(self, is_draining: bool) -> None:
        """Say in this node's record whether it takes no more work."""
        self.is_draining = is_draining
        self._put_soon()

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """Say in this node's record which labels it has."""
        self._labels = labels
        self._put_soon()

    def close(self) -> None:
        """Give the lease back: all records under it are deleted at once."""
        self._is_closing = True
        if self.lease is None:
            return
        try:
            self.lease.revoke()
        except ElasticdError:
            self.lease.close()

    def _lease_ended(self) -> None:
        """Handle the end of the lease; the store's thread calls this."""
        self._post(self._begin_anew)

    def _begin_anew(self) -> None:
        """Seek another lease, once: etcd and the record may both report the end of the same lease.

        A node with two would renew the licenses of its workers under the newer one alone.
        """
        if self._is_seeking:
            return
        self._is_seeking = True
        log.warning("lease.lost")
        self.lease = None
        self._lost()
        self._grant_soon()

    def _grant_soon(self) -> None:
        if not self._is_closing:
            self._effect_thread.send(self._register, self._answered, self._not_granted)

    def _answered(self, found: Lease | Node) -> None:
        """Take in etcd's answer; the thread of effects calls this."""
        if isinstance(found, Node):
            self._warn_name_taken(found)
            later(NAME_RETRY_S, lambda: self._post(self._grant_soon))
        else:
            self._written(GRANT)
            self._post(lambda: self._granted(found))

    def _not_granted(self, exc: ElasticdError) -> None:
        """Handle a lease that was not granted; the thread of effects calls this."""
        later(self._failed(GRANT, exc), lambda: self._post(self._grant_soon))

    def _granted(self, lease: Lease) -> None:
        self._is_seeking = False
        if now_s() >= lease.deadline_s:  # Lost before this thread knew of it, perhaps.
            lease.close()
            self._begin_anew()
            return
        self.lease = lease
        log.info("node.registered_again", lease_ttl_seconds=lease.ttl_s)
        if self._recorded != self._said_of_us:  # It changed while the lease was sought.
            self._put_soon()
        self._found()

    def _put_soon(self) -> None:
        lease = self.lease
        if lease is not None:
            self._effect_thread.send(
                lambda: self._rewrite(lease),
                lambda other: self._rewritten(lease, other),
                lambda exc: self._not_put(lease, exc),
            )

    def _rewritten(self, lease: Lease, other: Node | None) -> None:
        """Handle the answer to a rewritten record; the thread of effects calls this.

        If another agent has the name, it has the node too.
        """
        if other is None:
            self._written(RECORD)
        else:
            self._warn_name_taken(other)
            _end(lease)
            self._lease_ended()

    def _not_put(self, lease: Lease, exc: ElasticdError) -> None:
        """Handle a record that was not written; the thread of effects calls this."""
        pause_s = self._failed(RECORD, exc)
        if not self._is_closing:
            later(pause_s, lambda: self._post(lambda: self._put_again(lease)))

    def _put_again(self, lease: Lease) -> None:
        if self.lease is lease:
            self._put_soon()

    # --- the record, on whichever thread may wait -----------------------------------------------

    def _register(self) -> Lease | Node:
        """Take a lease and write our record under it, or return the record of another life."""
        for _ in range(RACES):
            revision, other = self._look_up()
            if other is not None and not is_refused(other.address, other.port):
                return other
            ttl_s = self._settings.lease_ttl_s
            lease = self._store.grant(ttl_s, self._lease_ended, self._may_renew)
            try:
                if self._put(lease, revision):
                    return lease
            except ElasticdError:
                lease.close()
                raise
            _end(lease)
        raise Unavailable("Others write this node's record at the same time.")

    def _rewrite(self, lease: Lease) -> Node | None:
        """Write our record anew, unless another life's record stands there; then return
        that one.
        """
        revision, other = self._look_up()
        if other is None and not self._put(lease, revision):
            raise Unavailable("Others write this node's record at the same time.")
        return other

    def _look_up(self) -> tuple[int, Node | None]:
        """Return the revision of the record under our name, and the record itself if it is not our
        own.
        """
        item = self._store.get(self._key)
        if item is None:
            return 0, None
        node = decode(Node, item.value)
        is_own = life_of(node.incarnation) == self._life
        return item.mod_revision, None if is_own else node

    def _put(self, lease: Lease, revision: int) -> bool:
        """Write our record if the stored one still has this revision."""
        settings, said = self._settings, self._said_of_us
        is_draining, labels = said
        node = Node(
            node=settings.node,
            incarnation=incarnation_of(self._life, 0),
            host=settings.host,
            address=settings.address,
            port=self._ports[0],
            http_port=self._ports[1],
            slots=settings.slots,
            labels=labels,
            version=elasticd.__version__,
            pid=os.getpid(),
            boot_id=_boot_id(),
            is_draining=is_draining,
        )
        when = (ModifiedAt(key=self._key, revision=revision),)
        put = Put(key=self._key, value=encode(node), lease=lease.id)
        is_written = self._store.commit(Txn(when=when, then=(put,))).succeeded
        if is_written:
            self._recorded = said
        return is_written

    # --- for people -----------------------------------------------------------------------------

    def _failed(self, what: str, exc: ElasticdError) -> float:
        """Log once what etcd refuses, or why it does not answer; return when to try again.

        A refused write is tried ever more slowly, and is reported to everybody who asks for this
        node's health.
        """
        pause_s = self._effect_thread.failed_writes.failed(OF_THE_NODE, what, exc)
        if not pause_s:
            self._warn_once(what, why=str(exc))
        return max(RETRY_S, pause_s)

    def _written(self, what: str) -> None:
        self._said = ""
        self._effect_thread.failed_writes.succeeded(OF_THE_NODE, what)

    def _warn_name_taken(self, other: Node) -> None:
        where = host_port(other.address, other.port)
        self._warn_once("node.name_taken", by=where, host=other.host, pid=other.pid)

    def _warn_once(self, event: str, **more: object) -> None:
        """Log a warning, once for as long as it stays the same."""
        text = f"{event} {more}"
        if text != self._said:
            self._said = text
            log.warning(event, **more)


def _end(lease: Lease) -> None:
    """Give the lease back if etcd can be reached, otherwise let it run out."""
    with suppress(ElasticdError):
        lease.revoke()
    lease.close()


def _is_listening(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""

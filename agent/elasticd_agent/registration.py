"""This node's standing in etcd: its lease, its record, and whether it may write at all."""

import os
import socket
from collections.abc import Callable

import elasticd
from elasticd.errors import ElasticdError, Refused
from elasticd.records.codec import decode, encode
from elasticd.records.ids import Life, incarnation_of
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.store.api import Lease, Put, Store, Txn
from elasticd.telemetry.log import get_logger
from elasticd_agent.clock import now_s
from elasticd_agent.courier import Courier, later
from elasticd_agent.inbox import Item
from elasticd_agent.settings import AgentSettings

__all__ = ["Registration"]

CONNECT_TIMEOUT_S = 1.0
POLL_WHILE_FENCED_S = 0.2
RETRY_S = 1.0

log = get_logger()


class Registration:
    """One lease for the whole node, and the node's record under it.

    `lost` is called on the owner's thread when etcd says that the lease is over; a new one is then
    sought by itself, and `found` called when there is one.
    """

    def __init__(
        self,
        settings: AgentSettings,
        store: Store,
        courier: Courier,
        life: Life,
        post: Callable[[Item], None],
        *,
        lost: Callable[[], None],
        found: Callable[[], None],
    ) -> None:
        self._settings, self._store, self._courier = settings, store, courier
        self._key = Keys(settings.cluster).node(settings.node)
        self._life, self._post, self._lost, self._found = life, post, lost, found
        self._ports = (0, 0)
        self._is_draining = False
        self._is_closing = False
        self.lease: Lease | None = None

    @property
    def is_fenced(self) -> bool:
        """True if the lease is not surely alive: nothing may be written."""
        return self.lease is None or now_s() >= self.lease.deadline_s

    @property
    def wake_s(self) -> float | None:
        """When `is_fenced` may next change by itself."""
        if self.lease is None:
            return None
        return now_s() + POLL_WHILE_FENCED_S if self.is_fenced else self.lease.deadline_s

    def open(self, peer_port: int, http_port: int) -> None:
        """Register, waiting for etcd.

        Raises:
            Refused: another agent serves under this node's name.
            ElasticdError: etcd cannot be used.
        """
        self._ports = (peer_port, http_port)
        self._refuse_twin()
        self.lease = self._store.grant(self._settings.lease_ttl_s, self._lease_ended)
        self._put(self.lease)
        log.info(
            "node.registered",
            node=self._settings.node,
            life=self._life,
            ttl_seconds=self.lease.ttl_s,
        )

    def set_draining(self, is_draining: bool) -> None:
        self._is_draining = is_draining
        self._put_soon()

    def close(self) -> None:
        """Goodbye: what hangs on the lease is gone at once."""
        self._is_closing = True
        if self.lease is None:
            return
        try:
            self.lease.revoke()
        except ElasticdError:
            self.lease.close()

    def _lease_ended(self) -> None:
        """Called by the store's thread."""
        self._post(self._begin_anew)

    def _begin_anew(self) -> None:
        log.warning("lease.lost")
        self.lease = None
        self._lost()
        self._grant_soon()

    def _grant_soon(self) -> None:
        if self._is_closing:
            return
        self._courier.send(
            lambda: self._store.grant(self._settings.lease_ttl_s, self._lease_ended),
            lambda lease: self._post(lambda: self._granted(lease)),
            lambda exc: later(RETRY_S, lambda: self._post(self._grant_soon)),
        )

    def _granted(self, lease: Lease) -> None:
        self.lease = lease
        self._put_soon()
        self._found()

    def _put_soon(self) -> None:
        lease = self.lease
        if lease is not None:
            self._courier.send(
                lambda: self._put(lease),
                lambda _: None,
                lambda exc: self._not_put(lease, exc),
            )

    def _not_put(self, lease: Lease, exc: ElasticdError) -> None:
        """Called by the courier's thread."""
        log.error("node.not_registered", why=str(exc))
        if not self._is_closing:
            later(RETRY_S, lambda: self._post(lambda: self._put_again(lease)))

    def _put_again(self, lease: Lease) -> None:
        if self.lease is lease:
            self._put_soon()

    def _put(self, lease: Lease) -> None:
        settings = self._settings
        node = Node(
            node=settings.node,
            incarnation=incarnation_of(self._life, 0),
            host=settings.host,
            address=settings.address,
            port=self._ports[0],
            http_port=self._ports[1],
            slots=settings.slots,
            labels=settings.labels,
            version=elasticd.__version__,
            pid=os.getpid(),
            boot_id=_boot_id(),
            is_draining=self._is_draining,
        )
        self._store.commit(Txn(then=(Put(key=self._key, value=encode(node), lease=lease.id),)))

    def _refuse_twin(self) -> None:
        """Two agents of one name would fight over one record: the second one does not start."""
        item = self._store.get(self._key)
        if item is None:
            return
        other = decode(Node, item.value)
        if _is_listening(other.address, other.port):
            raise Refused(
                f"Node {other.node!r} is already served by an agent at {other.address}:"
                f"{other.port} (pid {other.pid} on {other.host}): stop that one, or give this "
                "one another --node-id."
            )


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

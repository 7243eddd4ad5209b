"""Leases that keep themselves alive.

One thread serves all leases of a store. Three times per TTL it sends one keepalive as a plain call
with a deadline, so that it takes the same way round a dead member as every other call; a stream
that stays open would have to be watched for going silent. The deadline of a lease is counted from
the *sending* of the last keepalive that was answered: etcd counts from its arrival or later, so it
never ends a lease before we know.
"""

import math
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from elasticd.errors import ElasticdError, Fenced
from elasticd.store.api import LeaseId, always
from elasticd.store.etcd.channel import Rpc, rpc_pb2
from elasticd.store.etcd.connection import EtcdConnection

__all__ = ["EtcdLease", "LeaseKeepalive"]

# Two keepalives may get lost before the lease is in danger; etcd's own client does the same.
_BEATS_PER_TTL = 3
# After a failed keepalive: soon again, but not in step with all others.
_LONGEST_PAUSE_S = 0.5
_SHORTEST_TRY_S = 0.5
# The goodbye of a node must not wait for an etcd that is away: the lease runs out by itself.
_REVOKE_LIMIT_S = 2.0


class EtcdLease:
    """The `Lease` on etcd. `LeaseKeepalive.grant` makes it."""

    def __init__(
        self,
        keepalive: "LeaseKeepalive",
        lease_id: LeaseId,
        *,
        ttl_s: float,
        deadline_s: float,
        on_lost: Callable[[], None],
        may_renew: Callable[[], bool],
        history: int,
    ) -> None:
        self._keepalive = keepalive
        self.may_renew = may_renew
        self.history = history
        """The history of the connection at the time when the lease was granted."""
        self._id = lease_id
        self._ttl_s = ttl_s
        self._deadline_s = deadline_s
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._is_over = False
        self.next_beat_s = time.monotonic() + ttl_s / _BEATS_PER_TTL

    @property
    def id(self) -> LeaseId:
        return self._id

    @property
    def ttl_s(self) -> float:
        return self._ttl_s

    @property
    def deadline_s(self) -> float:
        return self._deadline_s

    def revoke(self) -> None:
        if self._end():
            self._deadline_s = min(self._deadline_s, _boottime_s())
            self._keepalive.forget(self)
            self._keepalive.revoke(self._id)

    def close(self) -> None:
        self._end()
        self._keepalive.forget(self)

    def prolong(self, sent_s: float) -> None:
        with self._lock:
            if not self._is_over:
                self._deadline_s = max(self._deadline_s, sent_s + self._ttl_s)

    def lose(self) -> None:
        if self._end():
            self._deadline_s = min(self._deadline_s, _boottime_s())
            self._on_lost()

    def _end(self) -> bool:
        """End the lease; return whether this call ended it."""
        with self._lock:
            was_over, self._is_over = self._is_over, True
            return not was_over


class LeaseKeepalive:
    """Grants leases and keeps them alive from one thread."""

    def __init__(self, connection: EtcdConnection) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._leases: list[EtcdLease] = []
        self._thread: threading.Thread | None = None
        self._is_closed = False
        connection.on_history_lost = self._look_again

    def grant(
        self, ttl_s: float, on_lost: Callable[[], None], may_renew: Callable[[], bool] = always
    ) -> EtcdLease:
        # etcd counts whole seconds. A grant that was repeated may leave a second lease behind,
        # without keys; it runs out.
        request = rpc_pb2.LeaseGrantRequest(TTL=max(1, math.ceil(ttl_s)))
        sent_s, history = _boottime_s(), self._connection.history
        answer = self._connection.call(Rpc.LEASE_GRANT, request)
        lease = EtcdLease(
            self,
            LeaseId(answer.ID),
            ttl_s=float(answer.TTL),
            deadline_s=sent_s + answer.TTL,
            on_lost=on_lost,
            may_renew=may_renew,
            history=history,
        )
        with self._changed:
            self._leases.append(lease)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="etcd-lease", daemon=True)
                self._thread.start()
            self._changed.notify()
        return lease

    def forget(self, lease: EtcdLease) -> None:
        with self._changed:
            if lease in self._leases:
                self._leases.remove(lease)

    def revoke(self, lease_id: LeaseId) -> None:
        """End a lease in etcd.

        Raises:
            Unavailable: etcd did not answer within two seconds; the lease will run out.
        """
        timeout_s = min(_REVOKE_LIMIT_S, self._connection.settings.timeout_s)
        try:
            self._connection.call(
                Rpc.LEASE_REVOKE,
                rpc_pb2.LeaseRevokeRequest(ID=lease_id),
                timeout_s=timeout_s,
                is_diagnosed=False,
            )
        except Fenced:
            return  # Over already, which is what was wanted.

    def close(self) -> None:
        """Stop all keepalives; call it after the connection was closed, which ends its calls."""
        with self._changed:
            self._is_closed = True
            self._leases.clear()
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # --- in the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                due = min(self._leases, key=self._due_s, default=None)
                wait_s = None if due is None else self._due_s(due) - time.monotonic()
                if due is None or (wait_s is not None and wait_s > 0):
                    self._changed.wait(wait_s)
                    continue
            self._beat(due)

    def _due_s(self, lease: EtcdLease) -> float:
        """Return when to see to the lease: at once if etcd has lost the past that it is of."""
        return lease.next_beat_s if lease.history == self._connection.history else 0.0

    def _look_again(self) -> None:
        """Wake the thread, which may sleep for a third of a long TTL; any thread calls this."""
        with self._changed:
            self._changed.notify()

    def _beat(self, lease: EtcdLease) -> None:
        if lease.history != self._connection.history:
            self._disown(lease)
            return
        started_s = time.monotonic()
        if not lease.may_renew():
            lease.next_beat_s = started_s + _LONGEST_PAUSE_S
            return
        try:
            is_alive = self._keep_alive(lease) or self._keep_alive(lease)
        except ElasticdError:
            # Go on for as long as it is away: etcd counts no lease down while it has no leader,
            # and a new leader starts every lease afresh.
            pause_s = min(lease.ttl_s / 10, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)  # noqa: S311
            lease.next_beat_s = time.monotonic() + pause_s
            return
        if is_alive:
            lease.next_beat_s = started_s + lease.ttl_s / _BEATS_PER_TTL
        else:
            # Asked twice: a leader fresh in office may not have applied our grant yet
            # (etcd before 3.5.3 does not wait for that).
            self.forget(lease)
            lease.lose()

    def _disown(self, lease: EtcdLease) -> None:
        """Give up a lease of an etcd that has lost its past since.

        A backup has leases too, and may have this one, but not the later writes of its holder or of
        others. So the holder begins anew, as after any lost lease.
        """
        self.forget(lease)
        lease.lose()
        with suppress(ElasticdError):
            self.revoke(lease.id)

    def _keep_alive(self, lease: EtcdLease) -> bool:
        """Return whether etcd still knows the lease."""
        sent_s = _boottime_s()
        timeout_s = max(lease.ttl_s / _BEATS_PER_TTL, _SHORTEST_TRY_S)
        try:
            answer = self._connection.call(
                Rpc.LEASE_KEEPALIVE,
                rpc_pb2.LeaseKeepAliveRequest(ID=lease.id),
                timeout_s=min(timeout_s, self._connection.settings.timeout_s),
                is_diagnosed=False,
            )
        except Fenced:
            return False
        if answer.TTL <= 0:
            return False
        lease.prolong(sent_s)
        return True


def _boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)

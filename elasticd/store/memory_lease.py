"""Leases of the store in memory: what their holder sees, and what the store keeps of each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from elasticd.store.api import LeaseId, always

__all__ = ["Grant", "MemoryLease"]


@dataclass(slots=True, kw_only=True)
class Grant:
    """A lease as etcd sees it."""

    ttl_s: float
    on_lost: Callable[[], None]
    may_renew: Callable[[], bool] = always
    silent_s: float | None = None
    """Since when its holder does not renew it."""
    ends_s: float | None = None
    """When it ends; None if somebody keeps it alive."""
    keys: set[str] = field(default_factory=set)


class Leases(Protocol):
    """The methods of its store that a lease needs."""

    def lease_deadline_s(self, lease_id: LeaseId, /) -> float: ...
    def end_lease(self, lease_id: LeaseId, /, *, is_lost: bool) -> None: ...
    def abandon_lease(self, lease_id: LeaseId, /) -> None: ...


class MemoryLease:
    """The `Lease` of `MemoryStore`."""

    def __init__(self, store: Leases, lease_id: LeaseId, ttl_s: float) -> None:
        self._store = store
        self._id = lease_id
        self._ttl_s = ttl_s

    @property
    def id(self) -> LeaseId:
        return self._id

    @property
    def ttl_s(self) -> float:
        return self._ttl_s

    @property
    def deadline_s(self) -> float:
        return self._store.lease_deadline_s(self._id)

    def revoke(self) -> None:
        self._store.end_lease(self._id, is_lost=False)

    def close(self) -> None:
        self._store.abandon_lease(self._id)

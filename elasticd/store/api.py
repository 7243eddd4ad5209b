"""The port to etcd: what the rest of elasticd may ask of it.

Two implementations, `etcd` and `memory`, pass the same contract tests. It is small on purpose:
reading, one kind of transaction, list-and-watch, leases. A watch *begins with a snapshot* and
begins again with one whenever continuity was lost (compaction, a gap), so a consumer needs one code
path: a snapshot replaces all that it knew of the range.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NewType, Protocol

__all__ = [
    "KeyChange",
    "KeysChanged",
    "Delete",
    "KeyRange",
    "KeyValue",
    "LEAST_LEASE_TTL_S",
    "MOST_LEASE_TTL_S",
    "Lease",
    "LeaseId",
    "ModifiedAt",
    "NODE_LEASE_TTL_S",
    "Op",
    "Put",
    "ReadableStore",
    "WatchSnapshot",
    "Store",
    "StoreSettings",
    "Txn",
    "TxnResult",
    "UnchangedSince",
    "Watch",
    "WatchSink",
    "always",
    "never",
]

LEAST_LEASE_TTL_S = 2.0
"""The least time for which etcd grants a lease, with its default election timeout."""
MOST_LEASE_TTL_S = 86_400.0
"""A day: nobody would wait longer for the news that a process is gone."""
NODE_LEASE_TTL_S = 5.0
"""Within this time the loss of a node is noticed, unless `--lease-ttl` says otherwise."""

LeaseId = NewType("LeaseId", int)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    key: str
    value: bytes
    mod_revision: int
    create_revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """One key, or all keys that begin with a prefix."""

    key: str
    is_prefix: bool = False

    def covers(self, key: str) -> bool:
        return key.startswith(self.key) if self.is_prefix else key == self.key


# --- transactions -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifiedAt:
    """The key was last written at this revision; 0: it does not exist."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnchangedSince:
    """No key under the prefix was written after this revision. Deletions are not seen."""

    prefix: str
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    key: str
    value: bytes
    lease: LeaseId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete one key, all that begin with it, or all from it on up to another one, which stays."""

    key: str
    is_prefix: bool = False
    until: str = ""

    def covers(self, key: str) -> bool:
        if self.until:
            return self.key <= key < self.until
        return KeyRange(key=self.key, is_prefix=self.is_prefix).covers(key)


Op = Put | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Txn:
    """If all of `when` holds, do `then`, else `otherwise`, in one step.

    An answer that got lost is resolved by reading back: give the first Put in `then` a value that
    nobody else would write (a token), where it matters who won.
    """

    when: tuple[ModifiedAt | UnchangedSince, ...] = ()
    then: tuple[Op, ...] = ()
    otherwise: tuple[Op, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnResult:
    succeeded: bool
    """Whether `when` held."""
    revision: int
    """The revision of the store after the transaction."""


# --- watches ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSnapshot:
    """All keys of the range at one revision; replaces everything known of it."""

    range: KeyRange
    revision: int
    items: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChange:
    """A key was put (`item`) or deleted (None)."""

    key: str
    item: KeyValue | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysChanged:
    """What one transaction or more changed, in order; never older than what was seen before."""

    range: KeyRange
    revision: int
    changes: tuple[KeyChange, ...]


WatchSink = Callable[[WatchSnapshot | KeysChanged], None]
"""Called from the store's own thread; must not block (put it into a queue).

If it raises, that is told on stderr, and the watch begins again with a snapshot."""


class Watch(Protocol):
    def close(self) -> None:
        """Stop; no call of the sink begins after this returns."""


# --- leases -----------------------------------------------------------------------------------


class Lease(Protocol):
    """A lease that keeps itself alive until it is closed or lost."""

    @property
    def id(self) -> LeaseId: ...

    @property
    def ttl_s(self) -> float:
        """The TTL as granted, which may be more than was asked for."""

    @property
    def deadline_s(self) -> float:
        """Return until when the lease surely lives, on `time.clock_gettime(CLOCK_BOOTTIME)`.

        Sending time of the last keepalive that was answered, plus the TTL. From then on the holder
        writes nothing. It may move forward again if etcd comes back and still knows the lease.
        """

    def revoke(self) -> None:
        """End the lease now, with every key attached to it; does nothing if it has ended."""

    def close(self) -> None:
        """Stop keeping the lease alive, without revoking it."""


# --- the store --------------------------------------------------------------------------------


def always() -> bool:
    """Return True: the answer of a holder that has no reason to let its lease go."""
    return True


def never() -> bool:
    """Return False: the answer of an etcd that is waited for as long as a call may take."""
    return False


class ReadableStore(Protocol):
    """The methods for readers of records. A call blocks for at most the store's timeout.

    Raises, from every call:
        Unavailable: no endpoint answered in time, or there is no quorum.
        Refused: user, password, permission or certificate.
    """

    def get(self, key: str) -> KeyValue | None:
        """Read one key, linearizably."""

    def list(self, prefix: str) -> WatchSnapshot:
        """Read all keys that begin with the prefix at one revision, in the order of the keys."""

    def keys(self, prefix: str) -> Sequence[str]:
        """Name all keys that begin with the prefix, in their order; brings no values."""

    def oldest(self, prefix: str, count: int) -> Sequence[str]:
        """Name the `count` keys under the prefix that were created first, the oldest first."""


class Store(ReadableStore, Protocol):
    """A store that can also be written to and watched, and that grants leases.

    Raises, from every call, what `ReadableStore` raises, and:
        Refused: also where etcd is full.
        Fenced: a Put names a lease that etcd no longer has.
    """

    def commit(self, txn: Txn) -> TxnResult:
        """Carry out a transaction; see `Txn`."""

    def watch(self, range: KeyRange, sink: WatchSink) -> Watch:
        """Give the sink a WatchSnapshot, then every change; resumes by itself; returns at once."""

    def grant(
        self, ttl_s: float, on_lost: Callable[[], None], may_renew: Callable[[], bool] = always
    ) -> Lease:
        """Grant a lease and keep it alive; `on_lost` is called once if etcd says it is over.

        `may_renew` is asked before each keepalive: a holder that does nothing any more lets its
        lease run out by answering False, and keeps it if it goes on in time.
        """

    def close(self) -> None:
        """End all watches, the leases' keepalives, and the connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """How to reach etcd."""

    endpoints: Sequence[str]
    """`http://host:port` or `https://host:port`; all of one scheme."""
    timeout_s: float = 5.0
    """The time limit of one call, all retries and endpoints included."""
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    has_ended: Callable[[], bool] = never
    """Return whether etcd has ended for good, so that a call that found nobody is given up."""

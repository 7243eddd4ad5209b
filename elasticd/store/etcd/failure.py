"""What a failed call to etcd means: for the retry, and for the caller.

gRPC's code alone does not say it: etcd puts "no leader" (surely not carried out) and "request timed
out" (perhaps carried out) under the same code, so its own texts are compared too. They are part of
etcd's API (rpctypes/error.go) and the same in 3.4 and 3.5. What is not known counts as `UNKNOWN`:
to take a write that may have happened for one that did not is the one mistake that loses data.
"""

from dataclasses import dataclass
from enum import StrEnum

import grpc

from elasticd.errors import ElasticdError, Fenced, NotSupported, Refused, Unavailable
from elasticd.store.address import Address

__all__ = ["EtcdFailure", "Fate", "understand"]


class Fate(StrEnum):
    """Whether a call to etcd that failed was carried out, and what its caller may do."""

    NOT_DONE = "not done"
    """It was surely not carried out; another try or another member may do it."""
    UNKNOWN = "unknown"
    """It was perhaps carried out."""
    TOKEN_STALE = "token stale"  # noqa: S105  # what etcd says, no token
    """It was surely not carried out: authenticate again, then repeat."""
    FINAL = "final"
    """It was surely not carried out, and it would fail again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdFailure:
    address: Address
    fate: Fate
    code: grpc.StatusCode
    details: str
    error: ElasticdError
    """The error for the caller, if nothing better is found out."""

    @property
    def is_silence(self) -> bool:
        """Return whether the other side said nothing at all in time."""
        return self.code is grpc.StatusCode.DEADLINE_EXCEEDED


_NOT_DONE = (
    "etcdserver: no leader",
    "etcdserver: not leader",
    "etcdserver: not capable",
    "etcdserver: too many requests",
)
_TOKEN_STALE = (
    "etcdserver: invalid auth token",
    "etcdserver: revision of auth store is old",
)


def understand(failed: grpc.RpcError, address: Address, *, user: str) -> EtcdFailure:
    """Judge one failed try; `user` is the one we authenticate as, or empty."""
    code, details = failed.code(), str(failed.details() or "")
    fate = Fate.UNKNOWN
    error: ElasticdError = Unavailable(
        f"etcd at {address.url} did not carry out the request ({_short(details) or code.name}):"
        " look at its log."
    )
    if details.startswith(_NOT_DONE):
        fate = Fate.NOT_DONE
    elif details.startswith(_TOKEN_STALE) or (user and "user name is empty" in details):
        fate = Fate.TOKEN_STALE
        error = Refused(f"etcd at {address.url} does not take the token that it gave to {user!r}.")
    else:
        final = _final_error(code, details, address, user)
        if final is not None:
            fate, error = Fate.FINAL, final
    error.__cause__ = failed
    return EtcdFailure(address=address, fate=fate, code=code, details=details, error=error)


def _final_error(
    code: grpc.StatusCode, details: str, address: Address, user: str
) -> ElasticdError | None:
    url = address.url
    if "requested lease not found" in details:
        return Fenced(f"etcd at {url} no longer has our lease: it ran out or was revoked.")
    if "database space exceeded" in details:
        return Refused(
            f"etcd at {url} is full (alarm NOSPACE) and takes no writes: remove ended jobs with"
            " elasticd prune, compact and defragment it, then disarm the alarm with etcdctl alarm"
            " disarm."
        )
    if "corrupt" in details and code is grpc.StatusCode.DATA_LOSS:
        return Unavailable(f"etcd at {url} says that its data is corrupt: restore that member.")
    if "user name is empty" in details:
        return Refused(f"etcd at {url} wants a user and a password: give both.")
    if "authentication failed" in details:
        return Refused(f"etcd at {url} refused the password of user {user!r}: correct either.")
    if code is grpc.StatusCode.PERMISSION_DENIED:
        who = f"user {user!r}" if user else "this client"
        return Refused(
            f"etcd at {url} does not permit this to {who}: grant it the keys of the cluster"
            " with etcdctl role grant-permission."
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return NotSupported(
            f"What answers at {url} is no etcd of version 3.4 or later ({_short(details)}):"
            " correct --etcd."
        )
    if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION):
        return Refused(f"etcd at {url} refused the request: {_short(details)}.")
    return None


def _short(details: str) -> str:
    """Return one line without etcd's prefix, short enough for a sentence."""
    return " ".join(details.removeprefix("etcdserver: ").split())[:160].rstrip(".")

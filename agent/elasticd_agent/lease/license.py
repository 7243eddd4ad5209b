"""Fencing by this node's lease: who may write, and a license: until when workers may run.

The pools enforce the time limit themselves, even while this process stands still: each has a
license, which is the lease's deadline plus its job's isolation limit. Other nodes rely on it: they
may start a world without this node once that time has passed. So a membership whose lease was lost
is never licensed again, neither by the lease that follows, nor if etcd comes back just before the
old limit. If a lease is lost before its deadline, the isolation limit counts from the loss.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from elasticd.records.job import JobSpec
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.state import Stage
from elasticd.store.api import Lease, LeaseId
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.clock import now_s

__all__ = ["Licensed", "Licenses", "Membership", "LeaseHolder"]

log = get_logger()

LICENSE_STEP_S = 1.0
"""How far the lease must have moved before the pools are told."""


class LeaseHolder(Protocol):
    """This node's standing in etcd: a `Registration`."""

    @property
    def lease(self) -> Lease | None: ...

    @property
    def is_fenced(self) -> bool: ...


class Licensed(Protocol):
    """One job's workers on this node: `Workers`."""

    @property
    def spec(self) -> JobSpec: ...

    def allow_until(self, until_s: float) -> None: ...


class Membership(Protocol):
    """One incarnation in one job: a `Runner`."""

    @property
    def lease_id(self) -> LeaseId | None: ...

    @property
    def stage(self) -> Stage: ...

    @property
    def licensed(self) -> Licensed: ...

    def feed(self, event: ev.Event) -> None: ...


class Licenses:
    """Compare the lease with the state that memberships and pools know.

    The owner's thread uses it.
    """

    def __init__(self, standing: LeaseHolder) -> None:
        self._standing = standing
        self._told_s = 0.0
        self.is_fenced = False
        """What the memberships were told last."""

    def check(self, members: Sequence[Membership], kept: Iterable[Licensed]) -> None:
        """Renew the licenses, then tell the memberships if the lease became sure or unsure.

        The order matters: the news may make a membership start its workers, and a pool whose
        license is over refuses to start any. `kept` are workers that wait for the next incarnation:
        they are in no world, so the lease that their node holds is enough for them.
        """
        lease = self._standing.lease
        if lease is not None and lease.deadline_s - self._told_s >= LICENSE_STEP_S:
            self._told_s = lease.deadline_s
            for member in members:
                self.renew(member)
            for workers in kept:
                _allow(workers, lease)
        is_fenced = self._standing.is_fenced
        if is_fenced != self.is_fenced:
            self.is_fenced = is_fenced
            if not members:  # Else each of them says so of its job.
                log.warning("lease.uncertain" if is_fenced else "lease.held")
            for member in members:
                member.feed(ev.LeaseUncertain() if is_fenced else ev.LeaseHeld())

    def renew(self, member: Membership) -> None:
        """License the workers of one membership, if it is one of the lease that is held now."""
        lease = self._standing.lease
        if lease is None or member.lease_id != lease.id or member.stage is Stage.VOID:
            return
        _allow(member.licensed, lease)

    def end(self, members: Sequence[Membership]) -> None:
        """Tell the memberships that the lease is lost; their workers may run no longer than others
        wait for their end.

        A lease may be lost long before its deadline: etcd was restored from a backup, or somebody
        revoked it. Others count from the moment in which its records went.
        """
        until_s = min(self._told_s, now_s())
        self._told_s = 0.0  # All that is of the next lease is told of it at once.
        for member in members:
            if member.stage is not Stage.VOID:  # Else it has an older limit.
                member.licensed.allow_until(until_s + member.licensed.spec.isolation_limit_s)
            member.feed(ev.LeaseEnded())


def _allow(workers: Licensed, lease: Lease) -> None:
    workers.allow_until(lease.deadline_s + workers.spec.isolation_limit_s)

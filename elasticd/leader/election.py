"""Who leads: a key in etcd under a lease, which is put only where there is none.

All writes of a term are compared with the revision at which the key was put. The key is another one
in each term, so a former leader, which may not know yet that it does not lead, writes nothing. Its
own clock tells it sooner: from the lease's deadline on it does not lead. It leads again if etcd
comes back and still has its lease, since nobody else can have been elected then.

A leader that cannot do its work may offer its lead to one that can (`handover`).

Rejected: a queue of candidates, as in etcd's own election. All processes that stand by know the
same, so it does not matter which is next.
"""

import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from elasticd import __version__
from elasticd.errors import ElasticdError, Fenced, NotSupported
from elasticd.leader.handover import Handover
from elasticd.records.autoscale.leader import Leader
from elasticd.records.codec import decode, encode
from elasticd.store.api import (
    Delete,
    KeyRange,
    KeysChanged,
    KeyValue,
    Lease,
    ModifiedAt,
    Op,
    Put,
    Store,
    Txn,
    WatchSnapshot,
    always,
)
from elasticd.telemetry.log import get_logger

__all__ = ["LEASE_TTL_S", "Election", "Term", "boottime_s"]

LEASE_TTL_S = 10.0
"""The TTL of the lease: another leader follows one that was killed within this time, which is less
than a period."""
REREAD_S = 60.0
"""How often the key is watched anew, which begins with a read: etcd has lost events of watches that
stayed open (issues 17529, 18089, 20221), and nobody would ever stand who missed the last one."""

log = get_logger()


def boottime_s() -> float:
    """Return the time of the clock of `Lease.deadline_s`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Term:
    """The time from an election until its key or its lease is gone."""

    standing: ModifiedAt
    """What every write of this term is compared with."""
    lease: Lease
    is_over: bool = False
    is_offered: bool = False
    """Whether another process may take the lead over."""

    def leads(self, now_s: float) -> bool:
        """Return whether the lease surely lives; `now_s` is CLOCK_BOOTTIME."""
        return not self.is_over and now_s < self.lease.deadline_s


class Election:
    """One candidate. `campaign` and `close` are called by one thread; `wake` by any."""

    def __init__(
        self,
        store: Store,
        key: str,
        *,
        ttl_s: float = LEASE_TTL_S,
        wake: Callable[[], None] = lambda: None,
        may_renew: Callable[[], bool] = always,
        now_s: Callable[[], float] = boottime_s,
        source: Callable[[], str] = str,
        handover: Handover | None = None,
    ) -> None:
        """`key` is what the candidates of one kind compete for; `source` returns what is so
        called in `Leader`, when this process is elected.

        `wake` is called when there may be something new; `may_renew` is as in `Store.grant`.

        The first thing that `campaign` does is to watch the key.
        """
        self._store, self._key = store, key
        self._ttl_s, self._wake, self._may_renew, self._now_s = ttl_s, wake, may_renew, now_s
        self._source, self._handover = source, handover
        self._token = secrets.token_hex(8)
        self._term: Term | None = None
        self._has_seen = False
        self._seen: KeyValue | None = None
        self._watch = store.watch(KeyRange(key=self._key), self._take)
        self._reread_s = now_s() + REREAD_S

    @property
    def term(self) -> Term | None:
        """Return the term in which this process leads now; None if it stands by."""
        term = self._term
        return term if term is not None and term.leads(self._now_s()) else None

    @property
    def leader(self) -> Leader | None:
        """Return the leader as last seen; None if there is none, or one of a newer version."""
        seen = self._seen
        with suppress(NotSupported):
            return decode(Leader, seen.value) if seen is not None else None
        return None

    @property
    def is_unsure(self) -> bool:
        """Return whether this process was elected and cannot know whether it still is."""
        term = self._term
        return term is not None and not term.is_over and not term.leads(self._now_s())

    def campaign(self) -> Term | None:
        """Become a candidate if nobody is elected; return the term in which we lead, if we do.

        Raises: ElasticdError: etcd does not answer, or refuses.
        """
        self._watch_anew()
        if self._term is not None and not self._term.is_over:
            self._offer()
            return self.term
        if self._term is not None:
            self._give_up()
        if self._has_seen and self._seen is None:
            self._put_key((ModifiedAt(key=self._key, revision=0),))
        elif self._seen is not None:
            self._take_over(self._seen)
        return self.term

    def close(self) -> None:
        """Give the election back at once, so that another one leads; it also works while etcd is
        away.
        """
        self._watch.close()
        if self._term is not None:
            self._give_up()

    # --- private ------------------------------------------------------------------------------

    def _watch_anew(self) -> None:
        """Begin the watch anew if it is time."""
        now_s = self._now_s()
        if now_s >= self._reread_s:
            self._reread_s = now_s + REREAD_S
            self._watch.close()
            self._watch = self._store.watch(KeyRange(key=self._key), self._take)

    def _offer(self) -> None:
        """Offer the lead, or withdraw the offer, if that is due."""
        term, handover = self.term, self._handover
        if handover is None or term is None or handover.is_due() is term.is_offered:
            return
        op: Op = Delete(key=handover.key)
        if not term.is_offered:
            op = Put(key=handover.key, value=encode(self._record()), lease=term.lease.id)
        try:
            done = self._store.commit(Txn(when=(term.standing,), then=(op,)))
        except ElasticdError as exc:  # The next round tries it again, and leads on meanwhile.
            log.debug("lead.not_offered", why=str(exc))
            return
        if done.succeeded:
            term.is_offered = not term.is_offered
            log.warning("lead.offered" if term.is_offered else "lead.kept")

    def _take_over(self, seen: KeyValue) -> None:
        """Take over the lead of another process, if that is offered and this one can do the work.

        Raises: ElasticdError: etcd does not answer, or refuses.
        """
        handover = self._handover
        if handover is None or not handover.may_look():
            return
        offer = self._store.get(handover.key)
        if offer is not None and handover.can_lead():
            standing = (
                ModifiedAt(key=each.key, revision=each.mod_revision) for each in (seen, offer)
            )
            self._put_key(tuple(standing), Delete(key=offer.key))

    def _record(self) -> Leader:
        return Leader(
            name=f"{socket.gethostname()}:{os.getpid()}",
            token=self._token,
            version=__version__,
            since_unix_s=round(time.time(), 3),
            source=self._source(),
        )

    def _put_key(self, when: tuple[ModifiedAt, ...], *more: Op) -> None:
        """Put the key if there is no key yet, or if that of a leader which offers its lead stands.

        A put whose answer got lost is given up with its lease: the next try has another one.
        """
        ends: list[Term] = []

        def lost() -> None:
            for term in ends:
                term.is_over = True
            self._wake()

        lease = self._store.grant(self._ttl_s, lost, self._may_renew)
        try:
            mine = self._record()
            put = Put(key=self._key, value=encode(mine), lease=lease.id)
            done = self._store.commit(Txn(when=when, then=(put, *more)))
        except Fenced:  # The lease ran out before the key was put.
            lease.close()
            return
        except BaseException:
            _end(lease)
            raise
        if not done.succeeded:
            _end(lease)
            return
        term = Term(ModifiedAt(key=self._key, revision=done.revision), lease)
        ends.append(term)
        if self._handover is not None:
            self._handover.began()
        self._term = term
        if lease.deadline_s <= self._now_s():  # It was lost before `lost` could say so.
            term.is_over = True
        self._judge()
        log.info("leader.elected", name=mine.name, revision=done.revision)

    def _give_up(self) -> None:
        term, self._term = self._term, None
        if term is not None:
            term.is_over = True
            _end(term.lease)
            log.info("leader.ended", revision=term.standing.revision)

    def _take(self, seen: WatchSnapshot | KeysChanged) -> None:
        """Take in a change of the key; the store's thread calls this."""
        if isinstance(seen, WatchSnapshot):
            self._seen = seen.items[0] if seen.items else None
        else:
            self._seen = seen.changes[-1].item
        self._has_seen = True
        self._judge(seen.revision)
        self._log_leader()
        self._wake()

    def _log_leader(self) -> None:
        """Log the leader, if it is another one than before."""
        seen, term = self._seen, self._term
        if seen is None or (term is not None and seen.mod_revision == term.standing.revision):
            return
        with suppress(NotSupported):
            leader = decode(Leader, seen.value)
            if leader.token != self._token:
                log.info("leader.seen", name=leader.name, version=leader.version)

    def _judge(self, as_of: int | None = None) -> None:
        """End the term if this process's key is gone, as of a revision after it was put."""
        term, seen = self._term, self._seen
        if term is None:
            return
        ours = term.standing.revision
        is_other = seen is not None and seen.mod_revision > ours
        is_gone = seen is None and as_of is not None and as_of > ours
        if is_other and term.is_offered and not term.is_over and self._handover is not None:
            self._handover.lost()
            log.info("lead.taken_over", revision=ours)
        if is_other or is_gone:
            term.is_over = True


def _end(lease: Lease) -> None:
    """Revoke the lease; if etcd is away it runs out by itself."""
    try:
        lease.revoke()
    except ElasticdError as exc:
        lease.close()
        log.debug("lease.not_revoked", why=str(exc))

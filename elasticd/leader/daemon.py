"""The thread of a process that may lead: it takes part in the election, and evaluates if it leads.

The autoscaler evaluates every quarter of a minute; the operator also when `wake` is called. Any
number of calls during one evaluation cause one more.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from elasticd.errors import CallError, ElasticdError
from elasticd.leader.election import LEASE_TTL_S, Election, Term
from elasticd.leader.handover import Handover
from elasticd.records.autoscale.leader import Leader
from elasticd.store.api import Store
from elasticd.telemetry.log import get_logger

__all__ = ["PERIOD_S", "Daemon", "Evaluation"]

PERIOD_S = 15.0
"""The time between two evaluations, as in the HPA."""
RETRY_S = 1.0
"""The time between two looks at an etcd that does not answer, and at the election."""
LONGEST_RETRY_S = 10.0
"""The longest time between two such looks before etcd has answered for the first time: they grow
apart, so that a hundred processes that wait for one etcd do not load it."""
HUNG_PERIODS, HUNG_LEAST_S = 4.0, 60.0
"""A leader whose thread has not finished a round for so long lets its lease run out."""
UNASKED = "etcd has not answered this process yet."
UNSURE = "etcd does not renew the lease under which this process leads."

log = get_logger()


class Evaluation(Protocol):
    """The work of the leader during one term."""

    def evaluate(self) -> float | None:
        """Look at everything once, and do what is to be done about it.

        Returns: Seconds until it is to be called again, if that is sooner than the period; None:
        the period.

        Raises: ElasticdError: etcd does not answer, or refuses.
        """

    def close(self) -> None:
        """End the term, because it is over or the process ends."""


def _ignore(leads: bool) -> None:
    """The callback where nobody wants to know."""


class Daemon:
    """Runs on the caller's thread until `stop`, which any thread or signal handler may call."""

    def __init__(
        self,
        store: Store,
        election_key: str,
        begin: Callable[[Term], Evaluation],
        *,
        period_s: float = PERIOD_S,
        gap_s: float = 0.0,
        ttl_s: float = LEASE_TTL_S,
        told_lead: Callable[[bool], None] = _ignore,
        source: Callable[[], str] = str,
        evaluates_unsure: bool = False,
        handover: Handover | None = None,
    ) -> None:
        """`begin` is called with each term for which this process is elected.

        With `evaluates_unsure` it evaluates also while etcd does not say whether this process still
        leads. Such an evaluation sees by its term that it may not write to etcd, and its other acts
        are harmless if another process leads by now.

        `gap_s`: the next evaluation begins this long after the last one at the earliest, however
        often `wake` is called. `told_lead` is called in each round with whether this process leads.
        `source` and `handover`: as in `Election`.
        """
        self._begin, self._period_s, self._gap_s = begin, period_s, gap_s
        self._hung_s = max(HUNG_LEAST_S, HUNG_PERIODS * period_s)
        self._store, self._election_key = store, election_key
        self._news = threading.Event()
        self._is_stopping = self._is_woken = False
        self._round_s = time.monotonic()
        self.trouble = UNASKED
        """Why etcd does not let it work, as a sentence; empty: it does."""
        self._told_lead, self._evaluates_unsure = told_lead, evaluates_unsure
        self.leads = False
        self._election = Election(
            store,
            election_key,
            ttl_s=ttl_s,
            wake=self._news.set,
            may_renew=self.is_alive,
            source=source,
            handover=handover,
        )

    @property
    def leader(self) -> Leader | None:
        """Return who leads; any thread may ask."""
        return self._election.leader

    def run(self) -> None:
        """Serve until `stop`; give the election back at the end.

        An etcd that is away when it begins is waited for, as it is when it goes away later.

        Raises: CallError: etcd refuses the first question, so that waiting would not help.
        """
        term: Term | None = None
        evaluation: Evaluation | None = None
        due_s = earliest_s = begin_s = 0.0
        try:
            self._await_etcd()
            while not self._is_stopping:
                self._news.clear()
                self._round_s = time.monotonic()
                if self._is_woken:
                    due_s = min(due_s, earliest_s)
                try:
                    led = self._election.campaign()
                    if evaluation is not None and (term is None or term.is_over):
                        evaluation.close()
                        term = evaluation = None
                    if led is not None and evaluation is None and self._round_s >= begin_s:
                        begin_s = self._round_s + RETRY_S  # If it cannot begin.
                        term, evaluation = led, self._begin(led)
                        due_s = begin_s = 0.0
                    may_act = led is not None or (
                        self._evaluates_unsure and self._election.is_unsure
                    )
                    if may_act and evaluation is not None and self._round_s >= due_s:
                        due_s = self._round_s + self._period_s
                        self._is_woken = False  # Before it looks: what comes now is seen, or new.
                        try:
                            again_s = evaluation.evaluate()
                        finally:
                            earliest_s = time.monotonic() + self._gap_s
                        if again_s is not None:
                            due_s = min(due_s, time.monotonic() + again_s)
                    self._log_trouble(UNSURE if self._election.is_unsure else "")
                except ElasticdError as exc:
                    self._log_trouble(str(exc))
                except Exception:  # A bug of ours: jobs keep their size, and somebody is told.
                    log.exception("evaluation.failed")
                self.leads = self._election.term is not None
                self._told_lead(self.leads)
                if self._is_woken:
                    due_s = min(due_s, earliest_s)
                can_act = self.leads and evaluation is not None
                left_s = due_s - time.monotonic() if can_act else RETRY_S
                self._news.wait(max(0.0, min(RETRY_S, left_s)))
        finally:
            self.leads = False
            self._told_lead(False)
            if evaluation is not None:
                evaluation.close()
            self._election.close()

    def wake(self) -> None:
        """Evaluate soon, and not only when the period is over; any thread may call this."""
        self._is_woken = True
        self._news.set()

    def is_alive(self) -> bool:
        """Return whether the thread finishes its rounds; any thread may ask.

        The lease is renewed only as long as it does.
        """
        return time.monotonic() < self._round_s + self._hung_s

    def stop(self) -> None:
        """End the daemon in order."""
        self._is_stopping = True
        self._news.set()

    # --- private ------------------------------------------------------------------------------

    def _await_etcd(self) -> None:
        """Ask etcd until it answers.

        Raises: CallError: etcd refuses.
        """
        pause_s = RETRY_S
        while not self._is_stopping:
            self._news.clear()
            self._round_s = time.monotonic()
            try:
                self._store.get(self._election_key)
            except CallError:
                raise
            except ElasticdError as exc:
                self._log_trouble(str(exc))
            else:
                self._log_trouble("")
                return
            # The watch of the election wakes it as soon as etcd is there.
            self._news.wait(pause_s)
            pause_s = min(2.0 * pause_s, LONGEST_RETRY_S)

    def _log_trouble(self, trouble: str) -> None:
        """Log a trouble once, and its end."""
        was_well = self.trouble in ("", UNASKED)
        if trouble and was_well:
            log.warning("etcd.lost", why=trouble)
        elif not trouble and not was_well:
            log.info("etcd.back")
        self.trouble = trouble

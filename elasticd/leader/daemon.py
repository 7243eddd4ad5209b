"""The thread of a process that may lead: it takes part in the election, and evaluates if it leads.

The autoscaler evaluates every quarter of a minute; the operator also when somebody calls `wake`,
which any number of changes may do while one evaluation runs: they make one more evaluation.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from elasticd.errors import ElasticdError
from elasticd.leader.election import LEASE_TTL_S, Election, Term
from elasticd.store.api import Store
from elasticd.telemetry.log import get_logger

__all__ = ["PERIOD_S", "Daemon", "Evaluation"]

PERIOD_S = 15.0
"""Between two evaluations, as the HPA has it."""
RETRY_S = 1.0
"""Between two looks at an etcd that does not answer, and at the election."""
HUNG_PERIODS, HUNG_LEAST_S = 4.0, 60.0
"""A leader whose thread has not come round for so long lets its lease run out."""
UNSURE = "etcd does not renew the lease under which this process leads."

log = get_logger()


class Evaluation(Protocol):
    """What is done for as long as one term lasts."""

    def evaluate(self) -> float | None:
        """Look at everything once, and do what is to be done about it.

        Returns:
            Seconds until it is to be called again, if that is sooner than the period; None: the
            period.

        Raises:
            ElasticdError: etcd does not answer, or refuses.
        """

    def close(self) -> None:
        """The term is over, or the process ends."""


def _nobody(leads: bool) -> None:
    """Where nobody wants to know."""


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
        told_lead: Callable[[bool], None] = _nobody,
        source: str = "",
        evaluates_unsure: bool = False,
    ) -> None:
        """`begin` is called with each term that this process is elected for.

        `evaluates_unsure`: also while etcd does not say whether it still leads; such an evaluation
        sees by its term that it may not write to etcd, and whatever else it does is harmless where
        another one leads by now.

        `gap_s`: so long after an evaluation the next one begins at the earliest, however often
        `wake` is called. `told_lead` hears in each round whether this process leads. `source`: as
        `Leader` has it.
        """
        self._begin, self._period_s, self._gap_s = begin, period_s, gap_s
        self._hung_s = max(HUNG_LEAST_S, HUNG_PERIODS * period_s)
        self._news = threading.Event()
        self._is_stopping = self._is_woken = False
        self._round_s = time.monotonic()
        self.trouble = ""
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
        )

    def run(self) -> None:
        """Serve; give the election back in the end."""
        term: Term | None = None
        evaluation: Evaluation | None = None
        due_s = earliest_s = 0.0
        try:
            while not self._is_stopping:
                self._news.clear()
                self._round_s = time.monotonic()
                if self._is_woken:
                    due_s = min(due_s, earliest_s)
                try:
                    led = self._election.take_part()
                    if evaluation is not None and (term is None or term.is_over):
                        evaluation.close()
                        term = evaluation = None
                    if led is not None and evaluation is None:
                        term, evaluation = led, self._begin(led)
                        due_s = 0.0
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
                    self._say(UNSURE if self._election.is_unsure else "")
                except ElasticdError as exc:
                    self._say(str(exc))
                except Exception:  # A bug of ours: jobs keep their size, and somebody is told.
                    log.exception("evaluation.failed")
                self.leads = self._election.term is not None
                self._told_lead(self.leads)
                if self._is_woken:
                    due_s = min(due_s, earliest_s)
                left_s = due_s - time.monotonic() if self.leads else RETRY_S
                self._news.wait(max(0.0, min(RETRY_S, left_s)))
        finally:
            self.leads = False
            self._told_lead(False)
            if evaluation is not None:
                evaluation.close()
            self._election.close()

    def wake(self) -> None:
        """Evaluate soon, and not only when the period is over; any thread may say so."""
        self._is_woken = True
        self._news.set()

    def is_alive(self) -> bool:
        """Return whether the thread comes round: any thread may ask.

        The lease is renewed only as long as it does.
        """
        return time.monotonic() < self._round_s + self._hung_s

    def stop(self) -> None:
        """End it in order."""
        self._is_stopping = True
        self._news.set()

    # --- private ------------------------------------------------------------------------------

    def _say(self, trouble: str) -> None:
        """Tell of a trouble once, and of its end."""
        if trouble and not self.trouble:
            log.warning("etcd.lost", why=trouble)
        elif self.trouble and not trouble:
            log.info("etcd.back")
        self.trouble = trouble

"""The leader's work during its term: it evaluates all jobs that have a policy, in a loop."""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from elasticd.autoscale.decide import Decided, decide
from elasticd.autoscale.evaluation_input import Observation, QueryReading
from elasticd.autoscale.loop.availability import AvailableNodes
from elasticd.autoscale.loop.cluster_watch import ActiveJob, ClusterWatch
from elasticd.autoscale.loop.job_book import JobBook
from elasticd.autoscale.loop.job_input import job_input
from elasticd.autoscale.loop.job_readings import JobReadings
from elasticd.autoscale.loop.queries import queries_of
from elasticd.autoscale.metrics import AutoscalerCounts
from elasticd.autoscale.metrics_source import MetricsSource, Query
from elasticd.errors import ElasticdError, NotSupported
from elasticd.leader.election import Term, boottime_s
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import POLICY_SCHEMA, Policy
from elasticd.records.ids import JobName
from elasticd.records.keys import Keys
from elasticd.store.api import Store
from elasticd.telemetry.log import get_logger

__all__ = ["Clocks", "Decide", "JobEvaluation"]

FRESH_S = 1.0
"""If readings take longer than this time in seconds, the records are read again before the
decision."""

Decide = Callable[[Policy, Curve, Memory, Decision | None, Observation], Decided]

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The clocks of this process."""

    now_s: Callable[[], float] = time.monotonic
    unix_s: Callable[[], float] = time.time
    lease_s: Callable[[], float] = boottime_s


class JobEvaluation:
    """The evaluations of all jobs during one term.

    One thread uses it; an error of one job stops no other job.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        source: MetricsSource,
        counts: AutoscalerCounts,
        term: Term,
        *,
        decide: Decide = decide,
        clocks: Clocks = Clocks(),  # frozen
        is_dry_run: bool = False,
    ) -> None:
        """If `is_dry_run`, decisions are recorded for people, and no job's size is changed."""
        self._store, self._keys, self._source, self._counts = store, keys, source, counts
        self._term, self._decide, self._clocks = term, decide, clocks
        self._is_dry_run = is_dry_run
        self._records = ClusterWatch(store, keys)
        self._books: dict[JobName, JobBook] = {}
        self._unread: dict[JobName, str] = {}

    def evaluate(self) -> None:
        """Evaluate all jobs once, each as soon as its own queries are answered.

        Raises: ElasticdError: etcd does not answer, or refuses.
        """
        began_s = read_s = time.monotonic()
        jobs, nodes = self._records.read()
        sized = {job.name: job for job in jobs if job.facts.policy is not None}
        self._keep_books(sized)
        asked = dict(sized)
        with closing(self._arrivals(asked)) as arrivals:
            for readings in arrivals:
                if readings and time.monotonic() - read_s > FRESH_S:
                    jobs, nodes = self._records.read()
                    sized, read_s = {job.name: job for job in jobs}, time.monotonic()
                for name, found in readings.items():
                    job = sized.get(name)
                    if job is not None and _is_same(job, asked[name]):
                        self._evaluate_safely(job, nodes, found)
        self._counts.evaluated(time.monotonic() - began_s)

    def close(self) -> None:
        self._records.close()

    # --- private ------------------------------------------------------------------------------

    def _keep_books(self, jobs: Mapping[JobName, ActiveJob]) -> None:
        """Forget jobs that are over, have no policy any more, or were replaced by another job."""
        for name, book in list(self._books.items()):
            if name not in jobs or jobs[name].revision != book.active:
                del self._books[name]
        self._unread = {name: why for name, why in self._unread.items() if name in jobs}

    def _arrivals(
        self, jobs: Mapping[JobName, ActiveJob]
    ) -> Generator[Mapping[JobName, Mapping[str, QueryReading]], None, None]:
        """Ask for the metrics of all jobs at once; yield each job once its readings are whole."""
        left = JobReadings({name: _queries(job) for name, job in jobs.items()})
        yield left.take_complete()
        if left.queries:
            with closing(self._source.readings(left.queries)) as arrivals:
                for arrived in arrivals:
                    left.add(arrived)
                    yield left.take_complete()
        yield left.take_rest()

    def _evaluate_safely(
        self, job: ActiveJob, nodes: AvailableNodes, readings: Mapping[str, QueryReading]
    ) -> None:
        try:
            self._evaluate(job, nodes, readings)
        except NotSupported as exc:  # A newer elasticd wrote the job's memory or curve.
            self._counts.held(HoldReason.OTHER)
            self._say_unread(job.name, str(exc))
        except ElasticdError:
            raise
        except Exception:  # A bug of ours in one job's numbers: other jobs still get sizes.
            self._books.pop(job.name, None)
            self._counts.held(HoldReason.OTHER)
            log.exception("job.not_evaluated", job=job.name)

    def _evaluate(
        self, job: ActiveJob, nodes: AvailableNodes, readings: Mapping[str, QueryReading]
    ) -> None:
        facts, policy = job.facts, job.facts.policy
        assert policy is not None
        if policy.version > POLICY_SCHEMA:
            raise NotSupported(
                f"The policy of job {job.name} has schema {policy.version}, this elasticd knows "
                f"{POLICY_SCHEMA}: upgrade the autoscaler."
            )
        policy = replace(policy, is_dry_run=policy.is_dry_run or self._is_dry_run)
        now_s, unix_s = self._clocks.now_s(), self._clocks.unix_s()
        book = self._books.get(job.name)
        if book is None:
            book = JobBook(self._store, self._keys, job.name, facts.spec.uid, job.revision)
            self._books[job.name] = book
        if not book.is_known:
            book.read(now_s, unix_s)
        measured = book.measurement.take(facts, policy.window_s)
        seen = job_input(facts, measured, nodes, readings, now_s=now_s, unix_s=unix_s)
        decided = self._decide(policy, book.curve, book.memory, book.open_decision, seen)
        if not self._term.leads(self._clocks.lease_s()):
            return  # The new measurements are lost with the term.
        before = book.memory
        if not book.write(decided, facts, self._term, now_s=now_s, unix_s=unix_s):
            log.info("decision.void", job=job.name)
            return
        self._unread.pop(job.name, None)
        self._tell(job.name, before, decided)

    def _tell(self, job: JobName, before: Memory, decided: Decided) -> None:
        """Log each decision and each hold once, and count them."""
        decision, closed = decided.decision, decided.closed
        if closed is not None:
            log.info(
                "decision.closed",
                job=job,
                number=closed.number,
                outcome=closed.outcome,
                why=closed.outcome_why,
            )
        if decision is not None:
            self._counts.decided(decision.rule, decision.from_nodes, decision.to_nodes)
            log.info(
                "decision.made",
                job=job,
                number=decision.number,
                rule=decision.rule,
                from_nodes=decision.from_nodes,
                to_nodes=decision.to_nodes,
                is_dry_run=decision.is_dry_run,
                why=decision.why,
            )
        if decided.held:
            self._counts.held(decided.held)
        if decided.held != before.held:
            if decided.held:
                log.info("size.held", job=job, reason=decided.held, why=decided.held_detail)
            else:
                log.info("size.released", job=job, was=before.held)

    def _say_unread(self, job: JobName, why: str) -> None:
        self._books.pop(job, None)
        if self._unread.get(job) != why:
            self._unread[job] = why
            log.error("job.not_read", job=job, why=why)


def _queries(job: ActiveJob) -> tuple[Query, ...]:
    """Return the queries of a job; none for a policy that no valid file could produce."""
    policy = job.facts.policy
    try:
        return queries_of(policy, job.name) if policy is not None else ()
    except Exception:  # For instance a number that is not finite: all its metrics are missing.
        log.exception("job.not_evaluated", job=job.name)
        return ()


def _is_same(job: ActiveJob, asked: ActiveJob) -> bool:
    """Return whether a job is the one of the queries, with the policy of the queries.

    If it is not, the next evaluation decides about it.
    """
    is_job = job.revision == asked.revision
    return is_job and job.facts.policy_revision == asked.facts.policy_revision

"""One term of an operator: it observes all, lets `decide` decide, and carries the actions out.

If a server does not answer, or one write hangs, the actions that remain wait for a later
evaluation. No action is lost, since each evaluation decides again.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from elasticd.errors import ElasticdError
from elasticd.kube.api.port import Api
from elasticd.kube.decide.action import Action, ApplyStatus, StopJob, TellEvent, WriteJob
from elasticd.kube.decide.cluster import ObservedCluster
from elasticd.kube.decide.decide import decide as decide_all
from elasticd.kube.decide.deletion import is_forced
from elasticd.kube.decide.memory import OperatorMemory, refused, remembered, without
from elasticd.kube.operator.cluster_objects import ClusterObjects, cluster_identity
from elasticd.kube.operator.cluster_records import ClusterRecords
from elasticd.kube.operator.counts import ActionOutcome, OperatorCounts
from elasticd.kube.operator.journal_file import JournalFile
from elasticd.kube.operator.measurement import Measurements
from elasticd.kube.operator.write.action_threads import API, ActionThreads, Done, server_of
from elasticd.kube.operator.write.effect import Effects, group_of, word_of
from elasticd.kube.operator.write.hold import Holds
from elasticd.kube.resource.elastic_job import ElasticJob
from elasticd.leader.election import Term, boottime_s
from elasticd.leader.fenced_store import FencedStore
from elasticd.records.keys import Keys
from elasticd.records.reason import Phase
from elasticd.store.api import Store
from elasticd.telemetry.log import get_logger

__all__ = ["Reconciliation"]

UNSEEN_S, UNSEEN_MOST_S = 2.0, 60.0
"""The time in seconds for which an action is not repeated, so that the watches can show its effect:
the time doubles, up to the second value, each time that the action was done and no effect was
observed."""
QUIET = (ApplyStatus, TellEvent)
"""The actions that are too frequent for the log."""

log = get_logger()


class Decide(Protocol):
    def __call__(
        self, seen: ObservedCluster, *, now_s: float, now_unix_s: float
    ) -> Sequence[Action]: ...


@dataclass(frozen=True, slots=True)
class _Newest:
    """The last action on one thing, and the time to wait until its effect is observed."""

    done_s: float
    action: Action
    wait_s: float


class Reconciliation:
    """The observations and effects of one term; one thread calls `evaluate`."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        api: Api,
        term: Term,
        counts: OperatorCounts,
        measurements: Measurements,
        wake: Callable[[], None],
        *,
        namespace: str = "",
        journal: JournalFile | None = None,
        decide: Decide = decide_all,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wake` asks for an `evaluate` soon. `namespace` is that of the ElasticJobs; empty for
        all.
        """
        self._store, self._keys, self._api = FencedStore(store, term), keys, api
        self._term = term
        self._counts, self._measurements = counts, measurements
        self._decide, self._now_s, self._journal = decide, now_s, journal
        self._memory, self._holds = OperatorMemory(), Holds(now_s)
        self._newest: dict[str, _Newest] = {}
        """The last action for each thing and kind of action."""
        self._namespace, self._identity = namespace, ""
        self._trouble = self._intruded = ""
        self._objects = ClusterObjects(api, wake, namespace=namespace)
        self._records = ClusterRecords(store, keys, wake, now_s)
        self._threads = ActionThreads(wake, now_s)

    @property
    def trouble(self) -> str:
        """Return why the process cannot observe Kubernetes or submit jobs now; empty if it can."""
        if self._objects.trouble or self._objects.is_ready:
            return self._objects.trouble or self._intruded
        return "The objects of the API server were not listed yet."

    @property
    def is_blind(self) -> bool:
        """Return whether the process does not observe the objects of Kubernetes now."""
        return bool(self._objects.trouble) or not self._objects.is_ready

    def evaluate(self) -> float | None:
        began_s = self._now_s()
        self._say(self._objects.trouble)
        if not self._objects.is_ready or not self._knows_identity():
            self._counts.sees((), is_following=False)
            return self._holds.next_s()
        found = self._objects.jobs()
        # This comes before the decision, which would else request the actions that have ended since
        # then a second time. A status that was written was decided from an older object, so it
        # delays nothing.
        self._take_in(self._threads.take_ended(), {})
        cluster = self._look()
        is_unreadable = self._records.is_unreadable
        jobs = {
            uid: job for uid, (job, _) in found.items() if is_forced(job) or not is_unreadable(job)
        }
        is_stale = self._objects.are_nodes_old
        cluster = replace(cluster, jobs=jobs).remembering(now_s=began_s, is_stale=is_stale)
        self._memory = cluster.memory
        self._say_intruded(cluster)
        if not cluster.is_etcd_away:  # Else another process may lead, and show these.
            self._counts.sees(
                (job.status.phase for job, _ in found.values()),
                is_following=not self._objects.trouble,
            )
        now_unix_s = time.time()
        found_actions = self._decide(cluster, now_s=began_s, now_unix_s=now_unix_s)
        if self._journal is not None:
            self._journal.note(cluster, found_actions, now_s=began_s, now_unix_s=now_unix_s)
        actions = [action for action in found_actions if self._is_ours(action)]
        records = cluster.records
        effects = Effects(
            self._api,
            self._store,
            self._keys,
            {uid: plain for uid, (_, plain) in found.items()},
            {name: job.spec for name, job in records.jobs.items()} if records is not None else {},
            lambda: self._term.is_over,
        )
        begun = [each for each in actions if not (self._is_held(each) or self._is_unseen(each))]
        self._take_in(self._threads.carry_out(effects, begun), cluster.jobs)
        self._memory = without(self._memory, cluster.jobs)
        self._forget_seen({_key(action) for action in actions})
        self._counts.reconciled(self._now_s() - began_s)
        return 0.0 if self._threads.late else self._holds.next_s()

    def close(self) -> None:
        self._objects.close()
        self._records.close()
        self._measurements.close()
        self._threads.close()

    # --- seeing -------------------------------------------------------------------------------

    def _look(self) -> ObservedCluster:
        if not self._term.leads(boottime_s()):
            # The last records of etcd may be old now, and no write to etcd is possible.
            return ObservedCluster(
                identity=self._identity,
                nodes=self._objects.nodes(),
                pods=self._objects.pods(),
                is_etcd_away=True,
                memory=self._memory,
            )
        reports = self._records.reports()
        worlds = {
            name: report.world
            for name, report in reports.items()
            if report.status.phase is Phase.RUNNING and report.world is not None
        }
        agents = {node.node: node for node in self._records.agents().values()}
        measured = self._measurements.follow(worlds, agents)
        return ObservedCluster(
            identity=self._identity,
            nodes=self._objects.nodes(),
            pods=self._objects.pods(),
            records=self._records.read(measured),
            memory=self._memory,
        )

    def _knows_identity(self) -> bool:
        """Read the identity of the Kubernetes cluster once, since two may share an etcd."""
        if self._identity or self._holds.is_held(API):
            return bool(self._identity)
        try:
            self._identity = cluster_identity(self._api)
        except ElasticdError as exc:
            if self._holds.refused(API, exc):
                log.warning("identity.not_read", why=str(exc))
            return False
        self._holds.worked(API)
        return True

    def _say(self, trouble: str) -> None:
        """Log a trouble with the API server once, and its end."""
        if trouble and not self._trouble:
            log.warning("api_server.lost", why=trouble)
        elif self._trouble and not trouble:
            log.info("api_server.back")
        self._trouble = trouble

    def _say_intruded(self, cluster: ObservedCluster) -> None:
        """Log once that another Kubernetes cluster uses this etcd, and once when that is over."""
        found = cluster.intruded if cluster.records is not None else self._intruded
        if found and not self._intruded:
            log.error("cluster.shared", why=found)
        elif self._intruded and not found:
            log.info("cluster.alone")
        self._intruded = found

    # --- doing --------------------------------------------------------------------------------

    def _is_ours(self, action: Action) -> bool:
        """Return False for the job of an object in a namespace that is not this operator's."""
        gone = action.gone if isinstance(action, StopJob) else None
        return gone is None or self._namespace in ("", gone.namespace)

    def _is_unseen(self, action: Action) -> bool:
        """Return whether this action was done already, and the watches do not show its effect."""
        before = self._newest.get(_key(action))
        return (
            before is not None
            and _is_same(before.action, action)
            and self._now_s() < before.done_s + before.wait_s
        )

    def _forget_seen(self, wanted: Set[str]) -> None:
        """Forget actions that are not wanted any more, with a delay: watches are not in step."""
        old_s = self._now_s() - UNSEEN_S
        self._newest = {
            key: one for key, one in self._newest.items() if key in wanted or one.done_s > old_s
        }

    def _keep_newest(self, key: str, action: Action) -> None:
        """Note an action that was done; if it was done before without effect, double the wait."""
        before, wait_s = self._newest.get(key), UNSEEN_S
        if before is not None and _is_same(before.action, action):
            wait_s = min(2.0 * before.wait_s, UNSEEN_MOST_S)
        self._newest[key] = _Newest(self._now_s(), action, wait_s)

    def _is_held(self, action: Action) -> bool:
        return self._holds.is_held(server_of(action)) or self._holds.is_held(_key(action))

    def _take_in(self, ended: Iterable[Done], jobs: Mapping[str, ElasticJob]) -> None:
        """Note the outcomes of actions, and update the memory for the next decision."""
        for done in ended:
            self._note(done)
            if done.outcome is ActionOutcome.DONE:
                self._memory = remembered(self._memory, done.action, jobs, now_s=self._now_s())
            elif done.outcome is ActionOutcome.REFUSED:
                self._memory = refused(self._memory, done.action, done.why)

    def _note(self, done: Done) -> None:
        word, about = word_of(done.action), group_of(done.action)
        self._counts.acted(word, done.outcome)
        is_away = done.outcome is ActionOutcome.UNAVAILABLE and not done.is_alone
        key = server_of(done.action) if is_away else _key(done.action)
        if done.outcome is ActionOutcome.DONE:
            self._holds.worked(server_of(done.action))
            self._holds.worked(key)
            self._keep_newest(key, done.action)
            if not isinstance(done.action, QUIET):
                log.info("action.done", action=word, about=about)
        elif self._holds.failed(key, done.why, done.retry_after_s):
            level = log.debug if done.outcome is ActionOutcome.OUTDATED else log.warning
            level("action.failed", action=word, about=about, why=done.why)


def _is_same(before: Action, action: Action) -> bool:
    # A spec that is submitted has the time of submission, which differs each time.
    if isinstance(before, WriteJob) and isinstance(action, WriteJob):
        return before.job == action.job
    return before == action


def _key(action: Action) -> str:
    return f"{word_of(action)} {group_of(action)}"

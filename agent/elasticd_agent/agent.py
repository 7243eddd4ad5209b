"""The agent: one owner thread that holds all state, and the feeders that bring it facts.

The loop is the whole scheduler: take the next item, run it, look at the lease, wake what is due.
Nothing that runs here waits for the network, for a job's folder or files, or for a pool. If it
hangs all the same, the node's lease goes (`OwnerWatchdog`).
"""

import secrets
import signal
from functools import partial

from elasticd.errors import EnvironmentProblem
from elasticd.records.ids import JobName, Life, NodeId, Slot, incarnation_of
from elasticd.records.job import JobSpec
from elasticd.records.keys import Keys
from elasticd.records.reason import Reason
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.state import Past
from elasticd.telemetry.log import get_logger
from elasticd_agent.account.account_book import AccountBook
from elasticd_agent.job.agent_services import host_of
from elasticd_agent.job.closing_jobs import ClosingJobs
from elasticd_agent.job.job_guard import JobGuard
from elasticd_agent.job.runner import Runner
from elasticd_agent.job.worker_dispatch import WorkerDispatch
from elasticd_agent.lease.license import Licenses
from elasticd_agent.liveness.progress_answer import RankState
from elasticd_agent.loop.clock import now_s
from elasticd_agent.loop.resync_watch import ResyncWatch, drain_listing
from elasticd_agent.metrics.job_meters import JobMeters
from elasticd_agent.node.demand import Demands
from elasticd_agent.node.job_list import JobList
from elasticd_agent.node.presence import Presence
from elasticd_agent.node.rejoin import Rejoins
from elasticd_agent.node.slot_allotment import SlotClaim, allot, claim_of, rivals
from elasticd_agent.node.state_wait import held_back, limits_s
from elasticd_agent.pod.orphans import Children
from elasticd_agent.workers.pool_client import fork_server_client
from elasticd_agent.workers.workers import Workers

__all__ = ["Agent"]

GOODBYE_MARGIN_S = 5.0
"""Added to the workers' grace, so that there is time to write our end to etcd."""
CLOSING_TIMEOUT_S = 5.0
REJOIN_JITTER_MS = 200
JOIN_RETRY_S = 30.0
"""The pause before a job is tried again for which no descriptor or no folder was left."""

log = get_logger()


class Agent:
    """One node's daemon. `run` returns when it is told to end, or its only job is over."""

    def __init__(self, presence: Presence, children: Children | None = None) -> None:
        self._presence = presence
        self._settings, self._store = presence.settings, presence.store
        self._inbox, self._effect_thread = presence.inbox, presence.effect_thread
        self._peers, self._registration = presence.peers, presence.registration
        self._life = presence.life
        presence.on_peer_died = self._peer_died
        presence.on_peer_broke = self._peer_broke
        presence.on_lease_lost = self._lease_lost
        presence.on_lease_found = self._mark_dirty
        presence.on_progress_asked = self._progress_of
        self._incarnations = 0
        self._licenses = Licenses(self._registration)
        self._specs: dict[JobName, tuple[JobSpec, int]] = {}
        self._past: dict[str, Past] = {}
        """By the uid of a job that is left for now: what was known of it."""
        self._runners: dict[JobName, Runner] = {}
        self._guard = JobGuard(self._inbox.put, self._runners)
        self._keys = Keys(self._settings.cluster)
        self._rejoins = Rejoins(self._inbox.put, self._store, self._keys)
        self._demands = Demands(self._store, self._keys, self._inbox.put, self._mark_dirty)
        self._children = children or Children()
        self._fork_server = fork_server_client(
            self._settings.node,
            self._settings.run_folder,
            self._children,
            self._settings.fork_server,
            environ=self._settings.environ,
        )
        self.accounts = AccountBook()
        """Where the time of each job's slots went; may be read on any thread."""
        self._meters = JobMeters(self.accounts.counted)
        presence.on_metrics_asked = self._meters.readings
        self._kept: dict[JobName, Workers] = {}
        self._closings = ClosingJobs(self._inbox.put, self._mark_dirty)
        self._listings: tuple[ResyncWatch, ...] = ()
        self._dispatch = WorkerDispatch(
            self._life, self._inbox.put, self._guard, self._workers_of, self._settings.search_path
        )
        self._is_draining = self._is_ending = False
        self._end_by_s: float | None = None
        self._error, self._is_dirty = "", False

    def run(self) -> None:
        """Serve this node's jobs until a signal, or the end of the only job, ends the agent.

        Raises:
            EnvironmentProblem: the only job that it is for cannot be served here.
        """
        previous = {n: signal.signal(n, self._signalled) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            self._serve()
        finally:
            for runner in self._runners.values():
                runner.close()
            for workers in self._all_workers():
                workers.end()
            self._closings.wait(CLOSING_TIMEOUT_S)
            self._fork_server.close()
            self._dispatch.monitor.close()
            self._demands.close()
            for number, handler in previous.items():
                signal.signal(number, handler)
        if self._error:
            raise EnvironmentProblem(self._error)

    def _serve(self) -> None:
        jobs = JobList(
            self._store,
            self._keys,
            self._effect_thread,
            self._inbox.put,
            only=self._settings.job,
            node=self._settings.node,
            labels=self._settings.labels,
            labelled=self._registration.set_labels,
            appeared=self._job_appeared,
            vanished=self._job_vanished,
            known=self._presence.readiness.on_jobs_listed,
            refused=self._fail,
        )
        drains = drain_listing(self._store, self._keys.drain(self._settings.node), self._drain_seen)
        self._listings = (*jobs.listings, drains)
        try:
            while not self._is_done():
                self._turn()
        finally:
            for listing in self._listings:
                listing.close()

    # --- the loop -----------------------------------------------------------------------------

    def _turn(self) -> None:
        item = self._inbox.take(self._until_wake_s())
        # First of all: this process may have been stopped for longer than its lease.
        self._check_lease()
        if item is not None:
            item()
        at_s = now_s()
        for runner in list(self._runners.values()):
            if (wake_s := runner.wake_s()) is not None and wake_s <= at_s:
                self._guard.run(runner.spec.name, runner.tick)
        for watch in self._listings:
            watch.take_due()
        self._demands.take_due()
        self._is_dirty |= self._rejoins.take_due()
        if self._is_dirty:
            self._is_dirty = False
            self._reconcile()
        self._presence.readiness.update(limits_s(self._runners), held_back(self._runners), at_s)

    def _until_wake_s(self) -> float | None:
        times = [runner.wake_s() for runner in self._runners.values()]
        times += [self._rejoins.wake_s, self._end_by_s, self._registration.wake_s]
        times += [self._demands.wake_s, *(watch.wake_s for watch in self._listings)]
        wake = min((t for t in times if t is not None), default=None)
        return None if wake is None else max(0.0, wake - now_s())

    def _is_done(self) -> bool:
        if self._error:
            return True
        if self._end_by_s is not None and now_s() >= self._end_by_s:
            log.warning("agent.end_forced", jobs=sorted(self._runners))
            return True
        return self._is_ending and not self._runners and not self._closings

    # --- the lease, and facts about the node ------------------------------------------------------

    def _check_lease(self) -> None:
        self._licenses.check(list(self._runners.values()), self._kept.values())

    def _lease_lost(self) -> None:
        self._check_lease()
        self._licenses.end(list(self._runners.values()))

    def _job_appeared(self, spec: JobSpec, order: int) -> None:
        runner = self._runners.get(spec.name)
        if runner is not None and runner.spec.uid != spec.uid:
            # The end of the job before was missed. When its runner is removed, we come here again.
            runner.reread_status()
        self._specs[spec.name] = (spec, order)
        self._meters.add(spec.name, spec.uid)
        self._is_dirty = True

    def _job_vanished(self, job: JobName) -> None:
        spec, _ = self._specs.pop(job, (None, 0))
        if spec is not None:
            self._past.pop(spec.uid, None)
        self._rejoins.drop(job)
        self._meters.forget(job)
        if job in self._runners:
            self._runners[job].reread_status()
        if job == self._settings.job:
            self._is_ending = True
        self._is_dirty = True

    def _drain_seen(self, is_draining: bool) -> None:
        """Take in a change of this node's drain; the store's thread calls this."""
        self._inbox.put(partial(self._drain, is_draining))

    def _drain(self, is_draining: bool) -> None:
        if is_draining == self._is_draining:
            return
        log.info("node.draining" if is_draining else "node.undrained", node=self._settings.node)
        self._is_draining = is_draining
        self._registration.set_draining(is_draining)
        if is_draining:
            for runner in list(self._runners.values()):
                runner.feed(ev.LeaveRequested(reason=Reason.DRAINED))
        self._is_dirty = True

    def _peer_died(self, node: NodeId, life: Life) -> None:
        log.warning("peer.died", peer=node, life=life)
        for runner in list(self._runners.values()):
            runner.feed(ev.PeerDied(node=node, life=life))

    def _peer_broke(self, node: NodeId, life: Life) -> None:
        """Handle a peer that hung up. It is probed only where etcd says that it listens."""
        found = (runner.peer_named(node, life) for runner in self._runners.values())
        peer = next((each for each in found if each is not None), None)
        if peer is not None:
            self._peers.probe(peer)

    # --- workers ------------------------------------------------------------------------------

    def _workers_of(self, job: JobName) -> Workers | None:
        runner = self._runners.get(job)
        return runner.workers if runner is not None else self._kept.get(job)

    def _progress_of(self, job: JobName) -> tuple[RankState, ...]:
        runner = self._runners.get(job)
        return runner.workers.rank_states() if runner is not None else ()

    def _all_workers(self) -> list[Workers]:
        return [*(runner.workers for runner in self._runners.values()), *self._kept.values()]

    # --- jobs on this node --------------------------------------------------------------------

    def _reconcile(self) -> None:
        """Bring the runners into line with the jobs, the slots and our own state."""
        for job, runner in list(self._runners.items()):
            if runner.retired is not None:
                self._remove(job, runner)
        self._drop_kept()
        if not (self._is_leaving or self._registration.lease is None):
            self._allot()
        peers = {p.life: p for runner in self._runners.values() for p in runner.peers}
        self._peers.hold(tuple(peers.values()))

    def _remove(self, job: JobName, runner: Runner) -> None:
        retired = runner.retired
        assert retired is not None
        del self._runners[job]
        if not retired.is_job_over:
            self._past[runner.spec.uid] = runner.past(self._settings.lease_ttl_s)
        runner.close()
        if retired.keeps_workers:
            runner.workers.detach()
            self._kept[job] = runner.workers
        else:
            self._closings.begin(job, runner.workers, runner.state.slots, runner.ended)
        is_own = self._settings.job == job
        if retired.error and is_own:
            self._fail(retired.error)
        elif retired.is_job_over or retired.error:
            self._forget(runner.spec)
            self._is_ending = self._is_ending or is_own
        elif retired.rejoin_after_s is not None:
            jitter_s = secrets.randbelow(REJOIN_JITTER_MS) / 1000
            delay_s = retired.rejoin_after_s + jitter_s
            self._rejoins.add(job, delay_s, has_to_reach=retired.is_cut_off)

    def _forget(self, spec: JobSpec) -> None:
        """Forget the job, unless another job of the same name has begun by now."""
        standing = self._specs.get(spec.name)
        if standing is not None and standing[0].uid == spec.uid:
            del self._specs[spec.name]

    def _allot(self) -> None:
        claims = [
            self._claim(spec, order)
            for job, (spec, order) in self._specs.items()
            if job not in self._rejoins or job in self._kept
        ]
        contested = rivals(claims, self._settings.slots)
        self._demands.watch({job: self._specs[job][0] for job in contested})
        for job, slots in allot(claims, self._settings.slots).items():
            runner = self._runners.get(job)
            if job in self._rejoins or job in self._closings:
                continue  # Its workers keep their places meanwhile.
            if self._are_held(slots, job):
                continue  # When the runner that holds them is removed, we come here again.
            if runner is None and slots and self._rejoins.may_join(job):
                self._join(*self._specs[job], slots)
            elif runner is not None and not slots:
                runner.feed(ev.LeaveRequested(reason=Reason.NODE_LEFT))
            elif runner is not None and slots != runner.state.slots:
                runner.feed(ev.SlotsGranted(slots=slots))

    def _are_held(self, slots: tuple[Slot, ...], job: JobName) -> bool:
        """Return whether another job's workers still hold one of these slots."""
        held = {s for name, r in self._runners.items() if name != job for s in r.state.slots}
        held |= {s for name, kept in self._kept.items() if name != job for s in kept.slots}
        held |= self._closings.slots
        return not held.isdisjoint(slots)

    def _claim(self, spec: JobSpec, order: int) -> SlotClaim:
        runner, kept = self._runners.get(spec.name), self._kept.get(spec.name)
        return claim_of(
            spec,
            order,
            runner.state if runner is not None else None,
            kept=kept.slots if kept is not None else None,
            lacks_nodes=self._demands.lacks_nodes(spec.name),
            is_stuck=self._demands.is_stuck(spec.name),
            generation=self._demands.generation(spec.name),
        )

    def _join(self, spec: JobSpec, order: int, slots: tuple[Slot, ...]) -> None:
        self._incarnations += 1
        incarnation = incarnation_of(self._life, self._incarnations)
        log.info("job.joined", job=spec.name, incarnation=incarnation, slots=len(slots))
        host = host_of(
            self._presence,
            spec,
            keys=self._keys,
            guard=self._guard,
            children=self._children,
            fork_server=self._fork_server,
            monitor=self._dispatch.monitor,
            accounts=self.accounts,
            meters=self._meters,
        )
        kept, past = self._kept.pop(spec.name, None), self._past.pop(spec.uid, Past())
        try:
            runner = Runner(host, spec, order, incarnation, slots, self._mark_dirty, past, kept)
        except (OSError, ValueError) as exc:
            # No descriptor is left, or the folder in which this agent runs is gone.
            log.error("job.not_joined", job=spec.name, why=str(exc))
            if kept is not None:
                self._kept[spec.name] = kept
            if spec.name == self._settings.job:
                self._fail(f"This node cannot serve the job: {exc}.")
            self._rejoins.add(spec.name, JOIN_RETRY_S)
            return
        self._runners[spec.name] = runner
        if self._licenses.is_fenced:
            runner.feed(ev.LeaseUncertain())
        self._licenses.renew(runner)

    def _drop_kept(self) -> None:
        """End workers that wait for an incarnation that will not come."""
        for job, kept in list(self._kept.items()):
            spec, _ = self._specs.get(job, (None, 0))
            if self._is_leaving or spec is None or spec.uid != kept.spec.uid:
                del self._kept[job]
                self._closings.begin(job, kept, kept.slots)

    @property
    def _is_leaving(self) -> bool:
        return self._is_ending or self._is_draining

    def _mark_dirty(self) -> None:
        self._is_dirty = True

    # --- the end ------------------------------------------------------------------------------

    def _signalled(self, number: int, frame: object) -> None:
        self._inbox.put(partial(self._end, signal.Signals(number).name))

    def _end(self, name: str) -> None:
        """Handle a signal: the first says goodbye with the workers' grace, the second ends now."""
        if self._end_by_s is not None:
            self._end_by_s = now_s()
            return
        log.info("agent.ending", signal=name)
        self._is_ending = True
        grace_s = max((r.spec.shutdown_timeout_s for r in self._runners.values()), default=0.0)
        self._end_by_s = now_s() + grace_s + GOODBYE_MARGIN_S
        for runner in list(self._runners.values()):
            runner.feed(ev.LeaveRequested(reason=Reason.NODE_LEFT))
        self._is_dirty = True

    def _fail(self, why: str) -> None:
        self._error = self._error or why

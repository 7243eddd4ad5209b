"""One job on this node: the core's state, and the methods that carry out what it decides."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from elasticd.channel.worker import Beat, Progressed
from elasticd.records.ids import Incarnation, Life, NodeId, Nonce, Slot, life_of
from elasticd.records.job import JobSpec
from elasticd.records.member import Peer, peer_of
from elasticd.records.reason import Phase, Reason
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous import journal
from elasticd.rendezvous.decide import decide, wake_at_s
from elasticd.rendezvous.next_world.wait import past_of
from elasticd.rendezvous.own_record import is_working
from elasticd.rendezvous.state import JobState, Past, Stage
from elasticd.telemetry.log import get_logger
from elasticd_agent.job.account_recorder import recording_of
from elasticd_agent.job.agent_services import AgentServices
from elasticd_agent.job.decision_log import log_changes
from elasticd_agent.job.etcd_effects import effects_of
from elasticd_agent.job.etcd_watches import JobWatches
from elasticd_agent.job.incidents import Incidents
from elasticd_agent.job.journal_file import JournalFile
from elasticd_agent.late.late_judge import LateJudge
from elasticd_agent.late.node_wait import NodeWaits
from elasticd_agent.loop.clock import now_s
from elasticd_agent.workers.final_save import end_share_s
from elasticd_agent.workers.pool_client import PoolTrouble
from elasticd_agent.workers.worker_process import pool_failure
from elasticd_agent.workers.workers import Workers

__all__ = ["Retired", "Runner"]

POOL_PAUSE_S = 1.0
"""The pause before another pool is started where one ended."""
POOL_RETRY_S = 10.0
"""The pause before another try where no pool could be started (a full disk, no processes left)."""

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """The reason why this node serves a job no more, and when it may join again."""

    is_job_over: bool
    rejoin_after_s: float | None
    is_cut_off: bool = False
    keeps_workers: bool = False
    error: str = ""


class Runner:
    """Serve one job. All methods run on the owner's thread; feeders reach it through `post`."""

    def __init__(
        self,
        host: AgentServices,
        spec: JobSpec,
        order: int,
        incarnation: Incarnation,
        slots: tuple[Slot, ...],
        changed: Callable[[], None],
        past: Past,
        kept: Workers | None = None,
    ) -> None:
        """`past` is what an earlier incarnation knew, `kept` are the workers that it left to this
        one, with its place."""
        self.spec, self.order = spec, order
        self._host, self._changed = host, changed
        self._log = log.bind(job=spec.name)
        self.state = JobState(me=host.me(incarnation), spec=spec, past=past)
        self.retired: Retired | None = None
        self.lease_id = lease.id if (lease := host.lease()) is not None else None
        """Under which it joined; it ends with it."""
        self.peers: tuple[Peer, ...] = ()
        self._gentle: list[tuple[float, fx.StopWorker]] = []
        self._pool_retry_s: float | None = None
        self._is_pool_broken = False
        self._journal = JournalFile(host.event_log, spec.name, incarnation)
        self._journal.write(lambda: journal.opening(self.state))
        self._etcd_effects = effects_of(host, spec, self._post_event)
        self.workers = kept or Workers(
            spec=spec,
            node=host.node,
            host=host.host,
            address=host.address,
            environ=host.environ,
            run_folder=host.run_folder,
            children=host.children,
            fork_server=host.fork_server,
            monitor=host.monitor,
            post=host.post,
            forwarding=host.forwarding.of(spec.name),
        )
        self.account = host.accounts.of(spec, now_s())
        self.workers.attached.on_beat = self._beat
        folder = host.run_folder / spec.name
        self._incidents = Incidents(self.account, folder, self._etcd_effects.perform)
        self._recording = recording_of(self.account, host, incarnation)
        self._meter = host.meters.open(spec)
        self.workers.attached.rank_heard = partial(host.meters.receive, spec.name)
        self.workers.attached.progressed = self._progressed
        self.node_waits = NodeWaits(kept.slots if kept is not None else ())
        self.late = _late_judge(host, spec, self._incidents)
        self._meter.measure(
            step_wait_s=lambda: self.node_waits.total_s, late_ratio=lambda: self.late.ratio
        )
        self._watches = JobWatches(host.store, host.keys, spec.name, self._post_event)
        self.feed(ev.SlotsGranted(slots=slots))
        self.workers.serve(incarnation, self.feed, self._pool_broke)

    def past(self, lease_ttl_s: float) -> Past:
        """Return what this node's next incarnation is to know; the TTL is that of all nodes."""
        return past_of(self.state, lease_ttl_s=lease_ttl_s, now_s=now_s())

    @property
    def stage(self) -> Stage:
        return self.state.stage

    @property
    def licensed(self) -> Workers:
        return self.workers

    def peer_named(self, node: NodeId, life: Life) -> Peer | None:
        """Return where that agent listens, as far as the records that we have seen say."""
        seen = self.state.members.get(node)
        named = self.state.world.node(node) if self.state.world is not None else None
        for known in (seen.member if seen is not None else None, named):
            if known is not None and life_of(known.incarnation) == life:
                return peer_of(known)
        return None

    def feed(self, event: ev.Event) -> None:
        """Decide about one event and begin to carry out what follows."""
        self._host.guard(partial(self._feed, event))

    def _feed(self, event: ev.Event) -> None:
        if self.retired is not None:
            return
        if isinstance(event, ev.WorkerStepped):
            event = self._with_repeated_steps(event)
        before, at_s = self.state, now_s()
        standing = _standing(before)
        self.state, effects = decide(before, event, now_s=at_s)
        self.account.follow(event, self.state, at_s)
        self._journal.write(lambda: journal.line(at_s, event, effects))
        self._meter.observe(before, self.state, effects)
        self.late.judge(self.state, at_s)
        log_changes(self._log, before, self.state)
        self._explain_hang(before)
        for effect in effects:
            self._perform(effect)
        if isinstance(event, ev.WorkerStepped):
            self._stepped(event, at_s)
        if standing != _standing(self.state):
            self._changed()

    def reread_status(self) -> None:
        """Read the job's status, because its entry among the active ones is gone or is another's.

        Mostly the watches have reported it already. If they missed it, workers and slots would be
        kept.
        """
        if self.retired is None:
            self._watches.reread()

    def crash(self, why: str) -> None:
        """Leave the job for good: what is known of it cannot be trusted any more."""
        if self.retired is None:
            self.retired = Retired(is_job_over=False, rejoin_after_s=None, error=why)
            self._changed()

    def wake_s(self) -> float | None:
        """Return when `tick` is wanted next."""
        times = [
            wake_at_s(self.state),
            self._pool_retry_s,
            self._recording.wake_s,
            self.late.wake_s,
        ]
        times += [at_s for at_s, _ in self._gentle]
        return min((t for t in times if t is not None), default=None)

    def tick(self) -> None:
        at_s = now_s()
        if self._pool_retry_s is not None and self._pool_retry_s <= at_s:
            self._pool_retry_s = None
            self.workers.renew()
        for due in [item for item in self._gentle if item[0] <= at_s]:
            self._gentle.remove(due)
            self.workers.stop(due[1])
        self._recording.take_due(self.state, at_s)
        self.late.judge(self.state, at_s)
        wake = wake_at_s(self.state)
        if wake is not None and wake <= at_s:
            self.feed(ev.Ticked())

    def close(self) -> None:
        """Forget the job; somebody else ends its workers, or keeps them."""
        keeps_workers = self.retired is not None and self.retired.keeps_workers
        self.account.leave(now_s(), keeps_workers=keeps_workers)
        self._host.accounts.left(self.spec.name, now_s())
        self._watches.close()
        self._host.meters.close(self._meter, keeps_workers=keeps_workers)
        self._host.effect_thread.failed_writes.forget(self.spec.name)
        self._journal.close()

    def ended(self) -> None:
        """Take note that no worker is left.

        An agent that could not say goodbye is no member any more.
        """
        if self.retired is not None and self.retired.error:
            self._etcd_effects.take_back(self.state.me.node, self.state.me.incarnation)

    # --- effects ------------------------------------------------------------------------------

    def _perform(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Observe(nodes=nodes, is_reread=is_reread):
                if is_reread:
                    self._watches.reread()
                self._watches.observe(nodes)
            case fx.HoldPeers(peers=peers):
                self.peers = peers
                self._changed()
            case fx.StartWorker():
                self.workers.start(effect)
            case fx.PrepareWorker():
                self.workers.prepare(effect)
            case fx.EnterWorld():
                self.workers.enter(effect)
            case fx.LeaveWorld():
                if not (self._ends_in_order and self._save_first(effect)):
                    self.workers.leave(effect)
            case fx.StopWorker(slot=slot):
                if self.workers.is_winding_down(slot) and effect.grace_s > 0:
                    # It is winding down by itself: its own atexit handlers come first.
                    late = (now_s() + effect.grace_s, replace(effect, grace_s=0.0))
                    self._gentle.append(late)
                elif not (self._is_stopped and self._save_first(effect)):
                    self.workers.stop(effect)
            case fx.UseStore():
                self.workers.use_store(effect.store, is_begun=effect.is_begun)
            case fx.Withdraw(result=result):
                # A fact for people; nothing is decided by it.
                result = replace(result, saved=self.workers.final_saves.saved)
                self._recording.write(self.state, now_s(), is_last=True)
                self._etcd_effects.perform(replace(effect, result=result))
            case fx.WriteIncident(incident=incident):
                self._incidents.report(incident, now_s())
                self._recording.write(self.state, now_s())
            case fx.Retire():
                self.retired = Retired(
                    is_job_over=effect.is_job_over,
                    rejoin_after_s=effect.rejoin_after_s,
                    is_cut_off=effect.is_cut_off,
                    keeps_workers=effect.keeps_workers,
                )
                self._changed()
            case _:
                self._etcd_effects.perform(effect)

    @property
    def _is_stopped(self) -> bool:
        status = self.state.status
        return status is not None and status.phase is Phase.STOPPED

    @property
    def _ends_in_order(self) -> bool:
        """Return whether the world ends only because too many nodes leave; then nothing is broken
        and all save alike.
        """
        status = self.state.status
        if status is None or not self.state.is_world_ended:
            return False
        return status.reason.is_planned or status.reason is Reason.NODE_LEFT

    def _save_first(self, effect: fx.StopWorker | fx.LeaveWorld) -> bool:
        """Have a worker save its state. One that has not saved in time is stopped all the same."""
        if isinstance(effect, fx.LeaveWorld):
            return self.workers.save_first(effect, self.spec.shutdown_timeout_s)
        if not self.workers.save_first(effect, effect.grace_s):
            return False
        end_s = end_share_s(effect.grace_s)
        self._gentle.append((now_s() + effect.grace_s - end_s, replace(effect, grace_s=end_s)))
        return True

    def _progressed(self, slot: Slot, nonce: Nonce, progress: Progressed) -> None:
        is_first = self.account.count_reported_steps(slot, nonce, progress, now_s())
        if is_first and (more := self._incidents.report_again()) is not None:
            self._meter.count_more(*more)
        worker = self.state.workers.get(slot)
        if worker is not None and worker.nonce == nonce:
            self._meter.count_progress(worker.rank, worker.generation, progress)

    def _with_repeated_steps(self, event: ev.WorkerStepped) -> ev.WorkerStepped:
        """Add the steps that were lost with all processes that had made them: new ones do not know
        of them.
        """
        repeated = self.account.generations.repeated_steps(event.generation, event.step)
        return replace(event, lost_steps=max(event.lost_steps, repeated))

    def _stepped(self, event: ev.WorkerStepped, at_s: float) -> None:
        """Take note of steps: they end a change that was reported before any worker called
        `elasticd.run`.
        """
        if (more := self._incidents.report_first_commit(event, self.state, at_s)) is not None:
            self._meter.count_more(*more)
            self._recording.write(self.state, at_s)

    def _beat(self, slot: Slot, nonce: Nonce, beat: Beat) -> None:
        at_s = now_s()
        self.account.beat(slot, nonce, beat, at_s)
        if (wait := self.node_waits.receive(slot, nonce, beat, self.state, at_s)) is not None:
            self.feed(ev.NodeWaited(wait=wait))

    def _post_event(self, event: ev.Event) -> None:
        self._host.post(lambda: self.feed(event))

    def _pool_broke(self, trouble: PoolTrouble) -> None:
        """Handle a pool that cannot work here, could not be started, or ended unexpectedly."""
        why = trouble.why
        if self.retired is not None:
            return
        if why and self._host.is_for_one_job and not (trouble.may_pass and trouble.was_ready):
            error = f"This node cannot serve the job: {why}." if trouble.may_pass else why
            self.retired = Retired(is_job_over=False, rejoin_after_s=None, error=error)
            self._changed()
            return
        if not why and not self._is_pool_broken:
            self._log.warning("pool.ended")
            self._pool_retry_s = now_s() + POOL_PAUSE_S
        if not why:
            return
        # Stay a member without slots: whoever asks the job what it waits for is told why.
        if trouble.may_pass:
            self._log.error("pool.not_started", why=why, retry_seconds=POOL_RETRY_S)
            self._pool_retry_s = now_s() + POOL_RETRY_S
        else:
            self._log.error("pool.failed", why=why)
            self._is_pool_broken = True
        failure = pool_failure(self.workers.home, why)
        self.feed(ev.PoolChanged(is_ready=False, failure=failure))

    # --- for people ---------------------------------------------------------------------------

    def _explain_hang(self, before: JobState) -> None:
        """Have the stacks of our ranks written down if the world ends because of a hang.

        This runs before the ranks hear of the next world: those that waited for the hung one still
        wait then.
        """
        state, standing = self.state, before.world
        if standing is None:
            return
        reason, culprit = None, None
        if state.world is not None and state.world.generation > standing.generation:
            reason, culprit = state.world.reason, state.world.culprit
        elif state.is_world_ended and not before.is_world_ended and state.status is not None:
            reason, culprit = state.status.reason, state.status.failure
        has_stalled = any(worker.stall is not None for worker in before.workers.values())
        if reason in (Reason.WORKER_HUNG, Reason.NO_OUTPUT) or (
            reason is Reason.COLLECTIVE_BROKEN and has_stalled
        ):
            self.workers.explain_hang(standing.generation, culprit)


def _late_judge(host: AgentServices, spec: JobSpec, incidents: Incidents) -> LateJudge:
    return LateJudge(
        job=spec.name,
        on_late=spec.on_late,
        store=host.store,
        keys=host.keys,
        effect_thread=host.effect_thread,
        lease=host.lease,
        post=host.post,
        tell=incidents.file.add_late,
    )


def _standing(state: JobState) -> tuple[object, ...]:
    """Return what other jobs on this node wait for: a slot may be free when it changes."""
    return state.stage, is_working(state), state.next_generation, state.slots

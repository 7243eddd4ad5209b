"""One job's workers on this node: the pool's messages come in, typed events go out."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from elasticd.channel import pool as ch
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, NodeId, Slot
from elasticd.records.job import JobSpec
from elasticd.records.member import StoreAddress
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.telemetry.log import get_logger
from elasticd_agent.lease.pool_license import PoolLicense
from elasticd_agent.liveness.hang_detector import Verdict
from elasticd_agent.liveness.kill_notice import Killed, notify_of_kill
from elasticd_agent.liveness.monitor import WorkerMonitor
from elasticd_agent.liveness.progress_answer import RankState
from elasticd_agent.loop.clock import now_s
from elasticd_agent.output_monitor.stdout_copy import JobForwarding
from elasticd_agent.pod.orphans import Children
from elasticd_agent.side_processes.side_processes import SideProcesses
from elasticd_agent.worker_setup.worker_setup import WorkerSetup
from elasticd_agent.workers.attached_workers import AttachedWorkers
from elasticd_agent.workers.exit_files import ExitFiles
from elasticd_agent.workers.exit_report import ExitReport, not_started
from elasticd_agent.workers.final_save import FinalSaves
from elasticd_agent.workers.fork_server_client import ForkServerClient
from elasticd_agent.workers.fresh_stores import FreshStores
from elasticd_agent.workers.hang_report import HangReporter, is_final, output_limits
from elasticd_agent.workers.pool_client import PoolNotStarted, PoolTrouble, WarmPool, open_pool
from elasticd_agent.workers.stall_probe import StallProbe
from elasticd_agent.workers.worker_process import Home, WorkerProcess, failure_of, rank_state

__all__ = ["Workers"]

PREPARED_NICENESS = 10
"""The niceness of a worker that only prepares; it is undone when the worker attaches."""

log = get_logger()

Feed = Callable[[ev.Event], None]
_Message = ch.FromPool | Killed


def _unheard(news: object) -> None:
    """Drop an event while nobody serves the job: the next incarnation asks how things stand."""


class Workers:
    """Starts and stops workers through the pool and reports their ends.

    All methods run on the agent's main thread, which waits for no folder and no pool.
    """

    def __init__(
        self,
        *,
        spec: JobSpec,
        node: NodeId,
        host: str,
        address: str,
        environ: Mapping[str, str],
        run_folder: Path,
        children: Children,
        fork_server: ForkServerClient | None,
        monitor: WorkerMonitor,
        post: Callable[[Callable[[], None]], None],
        forwarding: JobForwarding | None = None,
    ) -> None:
        self._spec, self._node, self._environ = spec, node, environ
        self.home = Home(node=node, incarnation=Incarnation(""), host=host)
        self._run_folder, self._children, self._fork_server = run_folder, children, fork_server
        self._feed: Feed = _unheard
        self._broke: Callable[[PoolTrouble], None] = _unheard
        self._post = post
        self._stores = FreshStores(
            address, lambda message: self._pool.send(message), are_ports=spec.needs_no_torch
        )
        self._setup = WorkerSetup(spec, node, run_folder, address=address, environ=environ)
        self._processes: dict[str, WorkerProcess] = {}
        self.attached = AttachedWorkers(monitor.send, lambda event: self._feed(event))
        self.final_saves = FinalSaves(self.attached, is_wanted=spec.checkpoint is not None)
        self._monitor = monitor
        self._hang_reporter = HangReporter(
            monitor,
            post,
            (run_folder, spec.name, node),
            self._processes,
            failure=lambda name: self._failure(name, -9, ExitReport()),
            kill=self._kill,
            feed=lambda event: self._feed(event),
            output=output_limits(spec),
            has_steps=self.attached.is_attached,
            steps_told=self.attached.steps_told,
            forwarding=forwarding,
        )
        self._stall_probe = StallProbe(post, self.attached, self._judge)
        self._exit_files = ExitFiles(self._processes, children.oom_kills)
        self._is_pool_ready = self._was_ready = False
        self._trouble: PoolTrouble | None = None
        self._license = PoolLicense(post, lambda: self._pool, self._processes)
        self._beside = SideProcesses(
            spec, node, run_folder, children, address=address, environ=environ
        )
        self._pool = self._new_pool()

    def serve(
        self, incarnation: Incarnation, feed: Feed, broke: Callable[[PoolTrouble], None]
    ) -> None:
        """Report to this incarnation from now on, beginning with the workers that it takes over."""
        self.home = replace(self.home, incarnation=incarnation)
        self._feed, self._broke = feed, broke
        if kept := list(self._processes.values()):
            states = (p.slot for p in kept if p.pid and self.attached.has_state(p.pid))
            workers = tuple((p.slot, p.nonce) for p in kept)
            feed(ev.WorkersKept(workers=workers, with_state=tuple(states)))
            for each in kept:
                if (told := each.failure) is not None:  # Before this incarnation listened.
                    feed(ev.WorkerFailed(slot=each.slot, nonce=each.nonce, failure=told))
        if self._is_pool_ready:
            feed(ev.StoresChanged(stores=self._stores.ready))
            feed(ev.PoolChanged(is_ready=True))
        elif self._trouble is not None:
            self._break(self._trouble)  # While nobody listened.

    def _break(self, trouble: PoolTrouble) -> None:
        self._trouble = replace(trouble, was_ready=self._was_ready)
        self._broke(self._trouble)

    def detach(self) -> None:
        """Wait for the next incarnation."""
        self._feed = self._broke = _unheard

    @property
    def spec(self) -> JobSpec:
        return self._spec

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots of the workers that are here."""
        return tuple(sorted({process.slot for process in self._processes.values()}))

    # --- orders -------------------------------------------------------------------------------

    def start(self, effect: fx.StartWorker) -> None:
        world, placement = effect.world, effect.placement
        files = self._setup.files_of(world.generation, placement.rank)
        env = self._setup.env_of(world, placement, files)
        process = WorkerProcess(
            slot=placement.worker.slot,
            nonce=placement.worker.nonce,
            generation=world.generation,
            rank=placement.rank,
            local_rank=placement.local_rank,
            files=files,
        )
        self._launch(f"{world.generation}.{process.slot}.{process.nonce}", process, env)

    def prepare(self, effect: fx.PrepareWorker) -> None:
        """Start a worker that is to wait in `elasticd.run` until a world names it."""
        slot, nonce = effect.slot, effect.nonce
        unique = f"{self._node}.{self.home.incarnation}.slot-{slot}.{nonce}"  # Nonces begin anew.
        process = WorkerProcess(slot=slot, nonce=nonce, files=self._setup.prepared_files(unique))
        is_training = any(each.generation != 0 for each in self._processes.values())
        niceness = PREPARED_NICENESS if is_training else 0
        env = self._setup.prepared_env(slot)
        self._launch(f"0.{slot}.{nonce}", process, env, niceness=niceness)

    def enter(self, effect: fx.EnterWorld) -> None:
        _, process = self._find(effect)
        if process is None or process.pid is None:
            return  # It ended meanwhile; the core hears of that.
        self.final_saves.resume(process.pid)
        world, placement = effect.world, effect.placement
        files = self._setup.files_of(world.generation, placement.rank)
        process.generation, process.rank = world.generation, placement.rank
        process.local_rank, process.files = placement.local_rank, files
        self._hang_reporter.outputs.watch(process.pid, files)
        self.attached.enter(process.pid, world, placement, files)

    def leave(self, effect: fx.LeaveWorld) -> None:
        _, process = self._find(effect)
        if process is not None and process.pid is not None:
            self.attached.leave(process.pid, effect.at_step)

    def _launch(
        self, name: str, process: WorkerProcess, env: dict[str, str], niceness: int = 0
    ) -> None:
        env.update(self._beside.env, ELASTICD_AGENT=self._monitor.name)
        self._processes[name] = process
        self._pool.send(self._setup.order(name, process.files, env, niceness=niceness))

    def stop(self, effect: fx.StopWorker) -> None:
        name, process = self._find(effect)
        if process is None or self.final_saves.is_ended(process.pid):
            return
        if process.pid is not None:
            self._monitor.ignore(process.pid)
        if process.is_examined:
            process.is_stop_due = True  # It is still being looked at, for half a second.
            process.stop_grace_s = effect.grace_s if process.is_silent else 0.0
        else:
            self._end(name, effect.grace_s)

    def save_first(self, effect: fx.StopWorker | fx.LeaveWorld, grace_s: float) -> bool:
        """Have a worker save its state before it ends; return False if there is nothing to save."""
        name, process = self._find(effect)
        if process is None or process.pid is None or process.is_examined:
            return False
        end = partial(self._end, name) if isinstance(effect, fx.StopWorker) else None
        return self.final_saves.ask(process.pid, rank=process.rank, grace_s=grace_s, end=end)

    def _end(self, name: str, grace_s: float) -> None:
        self._pool.send(ch.Stop(worker=name, grace_s=grace_s))

    def _find(
        self, effect: fx.EnterWorld | fx.LeaveWorld | fx.StopWorker
    ) -> tuple[str, WorkerProcess | None]:
        found = ((n, p) for n, p in self._processes.items() if p.is_in(effect.slot, effect.nonce))
        return next(found, ("", None))

    def is_winding_down(self, slot: Slot) -> bool:
        """Return whether the slot's worker raised an error of its own and is on its way to the end.

        An error that only echoes another rank's death does not count: nobody waits for its report.
        """
        return any(p.is_winding_down for p in self._processes.values() if p.slot == slot)

    def rank_states(self) -> tuple[RankState, ...]:
        """Return where the ranks here stand, and where each writes to."""
        shown, path, at_s = self.attached.shown_progress, self._beside.metrics_path, now_s()
        return tuple(
            rank_state(process, shown(process.pid), at_s, path)
            for process in self._processes.values()
            if process.pid is not None and process.generation
        )

    def use_store(self, store: StoreAddress, *, is_begun: bool) -> None:
        """Take note that a store is a world's now, or was that of one that never began here."""
        if is_begun:
            self._stores.use(store)
        else:
            self._stores.give_up(store)

    def allow_until(self, until_s: float) -> None:
        """Let the pool enforce the isolation limit, even if this process stands still."""
        self._license.allow_until(until_s)

    def end(self) -> None:
        """Kill what is left and end the pool; saves may still finish. Any thread may call this."""
        self._license.close()
        self._hang_reporter.outputs.close()
        self._beside.close()
        self._pool.close()

    # --- reports ------------------------------------------------------------------------------

    def _new_pool(self) -> WarmPool:
        return open_pool(
            self._spec,
            self._setup.cwd,
            environ=self._environ,
            run_folder=self._run_folder,
            log_path=self._run_folder / self._spec.name / "agents" / f"{self._node}.pool.log",
            on_message=self._on_pool_message,
            children=self._children,
            prepare=self._prepare_folder,
            fork_server=self._fork_server,
        )

    def _prepare_folder(self) -> None:
        """Make the job's folder ready; the pool's thread calls this, and may wait for a disk."""
        self._setup.prepare_folder()
        self._beside.open()

    def _on_pool_message(self, message: _Message | PoolNotStarted | None) -> None:
        """Pass on a message of the pool, or of a kill; a thread that listens to them calls this."""
        if isinstance(message, PoolNotStarted):
            self._post(partial(self._break, PoolTrouble(why=message.message)))
            return
        reports = self._exit_files.of(message)
        self._post(lambda: self._handle(message, reports))

    def _handle(self, message: _Message | None, reports: Mapping[str, ExitReport]) -> None:
        job, limit_s = self._spec.name, self._spec.progress_timeout_s
        match message:
            case ch.PoolReady(import_s=import_s, can_fork=can_fork):
                log.info("pool.ready", import_seconds=round(import_s, 2), can_fork=can_fork)
                self._was_ready = True
                self._license.on_pool_ready()
                self._stores.request()
            case ch.PoolFailed(message=why):
                self._break(PoolTrouble(why=why, may_pass=False))
            case ch.StoresReady(stores=stores):
                self._stores.ready = stores
                self._feed(ev.StoresChanged(stores=stores))
                if stores and not self._is_pool_ready:
                    self._is_pool_ready = True
                    self._feed(ev.PoolChanged(is_ready=True))
            case ch.Started(worker=name, pid=pid):
                process = self._processes[name]
                process.pid = pid
                notify_of_kill(message, self._on_pool_message)
                self.attached.expect(pid, process.slot, process.nonce)
                is_prepared = process.generation == 0
                self._monitor.expect(pid, job=job, limit_s=limit_s, is_prepared=is_prepared)
                self._hang_reporter.outputs.watch(pid, process.files)
                self._feed(ev.WorkerStarted(slot=process.slot, nonce=process.nonce))
            case ch.StartFailed(worker=name, message=why):
                self._start_failed(name, why)
            case ch.Raised(worker=name, code=code) | Killed(worker=name, code=code):
                self._failed(name, code, reports)
            case ch.Exited(worker=name, code=code):
                self._exited(name, code, reports[name])
            case None:
                self._pool_ended(reports)

    def _failed(self, name: str, code: int, reports: Mapping[str, ExitReport]) -> None:
        """Report a failure before the worker's end, for which nothing has to wait."""
        if (process := self._processes.get(name)) is None:
            return  # It was killed, and has been reaped since.
        process.failure = failure = self._failure(name, code, reports[name])
        self._feed(ev.WorkerFailed(slot=process.slot, nonce=process.nonce, failure=failure))

    def _exited(self, name: str, code: int, report: ExitReport) -> None:
        process = self._processes[name]
        # A worker that was only being prepared owes us a call of `elasticd.run`, also with exit 0.
        is_early = process.generation == 0 and process.pid is not None
        failure = self._failure(name, code, report) if code != 0 or is_early else None
        del self._processes[name]
        if process.pid is not None:
            self.final_saves.forget(process.pid)
            self.attached.forget(process.pid)
            self._stall_probe.drop(process.pid)
            self._monitor.forget(process.pid)
            self._hang_reporter.outputs.forget(process.pid)
        self._exit_files.forget(name)
        self._feed(
            ev.WorkerExited(slot=process.slot, nonce=process.nonce, code=code, failure=failure)
        )

    def _start_failed(self, name: str, why: str) -> None:
        process = self._processes[name]
        log.error("worker.not_started", rank=process.rank, generation=process.generation, why=why)
        self._exited(name, 127, not_started(self._spec.entry, why))

    def _failure(self, name: str, code: int, report: ExitReport) -> Failure:
        process = self._processes[name]
        progress = self.attached.progress_of(process.pid) if process.pid is not None else None
        return failure_of(self.home, process, code, report, progress)

    def judge(self, verdict: Verdict) -> None:
        """Act on a verdict about a worker of this job; on a standstill only when the other nodes of
        its world have answered.
        """
        self._stall_probe.receive(verdict)

    def _judge(self, verdict: Verdict) -> None:
        found = (each for each in self._processes.items() if each[1].pid == verdict.pid)
        name, process = next(found, ("", None))
        if process is None or process.is_examined:
            return
        if self._feed is _unheard:
            if is_final(verdict):
                self._kill(name)  # It waits for our next incarnation, which must not offer it.
            return
        event = self._hang_reporter.judged(name, verdict)
        if process.is_examined and self.final_saves.is_asked(process.pid):
            process.is_stop_due = True  # No other order will come.
        self._feed(event)

    def explain_hang(self, generation: Generation, culprit: Failure | None) -> None:
        """Write down stacks: the next world leaves out a worker that hung in this one."""
        self._hang_reporter.explain(generation, culprit)

    def _kill(self, name: str) -> None:
        if process := self._processes.get(name):
            self._end(name, process.stop_grace_s)

    def _pool_ended(self, reports: Mapping[str, ExitReport]) -> None:
        """Report all workers as killed and begin anew, since no worker outlives its pool."""
        self._is_pool_ready = False
        self._license.on_pool_exit()
        self._feed(ev.PoolChanged(is_ready=False))
        self._feed(ev.StoresChanged(stores=()))
        for name in list(self._processes):
            self._exited(name, -9, reports.get(name, ExitReport()))
        self._stores.on_pool_exit()
        self._break(PoolTrouble())

    def renew(self) -> None:
        """Begin with another pool after one ended, or could not be started."""
        self._trouble = None
        try:
            self._pool = self._new_pool()
        except OSError as exc:  # No thread, no descriptor: tried again later.
            self._break(PoolTrouble(why=str(exc)))

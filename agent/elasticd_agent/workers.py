"""One job's workers on this node: the pool's messages on one side, typed events on the other."""

import os
from collections.abc import Callable
from pathlib import Path

from elasticd import channel as ch
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, NodeId, Nonce, Rank, Slot
from elasticd.records.job import JobSpec
from elasticd.records.member import StoreAddress
from elasticd.records.world import Placement
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.telemetry.log import get_logger
from elasticd_agent.ending import is_echo, signal_name, tell
from elasticd_agent.log_folder import claim
from elasticd_agent.orphans import end_orphans
from elasticd_agent.warm_pool import WarmPool
from elasticd_agent.worker_env import (
    WorkerFiles,
    gpu_indices,
    interface_of,
    worker_env,
    worker_files,
)

__all__ = ["FRESH_STORES", "Workers"]

FRESH_STORES = 2
"""One for the next world, one for the world after a failure that comes before it is replaced."""

log = get_logger()

Feed = Callable[[ev.Event], None]


class Workers:
    """Starts and stops workers through the pool and reports what becomes of them.

    All methods run on the agent's main thread; `post` brings the pool's messages there. `pools`
    holds the process numbers of all pools of this agent, which are not orphans.
    """

    def __init__(
        self,
        *,
        spec: JobSpec,
        node: NodeId,
        incarnation: Incarnation,
        host: str,
        address: str,
        run_folder: Path,
        pools: set[int],
        feed: Feed,
        post: Callable[[Callable[[], None]], None],
        broke: Callable[[str], None],
    ) -> None:
        self._spec, self._node, self._incarnation, self._host = spec, node, incarnation, host
        self._address, self._run_folder, self._pools = address, run_folder, pools
        self._feed, self._post, self._broke = feed, post, broke
        self._cwd = spec.cwd or os.getcwd()
        self._interface = interface_of(address)
        self._gpus = gpu_indices(os.environ)
        self._placed: dict[str, tuple[Placement, Generation, WorkerFiles]] = {}
        self._raised: dict[str, ch.Raised] = {}
        self._own_errors: set[str] = set()
        self._used: list[StoreAddress] = []
        self._is_pool_ready = False
        self._is_pool_listening = False
        self._until_s: float | None = None
        claim(run_folder / spec.name, spec.uid)
        self._pool = self._new_pool()

    # --- orders -------------------------------------------------------------------------------

    def start(self, effect: fx.StartWorker) -> None:
        spec, world, placement = self._spec, effect.world, effect.placement
        files = worker_files(self._run_folder, spec.name, world.generation, placement.rank)
        name = _name(world.generation, placement)
        env = worker_env(
            spec,
            world,
            placement,
            files,
            base=os.environ,
            interface=self._interface,
            gpus=self._gpus,
        )
        self._placed[name] = (placement, world.generation, files)
        self._pool.tell(
            ch.Start(
                worker=name,
                entry_kind=spec.entry_kind,
                entry=spec.entry,
                args=spec.args,
                cwd=self._cwd,
                env=env,
                out_path=str(files.out),
                err_path=str(files.err),
                error_file=str(files.error),
                threads=int(env["OMP_NUM_THREADS"])
                if env.get("OMP_NUM_THREADS", "").isdigit()
                else 0,
            )
        )

    def stop(self, effect: fx.StopWorker) -> None:
        for name, (placement, _, _) in self._placed.items():
            worker = placement.worker
            if (worker.slot, worker.nonce) == (effect.slot, effect.nonce):
                self._pool.tell(ch.Stop(worker=name, grace_s=effect.grace_s))

    def is_winding_down(self, slot: Slot) -> bool:
        """True if the slot's worker raised an error of its own and is on its way to the end.

        The echo of another rank's death does not count: it has nothing to say that anybody waits
        for, and the interpreter's wind-down of torch would be the longest part of a recovery.
        """
        return any(self._placed[name][0].worker.slot == slot for name in self._own_errors)

    def use_store(self, store: StoreAddress) -> None:
        """Take it for the world that begins, and close that of the world before."""
        self._used.append(store)
        self._keep_stores()

    def allow_until(self, until_s: float) -> None:
        """Let the pool enforce the isolation limit, even if this process stands still."""
        self._until_s = until_s
        if self._is_pool_listening:
            self._pool.tell(ch.License(until_s=until_s))

    def close(self, timeout_s: float = 5.0) -> None:
        """Kill what is left and end the pool."""
        self._pool.close(timeout_s)
        self._pools.discard(self._pool.process.pid)
        end_orphans(self._pools)

    # --- reports ------------------------------------------------------------------------------

    def _new_pool(self) -> WarmPool:
        spec = self._spec
        env = {**os.environ, **spec.env}
        pool = WarmPool(
            python=spec.python,
            env={key: value for key, value in env.items() if not key.startswith("ELASTICD_ETCD")},
            cwd=self._cwd,
            preload=spec.preload,
            heard=lambda message: self._post(lambda: self._hear(message)),
            log_path=str(self._run_folder / spec.name / "agents" / f"{self._node}.pool.log"),
        )
        self._pools.add(pool.process.pid)
        return pool

    def _hear(self, message: ch.FromPool | None) -> None:
        match message:
            case ch.PoolReady(import_s=import_s, can_fork=can_fork):
                log.info("pool.ready", import_seconds=round(import_s, 2), can_fork=can_fork)
                # Only from now on does it read: what is told before fills the socket.
                self._is_pool_listening = True
                if self._until_s is not None:
                    self._pool.tell(ch.License(until_s=self._until_s))
                self._keep_stores()
            case ch.PoolFailed(message=why):
                self._broke(why)
            case ch.StoresReady(stores=stores):
                self._feed(ev.StoresChanged(stores=stores))
                if stores and not self._is_pool_ready:
                    self._is_pool_ready = True
                    self._feed(ev.PoolChanged(is_ready=True))
            case ch.Started(worker=name):
                worker = self._placed[name][0].worker
                self._feed(ev.WorkerStarted(slot=worker.slot, nonce=worker.nonce))
            case ch.StartFailed(worker=name, message=why):
                self._start_failed(name, why)
            case ch.Raised(worker=name):
                self._raised[name] = message
                worker = self._placed[name][0].worker
                failure = self._failure(name, code=1)
                if not failure.is_secondary:
                    self._own_errors.add(name)
                self._feed(ev.WorkerFailed(slot=worker.slot, nonce=worker.nonce, failure=failure))
            case ch.Exited(worker=name, code=code):
                self._exited(name, code)
            case None:
                self._pool_ended()

    def _exited(self, name: str, code: int) -> None:
        failure = self._failure(name, code) if code != 0 else None
        placement, _, _ = self._placed.pop(name)
        self._raised.pop(name, None)
        self._own_errors.discard(name)
        worker = placement.worker
        self._feed(
            ev.WorkerExited(slot=worker.slot, nonce=worker.nonce, code=code, failure=failure)
        )

    def _start_failed(self, name: str, why: str) -> None:
        placement, generation, _ = self._placed[name]
        self._raised[name] = ch.Raised(
            worker=name,
            exception=why,
            where=f"start of {self._spec.entry}",
            traceback=why,
            has_group=False,
        )
        log.error("worker.not_started", rank=placement.rank, generation=generation, why=why)
        self._exited(name, 127)

    def pool_failure(self, why: str) -> Failure:
        """Say for this node that no worker can be started on it at all."""
        return Failure(
            node=self._node,
            incarnation=self._incarnation,
            host=self._host,
            generation=Generation(0),
            rank=Rank(0),
            local_rank=0,
            slot=Slot(0),
            nonce=Nonce(0),
            exception=why,
        )

    def _failure(self, name: str, code: int) -> Failure:
        placement, generation, files = self._placed[name]
        told = tell(self._raised.get(name), files.error, files.err)
        return Failure(
            node=self._node,
            incarnation=self._incarnation,
            host=self._host,
            generation=generation,
            rank=placement.rank,
            local_rank=placement.local_rank,
            slot=placement.worker.slot,
            nonce=placement.worker.nonce,
            exit_code=code if code >= 0 else None,
            signal=signal_name(code),
            exception=told.exception,
            where=told.where,
            traceback=told.traceback,
            log_path=str(files.err),
            is_secondary=is_echo(told) and code not in (-9, -15),
            has_group=told.has_group,
        )

    def _pool_ended(self) -> None:
        """Without its guardian no worker lives on: report all as killed, begin anew."""
        self._is_pool_ready = self._is_pool_listening = False
        self._feed(ev.PoolChanged(is_ready=False))
        self._feed(ev.StoresChanged(stores=()))
        self._pools.discard(self._pool.process.pid)
        end_orphans(self._pools)
        for name in list(self._placed):
            self._exited(name, -9)
        self._used.clear()
        self._broke("")

    def renew(self) -> None:
        """Start another pool after one ended."""
        self._pool.close(1.0)
        self._pool = self._new_pool()

    def _keep_stores(self) -> None:
        self._pool.tell(
            ch.KeepStores(
                count=FRESH_STORES,
                host=self._address,
                used=tuple(self._used[-1:]),
                close=tuple(self._used[:-1]),
            )
        )
        self._used = self._used[-1:]


def _name(generation: Generation, placement: Placement) -> str:
    return f"{generation}.{placement.worker.slot}.{placement.worker.nonce}"

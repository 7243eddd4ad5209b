"""One simulated machine: its pool of workers, its stores, the lives of its agent."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from elasticd.records.ids import Generation, Life, NodeId, Nonce, Rank, Slot
from elasticd.records.member import StoreAddress
from elasticd.records.world import Placement, World
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from tests.sim.agent import Agent
from tests.sim.in_process import InProcess
from tests.sim.network import Link
from tests.sim.trainee import Order, Trainee
from tests.sim.worker import Worker

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

__all__ = ["START_DELAY_S", "Node"]

FRESH_STORES = 2
START_DELAY_S = (0.02, 0.1)


class Node:
    def __init__(
        self, sim: "Simulation", name: NodeId, slots: int, *, lives_before: int = 0
    ) -> None:
        self.sim = sim
        self.name = name
        self.slots = tuple(Slot(i) for i in range(slots))
        self.link = Link(sim.clock, sim.rng, sim.etcd, sim.weather)
        self.agent: Agent | None = None
        self.is_off = False
        self.is_lost = False
        """It never comes back."""
        self.start_delay_s = START_DELAY_S
        self.pool_delay_s = (0.1, 1.0)
        self.stop_code: int | None = None
        """How workers exit on SIGTERM; None: as it comes."""
        self.is_stubborn = False
        """Workers take all the grace that they are given."""
        self.may_join: Callable[[], bool] = lambda: True
        """False where the job has to wait for slots (`tests.sim.shared`)."""
        self.is_poisoned = False
        """Workers cannot be started here."""
        self._lives = lives_before
        self._port = 20_000 + 1000 * lives_before
        self.stores: tuple[StoreAddress, ...] = ()
        self.workers: dict[Slot, Worker] = {}

    # --- the agent's lives

    def start_agent(self) -> None:
        if self.agent is not None or self.is_lost:
            return
        self.is_off = False
        self._lives += 1
        self.stores = ()
        for _ in range(FRESH_STORES):
            self._refill()
        self.agent = Agent(self, Life(f"{self.name}-{self._lives}"))
        self.sim.agent_born(self.agent)

    def kill_agent(self, *, is_power_off: bool = False) -> None:
        """SIGKILL of the agent: its workers go with it; power off: without a word."""
        agent = self.agent
        if agent is None:
            return
        agent.died()
        self.agent_ended(agent, is_silent=is_power_off)
        self.is_off = is_power_off

        def orphans_end() -> None:
            for worker in list(self.workers.values()):
                if worker.agent is agent:
                    self._reaped(worker, -9, is_loud=not is_power_off)

        self.sim.clock.after(self.sim.rng.uniform(0.0001, 0.0009), orphans_end)

    def agent_ended(self, agent: Agent, *, is_silent: bool = False) -> None:
        agent.is_alive = False
        if self.agent is agent:
            self.agent = None
        if not is_silent:
            self.sim.agent_gone(agent)

    def warm_up(self, agent: Agent) -> None:
        """The pool imports torch, then says that it is ready."""
        me = agent.incarnation

        def ready() -> None:
            if agent.incarnation == me:
                agent.post(ev.PoolChanged(is_ready=True))

        self.sim.clock.after(self.sim.rng.uniform(*self.pool_delay_s), ready)

    # --- stores

    def _refill(self) -> None:
        self._port += 1
        self.stores = (*self.stores, StoreAddress(host=self.name, port=self._port))

    def use_store(self, store: StoreAddress) -> None:
        assert store in self.stores, f"{store} was used before"
        self.stores = tuple(s for s in self.stores if s != store)

        def replaced() -> None:
            self._refill()
            if self.agent is not None:
                self.agent.post(ev.StoresChanged(stores=self.stores))

        self.sim.clock.after(self.sim.rng.uniform(0.005, 0.3), replaced)

    # --- workers

    def start_worker(self, agent: Agent, world: World, placement: Placement) -> None:
        worker = self._new_worker(agent, placement.worker.slot, placement.worker.nonce)
        worker.generation, worker.rank = world.generation, placement.rank
        worker.local_rank = placement.local_rank
        self._launch(world, worker)

    def _new_worker(self, agent: Agent, slot: Slot, nonce: Nonce) -> Worker:
        assert agent.incarnation is not None
        job = self.sim.training
        kind = partial(Trainee, job=job) if isinstance(job, InProcess) else Worker
        return kind(
            agent=agent,
            node=self.name,
            incarnation=agent.incarnation,
            slot=slot,
            nonce=nonce,
            generation=Generation(0),
            rank=Rank(0),
            local_rank=0,
        )

    def _launch(self, world: World | None, worker: Worker) -> None:
        self.sim.history.started(worker, self.workers.get(worker.slot))
        self.workers[worker.slot] = worker
        job = self.sim.training
        if isinstance(job, InProcess):
            job.joined(worker)
        elif world is not None:
            job.joined(world, worker)

        def up() -> None:
            if self.is_poisoned:
                self._reaped(worker, -9, failure=True)
            elif worker.is_alive and not worker.is_stopping:
                worker.started()
                self.sim.training.running(worker)

        self.sim.clock.after(self.sim.rng.uniform(*self.start_delay_s), up)

    def guide_worker(
        self, agent: Agent, effect: fx.PrepareWorker | fx.EnterWorld | fx.LeaveWorld
    ) -> None:
        """Prepare a worker, or tell one where to go: what it is told arrives in order."""
        job = self.sim.training
        assert isinstance(job, InProcess)
        job.steps.performed(agent, effect)
        if isinstance(effect, fx.PrepareWorker):
            self._launch(None, self._new_worker(agent, effect.slot, effect.nonce))
            return
        worker = self.workers.get(effect.slot)
        if not isinstance(worker, Trainee) or worker.nonce != effect.nonce:
            return
        order = Order(None, None, effect.at_step) if isinstance(effect, fx.LeaveWorld) else None
        if isinstance(effect, fx.EnterWorld):
            order = Order(effect.world, effect.placement, effect.world.at_step)
            worker.generation, worker.rank = effect.world.generation, effect.placement.rank
            worker.local_rank = effect.placement.local_rank
        assert order is not None
        self.sim.clock.after(0.0005, lambda: worker.receive(order))

    def stop_worker(self, slot: Slot, nonce: int, grace_s: float) -> None:
        """SIGTERM; most end soon, some with 0, some only by the SIGKILL after the grace."""
        worker = self.workers.get(slot)
        if worker is None or worker.nonce != nonce or worker.is_stopping:
            return
        worker.is_stopping = True
        luck = self.sim.rng.random()
        delay_s = (
            grace_s
            if luck < 0.1 or self.is_stubborn
            else self.sim.rng.uniform(0.0, min(0.3, grace_s))
        )
        code = -9 if luck < 0.1 else 0 if luck < 0.25 else -15
        code = code if self.stop_code is None else self.stop_code
        self.sim.clock.after(delay_s, lambda: self._reaped(worker, code))

    def kill_worker(self, worker: Worker) -> None:
        """Somebody's SIGKILL."""
        if self.sim.is_kill_told_early and worker.is_running and not worker.is_stopping:
            self.sim.training.raises(worker, None)
            return
        self._reaped(worker, -9, failure=not worker.is_stopping)

    def kill_workers(self, agent: Agent) -> None:
        """The pool's own limit: workers without etcd end."""
        for worker in list(self.workers.values()):
            if worker.agent is agent and worker.is_alive:
                self.kill_worker(worker)

    def take_over(self, agent: Agent) -> ev.WorkersKept | None:
        """Workers that an earlier incarnation of this agent left, waiting for a world."""
        kept = [w for w in self.workers.values() if isinstance(w, Trainee) and w.is_alive]
        kept = [w for w in kept if w.agent is agent]
        for worker in kept:
            assert agent.incarnation is not None
            worker.job.steps.renamed(worker, agent.incarnation)
        if not kept:
            return None
        return ev.WorkersKept(
            workers=tuple((worker.slot, worker.nonce) for worker in kept),
            with_state=tuple(worker.slot for worker in kept if worker.has_state),
        )

    def end_pool(self, agent: Agent) -> None:
        """It goes with the membership, and with it whoever waits there for a world."""
        for worker in list(self.workers.values()):
            if isinstance(worker, Trainee) and worker.agent is agent and worker.is_alive:
                self._reaped(worker, -9)

    def _reaped(
        self, worker: Worker, code: int, *, failure: bool = False, is_loud: bool = True
    ) -> None:
        worker.ended(code, worker.failure(None) if failure else None, is_loud=is_loud)
        self.gone(worker)

    def gone(self, worker: Worker) -> None:
        if self.workers.get(worker.slot) is worker and not worker.is_alive:
            del self.workers[worker.slot]

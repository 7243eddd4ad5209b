"""Several jobs on the same nodes: each a simulation of its own, the nodes' slots allotted for real.

Each node does what its agent does: it looks at its claims when something about them changed, gives
slots to those whom `allot` names, and watches how the rivals stand while there are any.
"""

from collections import deque
from random import Random

from elasticd.records.ids import Generation, JobName, NodeId
from elasticd.records.job import JobSpec, JobStatus, Want, is_stuck, lacks_nodes
from elasticd.records.reason import Reason
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.own_record import is_working
from elasticd.rendezvous.state import JobState
from elasticd_agent.node.slot_allotment import SlotClaim, allot, claim_of, rivals
from tests.sim.agent import Agent
from tests.sim.clock import Clock
from tests.sim.etcd import Changes, Item, Watch
from tests.sim.history import Broken
from tests.sim.in_process import Script
from tests.sim.schedule import spec_of
from tests.sim.simulation import Simulation

__all__ = ["Shared"]

JOINS_MOST = 4
JOINS_WINDOW_S = 3.0
"""Faults of one node do not come so thick."""
SEEN_AFTER_S = 0.003
"""A node hears of a job that appeared or went away."""


class Job(Simulation):
    """One job's part of the cluster: what happens in it may concern the others."""

    def __init__(
        self,
        shared: "Shared",
        order: int,
        spec: JobSpec,
        work_s: float,
        script: Script | None,
    ) -> None:
        super().__init__(
            seed=shared.seed + order,
            spec=spec,
            slots=list(shared.slots),
            work_s=work_s,
            script=script,
            clock=shared.clock,
        )
        self.shared, self.order = shared, order
        self._known: dict[Agent, tuple[object, ...]] = {}
        self.etcd.on_put = self._put
        for node in self.nodes.values():
            node.pool_delay_s = (0.1, 0.3)
            node.may_join = lambda: shared.is_granting

    def _put(self, kind: str, name: str, item: Item, before: Item | None) -> None:
        self.history.put(kind, name, item, before)
        if self.is_over:
            self.clock.after(SEEN_AFTER_S, self.shared.wake_all)

    def decided(self, agent: Agent, event: ev.Event, effects: tuple[fx.Effect, ...]) -> None:
        super().decided(agent, event, effects)
        assert agent.state is not None
        state = agent.state
        standing = state.stage, is_working(state), state.next_generation, state.slots
        if self._known.get(agent) != standing:
            self._known[agent] = standing
            self.shared.wake(agent.node.name)

    def retired(self, agent: Agent, effect: fx.Retire) -> None:
        super().retired(agent, effect)
        self._known.pop(agent, None)
        self.shared.wake(agent.node.name)


class Shared:
    """A cluster with several jobs."""

    def __init__(self, slots: list[int], seed: int = 0) -> None:
        self.slots, self.seed = slots, seed
        self.clock = Clock()
        self.rng = Random(seed)
        self.jobs: dict[JobName, Job] = {}
        self.is_granting = False
        self.joins: dict[tuple[NodeId, JobName], deque[float]] = {}
        self._due: set[NodeId] = set()
        self._demands: dict[NodeId, dict[JobName, _Demand]] = {}

    def submit(
        self, name: str, *, work_s: float = 1e9, script: Script | None = None, **values: object
    ) -> Job:
        """A new job, and the nodes hear of it."""
        job = JobName(name)
        spec = spec_of(name=job, **{"workers_per_node": 1, **values})
        self.jobs[job] = sim = Job(self, len(self.jobs), spec, work_s, script)
        sim.submit()
        for node in sim.nodes.values():
            node.start_agent()
        self.clock.after(SEEN_AFTER_S, self.wake_all)
        return sim

    def run(self, for_s: float) -> None:
        end_s = self.clock.now_s + for_s
        while self.clock.step(end_s):
            pass

    def nodes_of(self, name: str) -> set[NodeId]:
        """Where the job's standing world is."""
        job = self.jobs[JobName(name)]
        if job.is_over or not job.history.worlds:
            return set()
        return {node.node for node in job.history.worlds[-1].nodes}

    # --- what a node's agent does

    def wake_all(self) -> None:
        for index in range(len(self.slots)):
            self.wake(NodeId(f"node-{index}"))

    def wake(self, name: NodeId) -> None:
        """Look at the claims once what happens now is over."""
        if name in self._due:
            return
        self._due.add(name)
        self.clock.after(0.0, lambda: self._update_claims(name))

    def _update_claims(self, name: NodeId) -> None:
        self._due.discard(name)
        slots = self.slots[int(name.removeprefix("node-"))]
        here = {
            job: agent
            for job, sim in self.jobs.items()
            if not sim.is_over and (agent := sim.nodes[name].agent) is not None
        }
        claims = [self._claim(name, job, agent.state) for job, agent in here.items()]
        self._watch(name, rivals(claims, slots))
        claims = [self._claim(name, job, agent.state) for job, agent in here.items()]
        for job, given in allot(claims, slots).items():
            agent = here[job]
            busy = {
                slot
                for other, sim in self.jobs.items()
                if other != job and (held := sim.nodes[name].agent) is not None and held.state
                for slot in held.state.slots
            }
            if not busy.isdisjoint(given):
                continue  # Its retirement brings us here again.
            if agent.state is None and given and agent.has_lease:
                self._join(name, job, agent, given)
            elif agent.state is not None and not given:
                agent.post(ev.LeaveRequested(reason=Reason.NODE_LEFT))
            elif agent.state is not None and given != agent.state.slots:
                agent.post(ev.SlotsGranted(slots=given))
        if any(not agent.has_lease for agent in here.values()):
            self.clock.after(0.1, lambda: self.wake(name))

    def _claim(self, name: NodeId, job: JobName, state: JobState | None) -> SlotClaim:
        demand = self._demands.get(name, {}).get(job)
        lacks = demand.lacks_nodes if demand is not None else None
        generation = demand.generation if demand is not None else Generation(0)
        sim = self.jobs[job]
        return claim_of(
            sim.spec,
            sim.order,
            state,
            lacks_nodes=lacks,
            is_stuck=demand is not None and demand.is_stuck,
            generation=generation,
        )

    def _join(self, name: NodeId, job: JobName, agent: Agent, given: tuple[object, ...]) -> None:
        times = self.joins.setdefault((name, job), deque())
        times.append(self.clock.now_s)
        while times[0] < self.clock.now_s - JOINS_WINDOW_S:
            times.popleft()
        if len(times) > JOINS_MOST:
            raise Broken(f"I12: the allotment of {name} changes its mind: {job} joined {times!r}")
        agent.node.slots = given  # type: ignore[assignment]
        self.is_granting = True
        agent.join()
        self.is_granting = False

    def _watch(self, name: NodeId, jobs: frozenset[JobName]) -> None:
        known = self._demands.setdefault(name, {})
        for job in [job for job in known if job not in jobs]:
            known.pop(job).close()
        for job in jobs:
            if job not in known:
                known[job] = _Demand(self, name, self.jobs[job])


class _Demand:
    """What `elasticd_agent.node.demand` knows of a rival, as late as watches tell it."""

    def __init__(self, shared: Shared, name: NodeId, sim: Job) -> None:
        self.lacks_nodes: bool | None = None
        self.is_stuck = False
        self.generation = Generation(0)
        self._shared, self._name, self._sim = shared, name, sim
        self._status: JobStatus | None = None
        self._wants: dict[str, Want] | None = None
        link = sim.nodes[name].link
        self._watches: list[Watch] = [
            sim.etcd.watch("status", frozenset([""]), self._status_seen, link),
            sim.etcd.watch("want", None, self._wants_seen, link),
        ]

    def close(self) -> None:
        for watch in self._watches:
            self._sim.etcd.close(watch)

    def _status_seen(self, is_list: bool, revision: int, changes: Changes) -> None:
        for _, item in changes:
            if item is not None:
                assert isinstance(item.value, JobStatus)
                self._status = item.value
        self._judge()

    def _wants_seen(self, is_list: bool, revision: int, changes: Changes) -> None:
        self._wants = dict(self._wants or {})
        for key, item in changes:
            if item is not None:
                assert isinstance(item.value, Want)
                self._wants[key] = item.value
        self._judge()

    def _judge(self) -> None:
        if self._status is None or self._wants is None:
            return
        before = self.lacks_nodes, self.is_stuck
        self.generation, self.is_stuck = self._status.generation, is_stuck(self._status)
        self.lacks_nodes = lacks_nodes(self._sim.spec, self._wants, self._status)
        if before != (self.lacks_nodes, self.is_stuck):
            self._shared.wake(self._name)

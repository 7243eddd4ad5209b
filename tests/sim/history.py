"""What must never be seen, whatever happens: checked on the whole history, as it happens.

Stronger than the shipped `invariant.check`, which sees one decision of one agent: this one sees
all machines and all that etcd ever held.
"""

from collections import deque
from typing import TYPE_CHECKING

from elasticd.records.ids import Generation
from elasticd.records.job import Budget, JobStatus
from elasticd.records.member import Member
from elasticd.records.reason import Cause, Phase
from elasticd.records.world import World, WorldNode
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from tests.sim.etcd import Item
from tests.sim.group import Group
from tests.sim.in_process import InProcess
from tests.sim.trainee import Trainee
from tests.sim.training import Run
from tests.sim.worker import Worker

if TYPE_CHECKING:
    from tests.sim.agent import Agent
    from tests.sim.simulation import Simulation

__all__ = ["Broken", "History"]

DECISIONS_PER_S = 500
TICKS_PER_S = 60


class Broken(AssertionError):
    """The history shows what may not be."""


class History:
    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim
        self.worlds: list[World] = []
        self.statuses: list[JobStatus] = []
        self.named: dict[tuple[object, ...], Generation] = {}
        self.writes: dict[tuple[str, str], int] = {}
        """Puts per kind and name."""
        self.joined_writes: dict[tuple[str, str], int] = {}
        """The same, up to the first world."""
        self._paces: dict[Agent, tuple[deque[float], deque[float]]] = {}

    # --- what etcd was made to hold

    def put(self, kind: str, name: str, item: Item, before: Item | None) -> None:
        self.writes[(kind, name)] = self.writes.get((kind, name), 0) + 1
        if isinstance(item.value, World):
            self._sim.say(f"etcd     world {item.value.generation} {item.value.reason}")
            self._world_put(item.value)
        elif isinstance(item.value, JobStatus):
            self._sim.say(f"etcd     status {item.value.phase} {item.value.message}")
            self._status_put(item.value)

    def _world_put(self, world: World) -> None:
        previous = self.worlds[-1] if self.worlds else None
        expected = previous.generation + 1 if previous is not None else 1
        is_next = world.generation == expected
        if self._sim.etcd.history:  # It may know less than the agents, and they need not know all.
            is_next = world.generation >= expected
        self._rule(is_next, "rule 1: generations go up by one", world)
        self._rule(not self._sim.is_over, "rule 6: no world after the end", world)
        spec = self._sim.spec
        count = len(world.nodes)
        stays = sum(not self._is_giver(previous, world, node) for node in world.nodes)
        self._rule(spec.min_nodes <= count and stays <= spec.max_nodes, "rule 2: size", world)
        next_rank = 0
        for node in world.nodes:
            self._rule(node.first_rank == next_rank, "rule 3: contiguous ranks", world)
            next_rank += len(node.workers)
            item = self._sim.etcd.get("member", node.node)
            # A line that loses single events is worse than what the store promises.
            is_sound = not self._sim.weather.lost_event
            if item is not None and is_sound and item.mod <= world.planned_revision:
                member = item.value
                assert isinstance(member, Member)
                is_ready = member.incarnation == node.incarnation and bool(member.slots)
                is_own = node.node == world.proposer
                self._rule(is_ready or is_own, "rule 2: no ready member", (node, member))
            for worker in node.workers:
                key = (node.node, node.incarnation, worker.slot, worker.nonce)
                is_again = key in self.named and not self._is_in_process
                self._rule(not is_again, "rule 1: a worker in two worlds", (key, world))
                self.named[key] = world.generation
            if previous is not None:
                is_out = previous.is_excluded(node.node, node.incarnation)
                self._rule(not is_out, "rule 6: an excluded incarnation is back", world)
        if previous is not None:
            self._succession(previous, world)
        if isinstance(self._sim.training, InProcess):
            status = self.statuses[-1] if self.statuses else None
            was_ended = status is not None and status.phase is Phase.WAITING
            self._sim.training.steps.world_put(world, previous, was_ended=was_ended)
        if not self.worlds:
            self.joined_writes = dict(self.writes)
        self.worlds.append(world)

    def _is_giver(self, previous: World | None, world: World, node: WorldNode) -> bool:
        """It was in the world before, asked to leave, and hands over the state."""
        item = self._sim.etcd.get("member", node.node)
        if previous is None or not previous.has(node.node, node.incarnation) or item is None:
            return False
        assert isinstance(item.value, Member)
        # Its own record goes there with the world.
        return item.value.leaving is not None or node.node == world.proposer

    def _succession(self, previous: World, world: World) -> None:
        shared = [n for n in world.nodes if previous.has(n.node, n.incarnation)]
        self._rule(world.store != previous.store, "a store is used twice", world)
        if shared:
            first = world.nodes[0]
            is_kept = previous.has(first.node, first.incarnation)
            self._rule(is_kept, "rule 3: rank 0 stays with a survivor", world)
            return
        for run in self._sim.training.runs.values():
            self._rule(not run.is_whole, "rule 4: an old world still runs", (run.world, world))

    def _status_put(self, status: JobStatus) -> None:
        before = self.statuses[-1] if self.statuses else None
        self.statuses.append(status)
        if before is None:
            return
        self._rule(not before.phase.is_final, "rule 6: a final status is rewritten", status)
        is_next = status.generation >= before.generation or self._sim.etcd.history > 0
        self._rule(is_next, "rule 1: status goes back", status)
        limits = self._sim.spec.limits
        charged = 0
        for cause in Cause:
            limit, used = int(getattr(limits, cause.value)), status.budget.used(cause)
            self._rule(limit < 0 or used <= limit, "I11: over the restart budget", status)
            charged += max(0, used - before.budget.used(cause))
        if before.budget != status.budget and status.budget == Budget():
            charged = 0
        self._rule(charged <= 1, "I11: one change is charged twice", (before, status))
        if status.phase is Phase.SUCCEEDED:
            world = self.worlds[-1]
            job = self._sim.training
            if isinstance(job, InProcess):
                job.steps.succeeded(world)
                return
            done = job.finished.get(world.generation, set())
            self._rule(len(done) == world.size, "rule 9: not all ranks exited with 0", done)

    # --- what the processes do

    def started(self, worker: Worker, before: Worker | None) -> None:
        self._rule(before is None or not before.is_alive, "two workers in one slot", worker)
        if worker.generation == 0:
            return  # It is being prepared.
        key = (worker.node, worker.incarnation, worker.slot, worker.nonce)
        self._rule(self.named.get(key) == worker.generation, "a worker of no world", worker)

    @property
    def _is_in_process(self) -> bool:
        return isinstance(self._sim.training, InProcess)

    def completed(self, run: Run | Group) -> None:
        """I1: two worlds that could both make progress."""
        for generation, other in self._sim.training.runs.items():
            if other is run:
                continue
            self._rule(
                not other.is_whole,
                "I1: two worlds train at the same time",
                (generation, run.world.generation),
            )

    def decided(self, agent: "Agent", event: ev.Event, effects: tuple[fx.Effect, ...]) -> None:
        """Nobody spins: a bounded number of decisions and ticks in any second."""
        decisions, ticks = self._paces.setdefault(agent, (deque(), deque()))
        now_s = self._sim.clock.now_s
        if isinstance(event, ev.Ticked):
            self._paced(ticks, now_s, TICKS_PER_S, "spins on ticks", agent)
        limit = DECISIONS_PER_S + 40 * len(self._sim.nodes)
        self._paced(decisions, now_s, limit, "decides without end", agent)

    def _paced(
        self, times: deque[float], now_s: float, limit: int, what: str, agent: "Agent"
    ) -> None:
        times.append(now_s)
        while times[0] < now_s - 1.0:
            times.popleft()
        if len(times) > limit:
            self._rule(False, what, (agent.node.name, agent.state))

    def retired(self, agent: "Agent", effect: fx.Retire) -> None:
        own = [w for w in agent.node.workers.values() if w.is_alive and w.agent is agent]
        # Those that wait for a world go on with the next incarnation, or end with the pool.
        own = [w for w in own if not (isinstance(w, Trainee) and w.group is None)]
        self._rule(not own, "retires while workers live", own)

    def _rule(self, holds: bool, what: str, evidence: object) -> None:
        if not holds:
            text = f"{what}: {evidence!r}"
            raise Broken(text if len(text) < 4000 else text[:4000])

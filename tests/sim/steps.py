"""What must hold for the steps of an in-process job, on the history of all its processes.

I1: steps are applied in one generation at a time, in order, and none that all ranks of a world
applied is done again or lost while a process that has it lives.
"""

from typing import TYPE_CHECKING

from elasticd.records.ids import Generation, Incarnation
from elasticd.records.world import World
from elasticd.rendezvous import effect as fx

if TYPE_CHECKING:
    from tests.sim.agent import Agent
    from tests.sim.group import Group
    from tests.sim.in_process import InProcess
    from tests.sim.trainee import Trainee

__all__ = ["Steps", "StepsBroken"]


class StepsBroken(AssertionError):
    """The steps show what may not be."""


class Steps:
    def __init__(self, job: "InProcess") -> None:
        self.newest = 0
        """Applied by anybody in the line of history that goes on."""
        self.lost = 0
        """Applied by somebody and done again, in the whole run."""
        self.restarts = 0
        """Worlds that began from nothing after the first one."""
        self.applied_in: dict[Generation, int] = {}
        self.told: dict[tuple[object, ...], Generation] = {}
        self.ended: set[tuple[object, ...]] = set()
        """Processes that finished and exited with 0."""
        self.formed_in: dict[tuple[object, ...], Generation] = {}
        """Processes that had the job's state, and the last group that they were part of."""
        self._formed = Generation(0)
        self._job = job
        self._generation = Generation(0)
        self._has_begun = False

    def formed(self, group: "Group") -> int:
        """All ranks meet: the step that they go on from."""
        generation = group.world.generation
        _rule(generation > self._generation, "I1: formed after a later one", group.world)
        step = max((w.step for w in group.workers if w.has_state), default=0)
        if self._has_begun and not any(w.has_state for w in group.workers):
            self.restarts += 1
        if step < self.newest:
            witnesses = [
                w
                for w in self._job.workers
                if w.has_state
                and w.step > step
                and w.is_able
                and w not in group.workers
                # Its agent may be on its way to end it, or cut off: no world can have it.
                and self._is_within_reach(w)
            ]
            _rule(not witnesses, f"I1: step {step} again, lost though it lives", witnesses)
            self.lost += self.newest - step
        self._has_begun = True
        self.newest = step
        self.formed_in.update({w.key: generation for w in group.workers})
        self._formed = generation
        return step

    def _is_within_reach(self, worker: "Trainee") -> bool:
        agent = worker.agent
        if worker.is_stopping or worker.has_trained or not agent.is_alive or agent.is_stopped:
            return False
        state = agent.state
        if agent.node.link.is_cut_from_etcd or state is None or state.is_fenced:
            return False
        return state.leaving is None and state.stage.value == "member"

    def applied(self, worker: "Trainee", group: "Group") -> None:
        generation = group.world.generation
        _rule(generation >= self._generation, "I1: a step in an old generation", worker)
        self._generation = generation
        _rule(worker.step <= self.newest + 1, "I1: a step is left out", worker)
        self.newest = max(self.newest, worker.step)
        self.applied_in[generation] = self.applied_in.get(generation, 0) + 1

    def exited_0(self, worker: "Trainee") -> None:
        self.ended.add(worker.key)

    def trained(self, worker: "Trainee") -> None:
        _rule(worker.step == self._job.total, "finished before the end", worker)

    def renamed(self, worker: "Trainee", incarnation: Incarnation) -> None:
        """Another incarnation of its agent took it over."""
        before = worker.key
        worker.incarnation = incarnation
        if before in self.formed_in:
            self.formed_in[worker.key] = self.formed_in[before]

    def succeeded(self, world: World) -> None:
        """A world may have been agreed on when its ranks had finished in the one before.

        Who had left that one in good order, and was to come back, owes nothing.
        """
        named = {(n.node, n.incarnation, w.slot, w.nonce) for n in world.nodes for w in n.workers}
        left = {key for key in named - self.ended if self.formed_in.get(key) == self._formed}
        _rule(bool(named & self.ended) and not left, "rule 9: not all exited with 0", (world, left))

    def world_put(self, world: World, previous: World | None, *, was_ended: bool) -> None:
        """A planned change does not replace a world before it made a step."""
        if previous is None or was_ended or not world.reason.is_planned:
            return
        if world.at_step is not None:
            has_stepped = self.applied_in.get(previous.generation, 0) > 0
            _rule(has_stepped, "a world is replaced before its first step", world)

    def performed(self, agent: "Agent", effect: fx.Effect) -> None:
        """An order on its way to a worker."""
        match effect:
            case fx.EnterWorld(slot=slot, nonce=nonce, world=world):
                key = (agent.incarnation, slot, nonce)
                before = self.told.get(key, Generation(0))
                _rule(world.generation > before, "a process is sent back", effect)
                self.told[key] = world.generation
            case fx.PrepareWorker():
                self._prepared(agent, effect)

    def _prepared(self, agent: "Agent", effect: fx.PrepareWorker) -> None:
        state = agent.state
        world = state.world if state is not None else None
        if state is None or world is None or state.is_world_ended:
            return
        group = self._job.runs.get(world.generation)
        node = world.node(agent.node.name)
        if node is None or group is None:
            return
        named = {(w.slot, w.nonce) for w in node.workers}
        late = [
            w
            for w in self._job.workers
            if w.agent is agent
            and w.is_able
            and (w.slot, w.nonce) in named
            and w.stepped != world.generation
            and not w.has_trained
            and w.incarnation == node.incarnation
        ]
        _rule(not late, "prepares a process before its survivors stepped", (effect, late))


def _rule(holds: bool, what: str, evidence: object) -> None:
    if not holds:
        text = f"{what}: {evidence!r}"
        raise StepsBroken(text[:3000])

"""One generation's process group: forms when all ranks are there, then steps in lockstep."""

from typing import TYPE_CHECKING

from elasticd.records.ids import NodeId
from elasticd.records.world import World
from tests.sim.trainee import Trainee

if TYPE_CHECKING:
    from tests.sim.in_process import InProcess

__all__ = ["FORM_TIMEOUT_S", "Group"]

FORM_TIMEOUT_S = 3.0
LINK_SILENCE_S = 4.0
"""What was sent is not acknowledged for so long: the connections end."""


class Group:
    """Looks like a `Run` to those who ask whether a world trains."""

    def __init__(self, job: "InProcess", world: World) -> None:
        self.world = world
        self.workers: set[Trainee] = set()
        """Entered and not left."""
        self.since_s: float | None = None
        """Since when it is formed and whole."""
        self.was_formed = False
        self.has_stepped = False
        self.last: int | None = None
        """The step after which all leave for a planned change."""
        self._named: dict[Trainee, int] = {}
        self._job = job
        self._keys = {
            (n.node, n.incarnation, w.slot, w.nonce) for n in world.nodes for w in n.workers
        }
        self._ready: set[Trainee] = set()
        self._done: set[Trainee] = set()
        self._is_forming = False
        self._silent_s = 0.0

    @property
    def ranked(self) -> list[Trainee]:
        return sorted(self.workers, key=lambda w: w.rank)

    @property
    def is_whole(self) -> bool:
        """Nothing but an order keeps it from training on."""
        return (
            self.was_formed
            and len(self.workers) == self.world.size
            and all(w.is_able and w.agent.is_alive for w in self.workers)
        )

    @property
    def is_reachable(self) -> bool:
        is_silent = any(n.node in self._job.silent for n in self.world.nodes)
        return not (is_silent and len(self.world.nodes) > 1)

    def is_last(self, worker: Trainee) -> bool:
        """It has the highest rank here; its own number may be that of the next world already."""
        node = self.world.nodes[-1]
        last = node.workers[-1]
        return worker.key == (node.node, node.incarnation, last.slot, last.nonce)

    def has(self, worker: Trainee) -> bool:
        return worker.key in self._keys

    # --- forming

    def come(self, worker: Trainee, *, is_patient: bool) -> None:
        """Patient: it is new to a world that begins when the others have made a certain step."""
        assert worker.key in self._keys, "entered a world that does not name it"
        self.workers.add(worker)
        if not is_patient:
            self._job.soon(FORM_TIMEOUT_S, FORM_TIMEOUT_S + 0.2, lambda: self._timed_out(worker))
        if len(self.workers) == self.world.size and not self.was_formed:
            self._job.soon(0.005, 0.05, self._meet)

    def _timed_out(self, worker: Trainee) -> None:
        if not worker.is_training and worker in self.workers:
            worker.broke(self, unreachable=self._unreachable(worker))

    def _unreachable(self, worker: Trainee) -> tuple[NodeId, ...]:
        others = {node.node for node in self.world.nodes} - {worker.node}
        silent = self._job.silent
        return tuple(sorted(others if worker.node in silent else others & silent))

    def _is_complete(self) -> bool:
        is_here = len(self.workers) == self.world.size and all(w.is_able for w in self.workers)
        return is_here and self.is_reachable

    def _meet(self) -> None:
        """Connect, compare positions, copy."""
        if self.was_formed or self._is_forming or not self.workers:
            return
        if not self._is_complete():
            self._job.after(0.1, self._meet)
            return
        self._is_forming = True
        source = max((w.step for w in self.workers if w.has_state), default=None)
        is_copy = any(not w.has_state or w.step != source for w in self.workers)

        def copied() -> None:
            self._is_forming = False
            if self.was_formed or not self.workers:
                return
            if not self._is_complete():
                self._job.after(0.1, self._meet)
                return
            self.was_formed = True
            self.since_s = self._job.now_s
            step = self._job.steps.formed(self)
            self._job.on_complete(self)
            for worker in self.ranked:
                if worker.group is self:
                    worker.formed(step)

        self._job.soon(0.001, 0.1 if is_copy else 0.005, copied)

    # --- stepping

    def ready(self, worker: Trainee) -> None:
        """It waits in the next step's collective."""
        self._ready.add(worker)
        if len(self._ready) == self.world.size:
            self._job.after(self._job.step_s, self._reduce)

    def is_ready(self, worker: Trainee) -> bool:
        return worker in self._ready

    def _reduce(self) -> None:
        if len(self._ready) < self.world.size or not self.is_whole:
            return
        if not self.is_reachable:
            self._silent_s += 0.1
            if self._silent_s < LINK_SILENCE_S:
                self._job.after(0.1, self._reduce)
                return
            for worker in self.ranked:
                self._job.soon(0.0, 0.1, lambda w=worker: w.broke(self))  # type: ignore[misc]
            return
        self._silent_s = 0.0
        workers, self._ready = self.ranked, set()
        for worker in workers:
            worker.is_committing = True
            self._job.soon(0.0, 0.003, lambda w=worker: self._apply(w))  # type: ignore[misc]

    def _apply(self, worker: Trainee) -> None:
        if worker.is_able and worker.group is self:
            self.has_stepped = True
            worker.is_committing = False
            worker.apply()

    # --- leaving for a planned change

    def named(self, worker: Trainee) -> None:
        """It told the others after which step it can leave."""
        if not worker.is_able or worker.group is not self or worker.least is None:
            return
        if not self.is_reachable:
            self._job.after(0.1, lambda: self.named(worker))
            return
        self._named[worker] = worker.least
        if len(self._named) == self.world.size and self.last is None:
            self._job.soon(0.0, 0.01, self._agreed)

    def _agreed(self) -> None:
        self.last = max(self._named.values())
        for worker in self.ranked:
            if worker.is_able and worker.is_waiting:
                worker.go_further()

    # --- ending

    def finished(self, worker: Trainee) -> None:
        """The end barrier."""
        self._done.add(worker)
        if len(self._done) == self.world.size:
            for other in sorted(self._done, key=lambda w: w.rank):
                self._job.soon(0.0, 0.02, lambda w=other: self._passed(w))  # type: ignore[misc]

    def _passed(self, worker: Trainee) -> None:
        if not worker.is_able or worker.group is not self:
            return
        if worker.is_due:
            worker.leave()
            return
        worker.has_trained, worker.is_training, worker.group = True, False, None
        self.workers.discard(worker)
        self.since_s = None
        self._job.trained(worker)

    def left(self, worker: Trainee, *, is_loud: bool = True) -> None:
        """It takes part no more: those who need it notice, unless nothing comes through."""
        self.workers.discard(worker)
        self._ready.discard(worker)
        self._done.discard(worker)
        self.since_s = None
        if not is_loud or worker.node in self._job.silent:
            return
        is_seen = self.was_formed or self._job.chance(0.5)
        if "nccl" in self._job.backend:
            return  # They wait on their devices and see nothing.
        for peer in self.ranked:
            if is_seen and peer not in self._done and peer.node not in self._job.silent:
                self._job.soon(0.001, 0.005, lambda p=peer: p.broke(self))  # type: ignore[misc]

"""The simulated job in in-process mode: the stand-in for `Training`, counted in steps."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from elasticd.records.ids import Generation, NodeId
from elasticd.records.member import Training
from elasticd.records.world import World
from elasticd.rendezvous import event as ev
from tests.sim.clock import Clock
from tests.sim.group import Group
from tests.sim.steps import Steps
from tests.sim.trainee import Trainee
from tests.sim.training import Bug
from tests.sim.worker import FREED_S, Raised, Worker

__all__ = ["InProcess", "Script"]


BAD_AFTER_STEPS = 3


@dataclass(frozen=True, slots=True)
class Script:
    """What the user's script is like."""

    steps: int = 40
    step_s: float = 0.05
    build_s: tuple[float, float] = (0.2, 1.0)
    """From a process's start to its call of `elasticd.run`."""
    epilogue_s: tuple[float, float] = (0.0, 0.15)
    """From the return of `elasticd.run` to exit 0."""
    raises_at: int | None = None
    """A step that the script cannot do; with `bug`, which says on which ranks."""
    bad_node: NodeId | None = None
    """Where every process raises after a few steps."""


class InProcess:
    def __init__(
        self, clock: Clock, rng: Random, script: Script, bug: Bug | None, timeout_s: float
    ) -> None:
        self.script, self.bug = script, bug
        self.total, self.step_s = script.steps, script.step_s
        self.progress_timeout_s = timeout_s
        self.silent: set[NodeId] = set()
        self.runs: dict[Generation, Group] = {}
        self.finished: dict[Generation, set[int]] = {}
        self.on_complete: Callable[[Group], None] = lambda group: None
        self.workers: dict[Trainee, None] = {}
        """All that live."""
        self.steps = Steps(self)
        self.pauses: dict[int, float] = {}
        """At which steps all ranks pause, and for how long."""
        self.backend = "gloo"
        self.word_delay_s = 0.0
        """How long the exception of a rank is on its way to its agent: its group has ended by
        then."""
        self._clock, self._rng = clock, rng

    # --- for its parts

    @property
    def now_s(self) -> float:
        return self._clock.now_s

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        self._clock.after(delay_s, call)

    def soon(self, least_s: float, most_s: float, call: Callable[[], None]) -> None:
        self._clock.after(self._rng.uniform(least_s, most_s), call)

    def chance(self, share: float) -> bool:
        return self._rng.random() < share

    def group_of(self, world: World) -> Group:
        if world.generation not in self.runs:
            self.runs[world.generation] = Group(self, world)
        return self.runs[world.generation]

    def is_first(self, worker: Trainee) -> bool:
        """The first attached one of its agent speaks for all of them."""
        ours = (w for w in self.workers if w.agent is worker.agent and w.is_attached)
        return next(ours, None) is worker

    def pause_s(self, step: int) -> float:
        return self.pauses.get(step, 0.0)

    def alive(self) -> Iterable[Worker]:
        return list(self.workers)

    # --- a process's life

    def joined(self, worker: Worker) -> None:
        assert isinstance(worker, Trainee)
        self.workers[worker] = None
        worker.on_end = self._ended

    def running(self, worker: Worker) -> None:
        """It is up: it imports, builds its model, and calls `elasticd.run`."""
        assert isinstance(worker, Trainee)
        if self.bug is not None and self.bug.after_s is None:
            self.soon(0.05, 0.2, lambda: self.raises(worker, Raised()))
            return
        self.soon(*self.script.build_s, worker.attach)

    def raises_at(self, worker: Trainee, group: Group) -> bool:
        """The script's own error at a certain step, or that of a machine."""
        if self.script.bad_node == worker.node and worker.sequence >= BAD_AFTER_STEPS:
            self._soon_raises(worker)
            return True
        if self.bug is None or self.bug.after_s is None or worker.step != self.script.raises_at:
            return False
        if not self.bug.everywhere and not group.is_last(worker):
            return False
        self._soon_raises(worker)
        return True

    def _soon_raises(self, worker: Trainee) -> None:
        worker.is_raising = True
        self.soon(0.0, 0.01, lambda: self.raises(worker, Raised()))

    def raises(self, worker: Worker, raised: Raised | None) -> None:
        """An exception, or (None) a kill: reported at once, reaped a little later."""
        assert isinstance(worker, Trainee)
        if not worker.is_alive or worker.has_raised:
            return
        worker.has_raised = True
        self._out(worker, is_loud=True)
        failure = worker.failure(raised)

        def told() -> None:
            if not worker.is_alive:
                return
            event = ev.WorkerFailed(slot=worker.slot, nonce=worker.nonce, failure=failure)
            worker.agent.post(event)
            code, most_s = (1, 0.05) if raised else (-9, FREED_S)
            self.soon(0.002, most_s, lambda: worker.ended(code, failure))

        if self.word_delay_s == 0.0 or raised is None:
            told()
        else:
            self.after(self.word_delay_s, told)

    def freeze(self, worker: Trainee) -> None:
        """SIGSTOP: its agent misses its heartbeat."""
        from dataclasses import replace

        worker.is_frozen = True

        def seen() -> None:
            if worker.is_alive:
                failure = replace(
                    worker.failure(None), is_hung=True, signal="SIGKILL", exception="frozen"
                )
                worker.agent.post(
                    ev.WorkerFailed(slot=worker.slot, nonce=worker.nonce, failure=failure)
                )

        self.soon(0.8, 1.3, seen)

    def trained(self, worker: Trainee) -> None:
        """`elasticd.run` returned; the script does what else it has to do, and ends."""
        self.steps.trained(worker)
        done = Training(steps=worker.step, epochs=0, samples=0, repeated=0, skipped=0)
        event = ev.WorkerFinished(slot=worker.slot, nonce=worker.nonce, training=done)
        worker.agent.post(event)
        generation, rank = worker.entered, worker.rank

        def ends() -> None:
            if worker.is_able and not worker.is_stopping:
                self.finished.setdefault(generation, set()).add(rank)
                self.steps.exited_0(worker)
                worker.ended(0, None)

        self.soon(*self.script.epilogue_s, ends)

    def _ended(self, worker: Worker, is_loud: bool, was_running: bool) -> None:
        assert isinstance(worker, Trainee)
        self.workers.pop(worker, None)
        self._out(worker, is_loud=is_loud)

    def _out(self, worker: Trainee, *, is_loud: bool) -> None:
        group, worker.group = worker.group, None
        worker.is_training = False
        if group is not None:
            group.left(worker, is_loud=is_loud)

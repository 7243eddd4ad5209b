"""What the workers of the simulated job do: train together, echo a death, finish."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from elasticd.records.ids import Generation, NodeId
from elasticd.records.world import World
from tests.sim.clock import Clock
from tests.sim.worker import FREED_S, Raised, Worker

__all__ = ["Bug", "Run", "Training"]


@dataclass(frozen=True, slots=True)
class Bug:
    """The script raises by itself: before it has a group, or a while after."""

    after_s: float | None = None
    """After the world is complete; None: before a group is formed."""
    everywhere: bool = True
    """On every rank; else on the last one."""


@dataclass(slots=True)
class Run:
    """The workers of one generation."""

    world: World
    workers: set[Worker] = field(default_factory=set)
    running: int = 0
    has_echoed: bool = False
    since_s: float | None = None
    """Since when all ranks run together."""

    @property
    def is_whole(self) -> bool:
        """No rank is missing: nothing but an order keeps it from training on.

        The workers of a dead agent are dead men walking; the pool ends them within a millisecond.
        """
        return len(self.workers) == self.world.size and all(
            w.agent.is_alive and not w.has_raised for w in self.workers
        )


class Training:
    """The whole job's progress: `work_s` seconds with all ranks of one world together."""

    def __init__(self, clock: Clock, rng: Random, work_s: float, bug: Bug | None) -> None:
        self.left_s = work_s
        self.bug = bug
        self.silent: set[NodeId] = set()
        """Nodes whose connections to others are cut without a word."""
        self.runs: dict[Generation, Run] = {}
        self.finished: dict[Generation, set[int]] = {}
        """Ranks that exited with 0 of themselves: the truth, not a record."""
        self.on_complete: Callable[[Run], None] = lambda run: None
        self._clock = clock
        self._rng = rng

    def joined(self, world: World, worker: Worker) -> None:
        self.runs.setdefault(world.generation, Run(world)).workers.add(worker)
        worker.on_end = self._ended

    def running(self, worker: Worker) -> None:
        """A worker came up; the last one of its world begins the common run."""
        run = self.runs[worker.generation]
        if self.bug is not None and self.bug.after_s is None and self._is_buggy(run, worker):
            delay_s = self._rng.uniform(0.005, 0.02)
            self._clock.after(delay_s, lambda: self.raises(worker, Raised()))
        run.running += 1
        if run.running == run.world.size:
            run.since_s = self._clock.now_s
            is_early = self.bug is not None and self.bug.after_s is None
            for other in run.workers:
                other.has_group = not is_early
            self.on_complete(run)
            self._look(run)

    def raises(self, worker: Worker, raised: Raised | None) -> None:
        """An exception, or (None) a kill: reported at once, reaped a little later."""
        from elasticd.rendezvous import event as ev

        if not worker.is_alive or worker.has_raised:
            return
        worker.has_raised = True
        self._left(self.runs[worker.generation], worker)
        failure = worker.failure(raised)
        worker.agent.post(ev.WorkerFailed(slot=worker.slot, nonce=worker.nonce, failure=failure))
        delay_s = self._rng.uniform(0.002, 0.05 if raised else FREED_S)
        self._clock.after(delay_s, lambda: worker.ended(1 if raised else -9, failure))

    def alive(self) -> Iterable[Worker]:
        for run in self.runs.values():
            yield from run.workers

    def _is_buggy(self, run: Run, worker: Worker) -> bool:
        assert self.bug is not None
        return self.bug.everywhere or worker.rank == run.world.size - 1

    def _look(self, run: Run) -> None:
        """Come back when the work could be done, or the bug could show."""
        since_s = run.since_s
        left_s = self.left_s
        if self.bug is not None and self.bug.after_s is not None:
            left_s = min(left_s, self.bug.after_s)

        def due() -> None:
            if run.since_s != since_s:
                return
            if any(n.node in self.silent for n in run.world.nodes) and len(run.world.nodes) > 1:
                self._clock.after(0.2, due)
            elif self.bug is not None and self.bug.after_s is not None:
                for worker in sorted(run.workers, key=lambda w: w.rank):
                    if self._is_buggy(run, worker):
                        self.raises(worker, Raised())
            else:
                self._finish(run)

        self._clock.after(left_s, due)

    def _finish(self, run: Run) -> None:
        for worker in sorted(run.workers, key=lambda w: w.rank):
            delay_s = self._rng.uniform(0.0, 0.15)
            self._clock.after(delay_s, lambda w=worker: self._exit_0(w))  # type: ignore[misc]

    def _exit_0(self, worker: Worker) -> None:
        if worker.is_alive and worker.is_running and not worker.has_raised:
            if not worker.is_stopping:
                self.finished.setdefault(worker.generation, set()).add(worker.rank)
            worker.ended(0, None)

    def _ended(self, worker: Worker, is_loud: bool, was_running: bool) -> None:
        run = self.runs[worker.generation]
        run.workers.discard(worker)
        if was_running:
            worker.is_running = True
            self._left(run, worker)
        if not run.workers:
            del self.runs[worker.generation]
        if is_loud and worker.node not in self.silent and worker.has_group and not run.has_echoed:
            run.has_echoed = True
            for peer in sorted(run.workers, key=lambda w: w.rank):
                if peer.node not in self.silent:
                    delay_s = self._rng.uniform(0.010, 0.045)
                    self._clock.after(delay_s, lambda p=peer: self._echo(p))  # type: ignore[misc]

    def _left(self, run: Run, worker: Worker) -> None:
        """It takes part no more: ended, or ending with an exception."""
        run.running -= int(worker.is_running)
        worker.is_running = False
        if run.since_s is not None and not worker.has_finished:
            self.left_s = max(0.05, self.left_s - (self._clock.now_s - run.since_s))
            run.since_s = None

    def _echo(self, worker: Worker) -> None:
        if worker.is_running and not worker.is_stopping:
            self.raises(
                worker,
                Raised(exception="RuntimeError: peer closed", where="/t.py:9", is_secondary=True),
            )

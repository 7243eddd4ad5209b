"""A simulated worker that called `elasticd.run`: it goes from world to world in one process.

What `elasticd.train` does, as far as other machines can see it: orders are heard at once, acted
upon at leave points, and the group breaks under whoever is left behind.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, NodeId
from elasticd.records.member import Stall, StallLimit
from elasticd.records.world import Placement, World
from elasticd.rendezvous import event as ev
from tests.sim.worker import Raised, Worker

if TYPE_CHECKING:
    from tests.sim.group import Group
    from tests.sim.in_process import InProcess

__all__ = ["Order", "Trainee"]

EXPLANATION_S = 60.0
"""How long a rank whose group broke waits for word of a newer world."""
BEAT_S = 0.25
SHORT_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Order:
    """Enter this world, or (None) leave and wait; at which step."""

    world: World | None
    placement: Placement | None
    at_step: int | None


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Trainee(Worker):
    job: "InProcess"
    is_attached: bool = False
    has_state: bool = False
    step: int = 0
    entered: Generation = Generation(0)
    stepped: Generation = Generation(0)
    wanted: Order | None = None
    least: int | None = None
    """The first step that it can leave the group after, as it told the others."""
    is_waiting: bool = False
    """At a commit, for the others' word on a planned change."""
    group: "Group | None" = None
    is_training: bool = False
    is_frozen: bool = False
    is_stuck: bool = False
    """In a loop of the user's, outside of all collectives."""
    is_committing: bool = False
    """Past the step's last collective: what becomes of its peers does not matter to this step."""
    is_raising: bool = False
    """Between two collectives, about to raise: it does not see what becomes of its peers."""
    is_paused: bool = False
    told_paused: bool = False
    has_trained: bool = False
    """`elasticd.run` returned."""
    sequence: int = 0
    place: tuple[int, int, int] = (0, 0, 0)
    place_s: float = 0.0
    told_stall: StallLimit | None = None

    def __repr__(self) -> str:
        return (
            f"<{self.node}/{self.slot}.{self.nonce} entered {self.entered} step {self.step} "
            f"state {self.has_state} stopping {self.is_stopping} trained {self.has_trained}>"
        )

    @property
    def key(self) -> tuple[object, ...]:
        return (self.node, self.incarnation, self.slot, self.nonce)

    @property
    def is_able(self) -> bool:
        return self.is_alive and not self.is_frozen and not self.has_raised

    # --- from the agent

    def attach(self) -> None:
        if not self.is_able or self.is_attached:
            return
        self.is_attached = True
        self.agent.post(ev.WorkerAttached(slot=self.slot, nonce=self.nonce))
        self.job.after(BEAT_S, self.beat)

    def receive(self, order: Order) -> None:
        """A later order replaces one that is not yet carried out."""
        if not self.is_able or self.has_trained:
            return
        if order.world is not None and order.world.generation <= self.entered:
            return
        self.wanted = order
        if self.group is None:
            self.go_on()
        elif order.at_step is None:
            self.job.soon(0.001, 0.01, lambda: self._leave_for(order))
        elif self.is_training:
            self._name_step(order)

    def _name_step(self, order: Order) -> None:
        """Tell the others of its group after which step it can leave: whoever hears late, late."""
        if self.least is None and order.at_step is not None and self.group is not None:
            self.least = max(order.at_step, self.step + 1)
            group = self.group
            self.job.soon(0.0, 0.02, lambda: group.named(self))

    def _leave_for(self, order: Order) -> None:
        if self.is_able and self.wanted is order:
            self.leave()

    # --- from world to world

    def leave(self) -> None:
        """Out of whatever it is in, and on."""
        group, self.group = self.group, None
        was_training = self.is_training
        self.is_training = self.is_paused = self.is_stuck = self.is_committing = False
        self.least, self.is_waiting = None, False
        if group is not None:
            group.left(self)
        self.go_on(was_training=was_training)

    def go_on(self, *, was_training: bool = False) -> None:
        """`next_world`."""
        order, self.wanted = self.wanted, None
        if order is None or not self.is_able:
            return
        if order.world is None:
            self.agent.post(ev.WorkerLeft(slot=self.slot, nonce=self.nonce))
            return
        self.entered = order.world.generation
        self.agent.post(ev.WorkerEntered(slot=self.slot, nonce=self.nonce, generation=self.entered))
        group = self.job.group_of(order.world)
        self.group = group
        group.come(self, is_patient=order.at_step is not None and not was_training)

    def formed(self, step: int) -> None:
        self.step, self.has_state = step, True
        self.agent.post(
            ev.WorkerFormed(
                slot=self.slot,
                nonce=self.nonce,
                generation=self.entered,
                backend=self.job.backend,
            )
        )
        self.is_training, self.has_group = True, True
        self.sequence = 0
        if self.wanted is not None:
            self._name_step(self.wanted)
        self.go_further()

    def apply(self) -> None:
        """`commit()` returned; the end of it is a leave point."""
        group = self.group
        assert group is not None
        self.step += 1
        self.job.steps.applied(self, group)
        if self.stepped != self.entered:
            self.stepped = self.entered
            self.agent.post(
                ev.WorkerStepped(
                    slot=self.slot, nonce=self.nonce, generation=self.entered, step=self.step
                )
            )
        self.go_further()

    def go_further(self) -> None:
        """A leave point: leave, wait for the others' word, or do what comes next."""
        self.is_waiting = False
        if self.is_due:
            self.leave()
        elif self._must_wait:
            self.is_waiting = True
        else:
            self._next()

    @property
    def is_due(self) -> bool:
        order, group = self.wanted, self.group
        if order is None or order.at_step is None:
            return order is not None
        return group is not None and group.last is not None and self.step >= group.last

    @property
    def _must_wait(self) -> bool:
        group = self.group
        is_open = group is not None and group.last is None
        return is_open and self.least is not None and self.step >= self.least

    def _next(self) -> None:
        """One more step, a pause, an error of the script, or the end."""
        group = self.group
        assert group is not None
        if self.job.raises_at(self, group):
            return
        if self.step >= self.job.total:
            self.is_paused = True
            group.finished(self)
            return
        pause_s = self.job.pause_s(self.step)
        if pause_s > 0.0:
            self.is_paused = True
            self.job.soon(pause_s, pause_s + 0.01, lambda: self._resume(group))
            return
        if not self.is_stuck:
            self.sequence += 1
            group.ready(self)

    def _resume(self, group: "Group") -> None:
        if self.is_able and self.group is group and self.is_training:
            self.is_paused = False
            if self.is_due:
                self.leave()
            else:
                self.sequence += 1
                group.ready(self)

    def broke(self, group: "Group", *, unreachable: tuple[NodeId, ...] = ()) -> None:
        """A peer is gone: a newer world explains it, or will within a while."""
        if not self.is_able or self.group is not group or self.is_raising:
            return
        if self.is_committing:
            self.job.after(0.001, lambda: self.broke(group))
            return
        if self.wanted is not None:
            self.leave()
            return
        was_training = self.is_training
        self.leave()
        self.agent.post(
            ev.WorkerBroken(
                slot=self.slot,
                nonce=self.nonce,
                generation=self.entered,
                unreachable=unreachable,
            )
        )
        if not was_training:
            return
        entered = self.entered

        def unexplained() -> None:
            if self.is_able and self.group is None and self.entered == entered:
                echo = Raised(exception="RuntimeError: peer", where="/t.py:9", is_secondary=True)
                self.job.raises(self, echo)

        self.job.soon(EXPLANATION_S, EXPLANATION_S + 0.1, unexplained)

    # --- to the agent

    def failure(self, raised: Raised | None) -> Failure:
        # Not super(): a slotted dataclass is another class than the one that the body closes over.
        from dataclasses import replace

        return replace(Worker.failure(self, raised), step=self.step)

    def beat(self) -> None:
        """Its own thread, and the agent that listens to it."""
        if not self.is_able or self.has_trained:
            return
        self.job.after(BEAT_S, self.beat)
        is_first = self.job.is_first(self)
        if self.is_training and (is_first or self.is_paused != self.told_paused):
            self.agent.post(
                ev.WorkerPaced(
                    slot=self.slot,
                    nonce=self.nonce,
                    generation=self.entered,
                    step=self.step,
                    step_s=self.job.step_s,
                    is_paused=self.is_paused,
                )
            )
        self.told_paused = self.is_paused
        place = (self.entered, self.step, self.sequence)
        idle_s = self.job.now_s - self.place_s
        if place != self.place or not self.is_training or self.is_paused:
            self.place, self.place_s = place, self.job.now_s
            self._tell_resumed()
        elif idle_s >= self.job.progress_timeout_s:
            self._tell_stall(StallLimit.PROGRESS)
        elif idle_s >= SHORT_LIMIT_S and self.stepped == self.entered:
            self._tell_stall(StallLimit.RECORD)

    def _tell_resumed(self) -> None:
        if self.told_stall is not None:
            self.told_stall = None
            self.agent.post(ev.WorkerResumed(slot=self.slot, nonce=self.nonce))

    def _tell_stall(self, limit: StallLimit) -> None:
        if not limit.is_beyond(self.told_stall):
            return
        self.told_stall = limit
        stall = Stall(
            slot=self.slot,
            nonce=self.nonce,
            generation=self.entered,
            step=self.step,
            sequence=self.sequence,
            limit=limit,
            is_in_step=True,
            is_in_collective=self.group is not None and self.group.is_ready(self),
        )
        self.agent.post(ev.WorkerStalled(stall=stall))

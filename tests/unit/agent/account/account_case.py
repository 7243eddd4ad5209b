"""A core that is told facts, and the account that is kept of its slots."""

from elasticd.channel.worker import Beat
from elasticd.goodput.cause import TimeCause
from elasticd.records.ids import Generation, Nonce, Slot
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd_agent.account.job_account import JobAccount
from tests.unit.rendezvous.cases import Told, member, running, world
from tests.unit.rendezvous.trainers import attach, entered, stepped, trainer

__all__ = ["NONCE", "Accounted", "beat", "running_job", "seconds", "training_job"]

SLOT, NONCE = Slot(0), Nonce(1)


class Accounted(Told):
    """Like an agent, it tells the account of each decision before its effects."""

    def __init__(self, me: int = 0, **spec: object) -> None:
        super().__init__(me, **spec)
        self.account = JobAccount(self.state.spec)
        self.begin_s = self.now_s

    def tell(self, event: ev.Event, after_s: float = 0.0) -> tuple[fx.Effect, ...]:
        effects = super().tell(event, after_s)
        self.account.follow(event, self.state, self.now_s)
        return effects

    def spent(self) -> dict[TimeCause, float]:
        """Seconds by cause; those that are hardly any are left out."""
        found = self.account.account.seconds(self.now_s)
        return {cause: round(value, 6) for cause, value in found.items() if value > 1e-9}


def seconds(told: Accounted, cause: TimeCause) -> float:
    return told.spent().get(cause, 0.0)


def beat(
    told: Accounted, step: int, *, generation: int = 1, ago_s: float = 0.0, **more: float | bool
) -> None:
    """A heartbeat of slot 0's worker, now."""
    found = Beat(
        generation=Generation(generation),
        step=step,
        step_s=1.0,
        batches=step,
        sequence=step,
        committed_ago_s=ago_s,
        **more,  # type: ignore[arg-type]
    )
    told.account.beat(SLOT, NONCE, found, told.now_s)
    told.tell(
        ev.WorkerPaced(
            slot=SLOT,
            nonce=NONCE,
            generation=Generation(generation),
            step=step,
            step_s=1.0,
            is_paused=found.is_paused,
        )
    )


def training_job(*others: int, step: int = 5, **spec: object) -> Accounted:
    """node-0 in generation 1 with the others, in `elasticd.run`: 10 s until its first commit."""
    told = Accounted(0, **{"workers_per_node": 0, **spec})
    told.standby()
    told.status(running(1, is_in_process=True))
    told.tick(4.0)
    told.world(world(1, 0, *others))
    told.started()
    told.tell(ev.ResultsListed(results=()))
    told.members(trainer(0), *(trainer(i) for i in others))
    told.tick(5.0)
    attach(told)
    entered(told, 1)
    told.now_s += 1.0
    stepped(told, 1, step)
    while told.written():
        pass
    told.members(trainer(0), *(trainer(i) for i in others))
    return told


def running_job(*others: int, **spec: object) -> Accounted:
    """The same in restart mode: its worker runs after 9 s."""
    told = Accounted(0, **spec)
    told.standby()
    told.status(running(1))
    told.tick(4.0)
    told.world(world(1, 0, *others))
    told.now_s += 5.0
    told.started()
    told.tell(ev.ResultsListed(results=()))
    told.members(*(member(i, arrived=1) for i in (0, *others)))
    return told

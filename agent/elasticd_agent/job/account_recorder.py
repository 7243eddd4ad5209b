"""When an agent writes down its account of a job, and what.

It writes with each change of world, when it leaves the job, and otherwise four times a minute; less
often where there are many nodes, to spare etcd. A node that dies loses at most that much of its
account. The node of rank 0, which writes how far the job is, does both every five seconds: that is
what an autoscaler measures by.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from elasticd.errors import ElasticdError
from elasticd.goodput.cause import TimeCause
from elasticd.records.account.time_spent import JobProgress, TimeSpent
from elasticd.records.ids import Incarnation, life_of
from elasticd.rendezvous.own_record import my_node
from elasticd.rendezvous.state import JobState
from elasticd.store.api import Lease
from elasticd.telemetry.log import get_logger
from elasticd_agent.account.gap import KnownGenerations
from elasticd_agent.account.job_account import JobAccount
from elasticd_agent.account.record_writer import AccountReading, RecordWriter, check_held
from elasticd_agent.job.agent_services import AgentServices
from elasticd_agent.loop.clock import now_s
from elasticd_agent.loop.effect_thread import EffectThread

__all__ = ["EVERY_S", "RANK_0_EVERY_S", "AccountRecorder", "plain", "recording_of"]

EVERY_S = 15.0
RANK_0_EVERY_S = 5.0
NODES_PER_SECOND = 1.0
"""How many accounts of one job are written per second; with more nodes each node writes less
often."""

log = get_logger()


class AccountRecorder:
    """Record the account for one membership. All methods run on the owner's thread."""

    def __init__(
        self,
        account: JobAccount,
        writer: RecordWriter,
        effect_thread: EffectThread,
        lease: Callable[[], Lease | None],
    ) -> None:
        self._account, self._writer = account, writer
        self._effect_thread, self._lease = effect_thread, lease
        self._is_under_way = False
        self.wake_s = now_s() + EVERY_S
        """When the next write is due."""

    def take_due(self, state: JobState, at_s: float) -> None:
        """Write the account if it is time."""
        if at_s >= self.wake_s:
            self.write(state, at_s)

    def write(self, state: JobState, at_s: float, *, is_last: bool = False) -> None:
        """Send the account's present state.

        One write at a time is under way, except for the last.
        """
        self.wake_s = at_s + _every_s(state)
        self._account.charge(at_s)
        if state.is_fenced or (self._is_under_way and not is_last):
            return
        self._is_under_way = True
        reading = self._read(state, at_s, is_last=is_last)
        self._effect_thread.send(
            lambda: self._carry_out(reading), lambda _: self._written(), self._not_written
        )

    def _carry_out(self, reading: AccountReading) -> None:
        lease = self._lease()
        check_held(lease.deadline_s if lease is not None else None, now_s())
        self._writer.write(reading)

    def _written(self) -> None:
        self._is_under_way = False

    def _not_written(self, error: ElasticdError) -> None:
        """Handle a write that failed: nothing is lost, since the next write contains it."""
        self._is_under_way = False
        log.debug("account.not_written", job=self._account.spec.name, why=str(error))

    def _read(self, state: JobState, at_s: float, *, is_last: bool) -> AccountReading:
        account, world = self._account, state.world
        mine = my_node(state)
        generations = account.generations
        generation = generations.newest
        age_s = generations.ages_s(at_s).get(generation, 0.0)
        seconds = account.account.seconds(at_s)
        spent = TimeSpent(
            node=state.me.node,
            uid=state.spec.uid,
            seconds={cause.value: value for cause, value in seconds.items()},
            slots=len(account.account.slots),
            generation=generation,
            generation_s=round(age_s, 3),
            is_last=is_last,
            held=dict(Counter(held.cause.value for held in account.account.slots.values())),
        )
        progress = None
        if mine is not None and mine.first_rank == 0:
            progress = JobProgress(
                uid=state.spec.uid,
                generation=generation,
                generation_s=round(age_s, 3),
                has_steps=account.has_steps,
                step=account.newest.step,
                samples=account.newest.samples,
                scalars=account.newest.scalars,
                wanted_s=account.wanted_s(at_s),
            )
        lives = {life_of(seen.member.incarnation) for seen in state.members.values()}
        if world is not None:
            lives |= {life_of(node.incarnation) for node in world.nodes}
        return AccountReading(
            spent=spent,
            progress=progress,
            wanted_slots=account.wanted_slots,
            ages_s=generations.ages_s(at_s),
            known=KnownGenerations(
                began_s=generations.began_s,
                lasted_s=generations.lasted_s,
                named=generations.named,
                spans=account.history.spans,
            ),
            present=frozenset(lives),
        )


def _every_s(state: JobState) -> float:
    mine = my_node(state)
    if mine is not None and mine.first_rank == 0:
        return RANK_0_EVERY_S
    nodes = len(state.world.nodes) if state.world is not None else 1
    return max(EVERY_S, nodes / NODES_PER_SECOND)


def recording_of(
    account: JobAccount, host: AgentServices, incarnation: Incarnation
) -> AccountRecorder:
    """Begin to record the account of a job that is joined, or joined again."""
    if account.writer is None:
        life = life_of(incarnation)
        account.writer = RecordWriter(host.store, host.keys, account.spec.name, life)
        _ask_furthest(account, account.writer, host)
    return AccountRecorder(account, account.writer, host.effect_thread, host.lease)


def _ask_furthest(account: JobAccount, writer: RecordWriter, host: AgentServices) -> None:
    """Ask etcd how far the job was.

    If all other nodes are gone, repeated steps would else count as new ones.
    """
    host.effect_thread.send(
        lambda: writer.furthest(account.spec.uid),
        lambda step: host.post(lambda: account.note_furthest(step)),
        lambda error: log.debug("progress.not_read", job=account.spec.name, why=str(error)),
    )


def plain(seconds: Mapping[TimeCause, float]) -> Mapping[str, float]:
    """Return the account as a record holds it: rounded to hundredths of a second, without empty
    causes.
    """
    return {cause.value: round(value, 2) for cause, value in seconds.items() if value >= 0.005}

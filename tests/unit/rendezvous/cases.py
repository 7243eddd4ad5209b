"""Facts for the tests of the rendezvous, with the dull fields filled in."""

from collections.abc import Sequence

from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, NodeId, Nonce, Rank, Slot
from elasticd.records.job import JobStatus
from elasticd.records.member import Exit, Member, Result, SlotOffer, StoreAddress
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import World, WorldNode, WorldWorker
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.decide import decide
from elasticd.rendezvous.state import JobState, Me
from tests.sim.schedule import spec_of

NOW_S = 1000.0


def name(index: int) -> NodeId:
    return NodeId(f"node-{index}")


def incarnation(index: int, life: int = 1, count: int = 1) -> Incarnation:
    return Incarnation(f"n{index}l{life}.{count}")


def member(
    index: int,
    *,
    life: int = 1,
    count: int = 1,
    nonce: int = 1,
    slots: int = 1,
    arrived: int = 0,
    leaving: Reason | None = None,
    failed: Failure | None = None,
    stores: Sequence[int] = (1, 2, 3),
) -> Member:
    return Member(
        node=name(index),
        incarnation=incarnation(index, life, count),
        host=name(index),
        address="10.0.0.1",
        port=7000 + index,
        slots=tuple(SlotOffer(slot=Slot(s), nonce=Nonce(nonce)) for s in range(slots)),
        stores=tuple(store(index, port) for port in stores),
        arrived=Generation(arrived),
        leaving=leaving,
        failure=failed,
    )


def store(index: int, port: int) -> StoreAddress:
    return StoreAddress(host=name(index), port=port)


def world(
    generation: int,
    *nodes: int,
    since: dict[int, int] | None = None,
    unended: int = 1,
    **more: object,
) -> World:
    """Each node with one worker, numbered like the generation."""
    return World(
        generation=Generation(generation),
        nodes=tuple(
            WorldNode(
                node=name(index),
                incarnation=incarnation(index),
                host=name(index),
                address="10.0.0.1",
                port=7000 + index,
                first_rank=Rank(rank),
                workers=(WorldWorker(slot=Slot(0), nonce=Nonce(generation)),),
                since=Generation((since or {}).get(index, 1)),
            )
            for rank, index in enumerate(nodes)
        ),
        store=store(nodes[0], generation),
        reason=Reason.FIRST_WORLD,
        token=f"t{generation}",
        unended=Generation(unended),
        **more,  # type: ignore[arg-type]
    )


def failure(
    index: int = 0,
    *,
    generation: int = 1,
    rank: int = 0,
    is_secondary: bool = False,
    signal: str = "",
    has_group: bool | None = None,
    where: str = "/x/train.py:3",
) -> Failure:
    return Failure(
        node=name(index),
        incarnation=incarnation(index),
        host=name(index),
        generation=Generation(generation),
        rank=Rank(rank),
        local_rank=0,
        slot=Slot(0),
        nonce=Nonce(generation),
        exit_code=None if signal else 1,
        signal=signal,
        exception="" if signal else "ValueError: too hot",
        where="" if signal else where,
        is_secondary=is_secondary,
        has_group=has_group,
    )


def result(index: int, generation: int, *, code: int | None = 0, has_left: bool = False) -> Result:
    exits = () if code is None else (Exit(rank=Rank(index), code=code),)
    return Result(
        node=name(index),
        incarnation=incarnation(index),
        generation=Generation(generation),
        exits=exits,
        has_left=has_left,
    )


def running(generation: int, **more: object) -> JobStatus:
    return JobStatus(
        phase=Phase.RUNNING if generation else Phase.PENDING,
        generation=Generation(generation),
        **more,  # type: ignore[arg-type]
    )


class Told:
    """A state that is told facts, and the effects of the last one."""

    def __init__(self, me: int = 0, **spec: object) -> None:
        self.state = JobState(
            me=Me(
                node=name(me),
                incarnation=incarnation(me),
                host=name(me),
                address="10.0.0.1",
                port=7000 + me,
            ),
            spec=spec_of(**{"min_nodes": 1, "max_nodes": 4, **spec}),
        )
        self.index = me
        self.now_s = NOW_S
        self.revision = 100
        self.effects: tuple[fx.Effect, ...] = ()

    def tell(self, event: ev.Event, after_s: float = 0.0) -> tuple[fx.Effect, ...]:
        self.now_s += after_s
        self.state, self.effects = decide(self.state, event, now_s=self.now_s)
        return self.effects

    def tick(self, after_s: float) -> tuple[fx.Effect, ...]:
        return self.tell(ev.Ticked(), after_s)

    def world(self, value: World) -> tuple[fx.Effect, ...]:
        self.revision += 1
        return self.tell(ev.WorldSeen(world=value, revision=self.revision))

    def status(self, value: JobStatus) -> tuple[fx.Effect, ...]:
        self.revision += 1
        return self.tell(ev.StatusSeen(status=value, revision=self.revision))

    def members(self, *values: Member) -> tuple[fx.Effect, ...]:
        self.revision += 1
        rows = tuple((value, index + 1, self.revision) for index, value in enumerate(values))
        return self.tell(ev.MembersListed(revision=self.revision, members=rows))

    def member(self, value: Member) -> tuple[fx.Effect, ...]:
        self.revision += 1
        known = self.state.members.get(value.node)
        return self.tell(
            ev.MemberSeen(
                revision=self.revision,
                member=value,
                create_revision=known.create_revision if known else self.revision,
                mod_revision=self.revision,
            )
        )

    def standby(self) -> None:
        """Its slots, stores and pool, and the answer to its first record."""
        if not self.state.slots:
            self.tell(ev.SlotsGranted(slots=(Slot(0),)))
        self.tell(ev.StoresChanged(stores=tuple(store(self.index, port) for port in (1, 2, 3))))
        self.tell(ev.PoolChanged(is_ready=True))
        while self.written():
            pass

    def written(self) -> bool:
        """Answer the record under way; True if that brought about another."""
        sent = self.state.member_sent
        if sent is None or not self.state.is_member_in_flight:
            return False
        self.tell(ev.MemberWritten(member=sent, ok=True))
        return self.state.is_member_in_flight

    def started(self) -> None:
        """All workers that were ordered are up, and what followed was written."""
        for worker in list(self.state.workers.values()):
            self.tell(ev.WorkerStarted(slot=worker.slot, nonce=worker.nonce))
        while self.written():
            pass

    def up(self, nonce: int = 1) -> tuple[fx.Effect, ...]:
        return self.tell(ev.WorkerStarted(slot=Slot(0), nonce=Nonce(nonce)))

    def failed(self, value: Failure, nonce: int = 1) -> tuple[fx.Effect, ...]:
        return self.tell(ev.WorkerFailed(slot=Slot(0), nonce=Nonce(nonce), failure=value))

    def exited(self, code: int, nonce: int = 1) -> tuple[fx.Effect, ...]:
        return self.tell(ev.WorkerExited(slot=Slot(0), nonce=Nonce(nonce), code=code))

    def one(self, kind: type) -> object:
        """The only effect of this kind."""
        (found,) = [effect for effect in self.effects if isinstance(effect, kind)]
        return found

    def count(self, kind: type) -> int:
        return sum(isinstance(effect, kind) for effect in self.effects)


def proposer(*others: int, **spec: object) -> Told:
    """node-0 in generation 1 with the others, formed, watching everybody."""
    told = Told(0, **spec)
    told.standby()
    told.status(running(1))
    told.world(world(1, 0, *others))
    told.started()
    told.tell(ev.ResultsListed(results=()))
    told.members(*(member(i, arrived=1) for i in (0, *others)))
    assert told.state.formed_s is not None
    told.tick(0.5)
    return told

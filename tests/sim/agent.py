"""The agent's shell in the simulation: carries effects out as the real one does, owns a lease."""

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, cast

from elasticd.records.ids import Incarnation, Life, NodeId, incarnation_of
from elasticd.records.job import JobStatus, Want
from elasticd.records.member import Peer
from elasticd.records.reason import Reason
from elasticd.records.world import World
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.decide import decide, wake_at_s
from elasticd.rendezvous.journal import line, opening
from elasticd.rendezvous.next_world.wait import past_of
from elasticd.rendezvous.state import JobState, Me, Past
from tests.sim import write
from tests.sim.etcd import Changes, Watch
from tests.sim.lease import AgentLease
from tests.sim.watching import observe

if TYPE_CHECKING:
    from tests.sim.node import Node

__all__ = ["Agent"]

PROBE_RETRY_S = 1.0


class Agent:
    """One process of the daemon on one node, with at most one membership at a time."""

    def __init__(self, node: "Node", life: Life) -> None:
        self.node = node
        self.life = life
        self.is_alive = True
        self.is_stopped = False
        self.is_ending = False
        self.state: JobState | None = None
        self.held: dict[NodeId, Peer] = {}
        self.decisions = 0
        self.ticks = 0
        self.has_watched_all = False
        self.journal: list[str] | None = None
        self._memberships = 0
        self._past = Past()
        self._inbox: list[Callable[[], None]] = []
        self._writes: list[tuple[Callable[[], object], Callable[[object | None], None]]] = []
        self._is_writing = False
        self._wake: float | None = None
        self._watches: list[Watch] = []
        self._observed: list[Watch] = []
        self._is_cut_off = False
        self._leave: Reason | None = None
        self._clock = node.sim.clock
        self._rng = node.sim.rng
        self._etcd = node.sim.etcd
        self._lease = AgentLease(self)
        self._lease.take()

    # --- a membership

    def join(self) -> None:
        """Begin a new JobState under the lease, and tell it what the node has to say."""
        if self._leave is not None or self.state is not None or self._lease.id is None:
            return
        if not self.node.may_join():
            return
        self._memberships += 1
        self._lease.joined()
        node = self.node
        me = Me(
            node=node.name,
            incarnation=incarnation_of(self.life, self._memberships),
            host=node.name,
            address="10.0.0.1",
            port=1000,
        )
        self.state = JobState(me=me, spec=node.sim.spec, past=self._past)
        if self.journal is not None:
            self.journal.append(opening(self.state))
        kept = node.take_over(self)
        if kept is not None:
            self.post(kept)
        self.post(ev.SlotsGranted(slots=node.slots))
        self.post(ev.StoresChanged(stores=node.stores))
        node.warm_up(self)

    @property
    def has_lease(self) -> bool:
        return self._lease.id is not None

    @property
    def incarnation(self) -> Incarnation | None:
        return self.state.me.incarnation if self.state is not None else None

    @property
    def goes(self) -> Reason | None:
        """Why it was told to leave."""
        return self._leave

    # --- events

    def post(self, event: ev.Event) -> None:
        """Give the core a fact now, or when the stopped process goes on."""
        if not self.is_alive:
            return
        if self.is_stopped:
            self._inbox.append(lambda: self.post(event))
            return
        if self.state is None:
            return
        before, now_s = self.state, self._clock.now_s
        self.decisions += 1
        self.ticks += isinstance(event, ev.Ticked)
        state, effects = decide(before, event, now_s=now_s)
        self.state = state
        if self.journal is not None:
            self.journal.append(line(now_s, event, effects))
        self.node.sim.decided(self, event, effects)
        for effect in effects:
            self._perform(effect)
        self._set_alarm()

    def _set_alarm(self) -> None:
        wake_s = wake_at_s(self.state) if self.state is not None else None
        if wake_s is None or (self._wake is not None and self._wake <= wake_s):
            return
        self._wake = wake_s

        def ring() -> None:
            if self._wake != wake_s:
                return
            self._wake = None
            if self.state is None:
                return
            due_s = wake_at_s(self.state)
            if due_s is not None and due_s <= self._clock.now_s:
                self.post(ev.Ticked())
            else:
                self._set_alarm()

        self._clock.at(wake_s, self.when_able(ring))

    def when_able(self, call: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            if self.is_alive:
                if self.is_stopped:
                    self._inbox.append(call)
                else:
                    call()

        return run

    def answer(self, then: Callable[[object | None], None]) -> Callable[[object | None], None]:
        return lambda result: self.when_able(lambda: then(result))()

    def go_on(self) -> None:
        """SIGCONT: look at the lease first, then at what has piled up."""
        self.is_stopped = False
        self._lease.check()
        self._lease.keep_alive()
        inbox, self._inbox = self._inbox, []
        for call in inbox:
            call()

    # --- watches

    def _reread(self) -> None:
        """Watch world, status and wants, or watch them anew."""
        for watch in self._watches:
            self._etcd.close(watch)
        link = self.node.link
        self._watches = [
            self._etcd.watch("world", frozenset([""]), self._sink(self._world_seen), link),
            self._etcd.watch("status", frozenset([""]), self._sink(self._status_seen), link),
            self._etcd.watch("want", None, self._sink(self._wants_seen), link),
        ]

    def _sink(self, then: Callable[[int, Changes], None]) -> Callable[[bool, int, Changes], None]:
        me = self.incarnation

        def sink(is_list: bool, revision: int, changes: Changes) -> None:
            def tell() -> None:
                if self.incarnation == me:
                    then(revision, changes)

            self.when_able(tell)()

        return sink

    def _world_seen(self, revision: int, changes: Changes) -> None:
        for _, item in changes:
            if item is not None:
                world = cast(World, item.value)
                self.post(ev.WorldSeen(world=world, revision=item.mod))

    def _status_seen(self, revision: int, changes: Changes) -> None:
        for _, item in changes:
            if item is not None:
                status = cast(JobStatus, item.value)
                self.post(ev.StatusSeen(status=status, revision=item.mod))
        if not changes or changes[-1][1] is None:
            self.post(ev.StatusSeen(status=None, revision=revision))

    def _wants_seen(self, revision: int, changes: Changes) -> None:
        wants = {n: cast(Want, i.value) for n, i in self._etcd.table("want").items()}
        self.post(ev.WantsListed(wants=wants))

    def _observe(self, nodes: tuple[NodeId, ...] | None) -> None:
        for watch in self._observed:
            self._etcd.close(watch)
        self.has_watched_all |= nodes is None
        self._observed = observe(self, nodes)

    # --- effects

    def _perform(self, effect: fx.Effect) -> None:
        node, job = self.node, self.state
        assert job is not None
        match effect:
            case fx.Observe(nodes=nodes, is_reread=is_reread):
                if is_reread:
                    self._reread()
                self._observe(nodes)
            case fx.FindOldest(count=count):
                self._find_oldest(count)
            case fx.HoldPeers(peers=peers):
                node.sim.holds(self, peers)
            case fx.StartWorker(world=world, placement=placement):
                node.start_worker(self, world, placement)
            case fx.PrepareWorker() | fx.EnterWorld() | fx.LeaveWorld():
                node.guide_worker(self, effect)
            case fx.StopWorker(slot=slot, nonce=nonce, grace_s=grace_s):
                node.stop_worker(slot, nonce, grace_s)
            case fx.UseStore(store=store):
                node.use_store(store)
            case fx.Retire():
                self._retire(effect)
            case _:
                self._write(effect)

    def _find_oldest(self, count: int) -> None:
        def ask() -> object:
            # The table is in the order of creation: a key that was deleted goes to its end.
            return list(islice(self._etcd.table("member"), count))

        def found(names: object | None) -> None:
            if names is None:
                self.post(ev.EffectDone(name="FindOldest", ok=False))
            else:
                self.post(ev.OldestFound(nodes=tuple(cast(list[NodeId], names))))

        self.node.link.call(ask, self.answer(found))

    def _write(self, effect: fx.Effect) -> None:
        """One writer, one write at a time, in order; nothing after the lease's deadline."""
        lease = self._lease.id

        def ask() -> object:
            if lease is not None and lease not in self._etcd.leases:
                return "fenced"
            return write.commit(self._etcd, self.node.name, effect, lease)

        def answered(result: object | None) -> None:
            self._is_writing = False
            state = self.state
            if state is not None and write.is_of(effect, state.me.incarnation):
                self.post(write.answer(effect, None if result == "fenced" else result))
            self._next_write()

        self._writes.append((ask, answered))
        self._next_write()

    def _next_write(self) -> None:
        if self._is_writing or not self._writes:
            return
        self._is_writing = True
        ask, answered = self._writes.pop(0)
        if not self._lease.is_sure:
            self._clock.after(0.0, self.when_able(lambda: answered(None)))
            return
        self.node.link.call(ask, self.answer(answered))

    # --- the end

    def leave(self, reason: Reason, *, is_ending: bool) -> None:
        """Drained, or told to end."""
        self._leave = reason
        self.is_ending = self.is_ending or is_ending
        if self.state is None:
            self.node.end_pool(self)  # Who waits there for its next incarnation, too.
            self._retired(None)
        else:
            self.post(ev.LeaveRequested(reason=reason))

    def _retire(self, effect: fx.Retire) -> None:
        for watch in (*self._watches, *self._observed):
            self._etcd.close(watch)
        self._watches, self._observed = [], []
        self.node.sim.holds(self, ())
        assert self.state is not None
        self._past = past_of(
            self.state, lease_ttl_s=self.node.sim.lease_ttl_s, now_s=self._clock.now_s
        )
        self.state = None
        self._wake = None
        self.node.sim.retired(self, effect)
        if not effect.keeps_workers:
            self.node.end_pool(self)
        self._is_cut_off = effect.is_cut_off
        self._retired(effect.rejoin_after_s)

    def _come_back(self) -> None:
        """Not before those who could not reach us can be reached."""
        if not self._is_cut_off:
            self.join()
            return

        def look(names: object | None) -> None:
            others = set(cast(list[NodeId], names or ())) - {self.node.name}
            silent = self.node.sim.silent
            is_cut = names is None or others & silent or (others and self.node.name in silent)
            self._is_cut_off = bool(is_cut)
            self._clock.after(PROBE_RETRY_S if is_cut else 0.0, self.when_able(self._come_back))

        self.node.link.call(lambda: list(self._etcd.table("member")), self.answer(look))

    def _retired(self, rejoin_after_s: float | None) -> None:
        if self.is_ending:
            self._lease.give_back()
            self.node.agent_ended(self)
        elif rejoin_after_s is not None:
            delay_s = max(rejoin_after_s, self._rng.uniform(0.05, 0.2))
            self._clock.after(delay_s, self.when_able(self._come_back))

    def died(self) -> None:
        """SIGKILL: nothing is said, the watches go with the connection."""
        self.is_alive = False
        for watch in (*self._watches, *self._observed):
            self._etcd.close(watch)

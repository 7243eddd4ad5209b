"""One simulated cluster with one job: everything that a schedule acts upon."""

from collections.abc import Callable
from random import Random

from elasticd.records.ids import Life, NodeId
from elasticd.records.job import JobSpec, JobStatus, Want
from elasticd.records.member import Peer
from elasticd.records.reason import Reason
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous import event as ev
from tests.sim.agent import Agent
from tests.sim.clock import Clock
from tests.sim.etcd import Delete, Etcd, Put
from tests.sim.history import History
from tests.sim.in_process import InProcess, Script
from tests.sim.lease import TTL_S
from tests.sim.network import Weather
from tests.sim.node import Node
from tests.sim.training import Bug, Training

__all__ = ["Simulation"]

Trace = Callable[[str], None]
_FIRST_TOLD_EARLY = 770_000_000
"""Seeds below are those of schedules that are kept: what happens in them must not change."""


class Simulation:
    def __init__(
        self,
        *,
        seed: int,
        spec: JobSpec,
        slots: list[int],
        work_s: float = 2.0,
        bug: Bug | None = None,
        weather: Weather | None = None,
        trace: Trace | None = None,
        script: Script | None = None,
        clock: Clock | None = None,
        lease_ttl_s: float = TTL_S,
    ) -> None:
        """`clock`: of another simulation, whose time this one shares."""
        self.rng = Random(seed)
        self.is_kill_told_early = seed >= _FIRST_TOLD_EARLY and seed % 2 == 1
        """A killed process is known as such before it is reaped, as by its robust mutex."""
        self.clock = clock or Clock()
        self.spec = spec
        self.lease_ttl_s = lease_ttl_s
        self.weather = weather or Weather()
        self.etcd = Etcd(self.clock, self.rng)
        self.training: Training | InProcess = (
            Training(self.clock, self.rng, work_s, bug)
            if script is None
            else InProcess(self.clock, self.rng, script, bug, spec.progress_timeout_s)
        )
        self.nodes = {
            name: Node(self, name, count)
            for name, count in ((NodeId(f"node-{i}"), n) for i, n in enumerate(slots))
        }
        self.twins: list[Node] = []
        self.raised_lines: set[int] = set()
        """Of the script, where an exception was injected."""
        self.trace = trace
        self.agents: list[Agent] = []
        self.by_life: dict[Life, Agent] = {}
        self.holders: dict[NodeId, dict[Agent, None]] = {}
        """Who holds a connection to a node; a dict as a set that keeps its order."""
        self.journal_of: NodeId | None = None
        self.silent: set[NodeId] = self.training.silent
        self.history = History(self)
        self.etcd.on_put = self.history.put
        self.training.on_complete = self.history.completed

    # --- what a person does

    def submit(self, *, status_delay_s: float = 0.0) -> None:
        def write() -> None:
            self.etcd.commit(
                [Put("status", "", JobStatus(uid=self.spec.uid)), Put("active", "", True)]
            )

        self.clock.after(status_delay_s, write)

    def want(self, nodes: int | None = None, *, is_stop: bool = False) -> None:
        self.say(f"want nodes={nodes} stop={is_stop}")
        want = Want(writer="user", nodes=nodes, is_stop=is_stop, why="a person asked")
        self.etcd.commit([Put("want", "user", want)])

    def unwant(self) -> None:
        self.etcd.commit([Delete("want", "user")])

    def drain(self, name: NodeId, reason: Reason = Reason.DRAINED) -> None:
        agent = self.nodes[name].agent
        self.say(f"drain {name}")
        if agent is not None:
            agent.leave(reason, is_ending=reason is not Reason.DRAINED)

    # --- the peers' connections

    def holds(self, holder: Agent, peers: tuple[Peer, ...]) -> None:
        """From now on the agent is connected to these, and to no others."""
        for name in holder.held:
            self.holders[name].pop(holder, None)
        holder.held = {peer.node: peer for peer in peers}
        for peer in peers:
            self.holders.setdefault(peer.node, {})[holder] = None
            self._connected(holder, peer)

    def _connected(self, holder: Agent, peer: Peer) -> None:
        """A new connection; refused at once if nobody of that life is there."""
        if self.is_refused(peer.life):
            self._accuse(holder, peer.node, peer.life)

    def is_refused(self, life: Life) -> bool:
        """At that agent's address nobody listens, and its machine says so."""
        agent = self.by_life[life]
        return not agent.is_alive and not agent.node.is_off

    def twin(self, name: NodeId) -> Node:
        """Another machine under the name of one that is there."""
        twin = Node(self, name, len(self.nodes[name].slots), lives_before=100)
        self.twins.append(twin)
        return twin

    def agent_gone(self, agent: Agent) -> None:
        """Its sockets are closed by its kernel: whoever held one of them looks."""
        mine = agent.node.name
        others = dict.fromkeys(self.holders.get(mine, ()))
        machines = [*self.nodes.values(), *self.twins]
        others |= dict.fromkeys(
            node.agent for node in machines if node.name in agent.held and node.agent is not None
        )
        for other in others:
            if other is agent or not other.is_alive:
                continue
            peer = other.held.get(mine)
            if (peer is not None and peer.life == agent.life) or other.node.name in agent.held:
                self._accuse(other, mine, agent.life)

    def _accuse(self, holder: Agent, name: NodeId, life: object) -> None:
        if name in self.silent or holder.node.name in self.silent:
            return
        event = ev.PeerDied(node=name, life=life)  # type: ignore[arg-type]
        self.clock.after(self.rng.uniform(0.0008, 0.002), lambda: holder.post(event))

    # --- what the agents tell

    def agent_born(self, agent: Agent) -> None:
        self.agents.append(agent)
        self.by_life.setdefault(agent.life, agent)
        if agent.node.name == self.journal_of:
            agent.journal = []

    def decided(self, agent: Agent, event: ev.Event, effects: tuple[fx.Effect, ...]) -> None:
        if self.trace is not None:
            self.say(f"{agent.node.name:8} {_short(event)}")
            for effect in effects:
                self.say(f"{'':8}   -> {_short(effect)}")
        self.history.decided(agent, event, effects)

    def retired(self, agent: Agent, effect: fx.Retire) -> None:
        self.history.retired(agent, effect)

    def say(self, text: str) -> None:
        if self.trace is not None:
            self.trace(f"{self.clock.now_s - 100.0:9.4f} {text}")

    # --- time

    @property
    def status(self) -> JobStatus | None:
        item = self.etcd.get("status", "")
        return item.value if item is not None else None  # type: ignore[return-value]

    @property
    def is_over(self) -> bool:
        return self.status is not None and self.status.phase.is_final

    def run(self, for_s: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; True as soon as `until` holds."""
        end_s = self.clock.now_s + for_s
        while not until():
            if not self.clock.step(end_s):
                return until()
        return True


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 700 else text[:700] + "..."

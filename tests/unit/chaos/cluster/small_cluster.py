"""A cluster that is not there: three nodes, one job, and a clock that nobody waits for.

The status of the job is written as the operator writes it: at once when the phase changes, and
every ten seconds otherwise. So what a run reads here is as old as it is in a real cluster.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chaos.cluster.cluster_api import NotStruck
from chaos.cluster.decide import Victim
from chaos.cluster.fault import LOST, TRAITS, Kind
from chaos.cluster.observation import AgentPod, JobView, Observation, Worker

__all__ = ["SmallCluster"]

STATUS_S = 10.0
REASONS = {
    Kind.POD_DELETE: "node_left",
    Kind.POD_EVICT: "node_left",
    Kind.POD_FORCE_DELETE: "node_dead",
    Kind.WORKER_KILL: "worker_killed",
    Kind.WORKER_STOP: "worker_hung",
}


@dataclass
class SmallCluster:
    """Also the event by which a run waits: each wait is a second of this clock."""

    nodes: Sequence[str] = ("a", "b", "c")
    back_s: float = 20.0
    """How long a node is away after a fault."""
    is_dead_s: float = 1e9
    """From here on the job has failed."""
    steps_lost: int = 0
    """With each fault."""
    goes_on: bool = True
    reasons: dict[Kind, str] = field(default_factory=lambda: dict(REASONS))
    strangers: dict[str, str] = field(default_factory=dict)
    """By node: a job without the label that it serves as well."""
    refuses: bool = False
    ends_at_s: float = 5000.0
    now_s: float = 1000.0
    job: JobView = JobView(
        name="x", is_allowed=True, job="default.x", phase="Running", nodes=3, wanted=3,
        generation=1, step=100, is_measured=True,
    )  # fmt: skip
    deeds: list[tuple[float, Kind, str, bool]] = field(default_factory=list)
    """When, what, on which node, and whether it was a dry run."""
    most_away: int = 0
    is_told_to_end: Callable[[float], bool] = lambda _: False
    loses_answers: bool = False
    """What it is asked to do it does not do, and nobody hears of that."""
    idle: frozenset[str] = frozenset()
    """The nodes whose workers are in no world; the status does not tell."""
    workers_s: float = 0.0
    """How long it takes to look into a pod."""

    def __post_init__(self) -> None:
        self.true = self.job
        self.away: dict[str, float] = {}
        self.uids = dict.fromkeys(self.nodes, 1)
        self.written_s = self.now_s

    def wait(self, timeout: float | None = None) -> bool:
        """Let the time pass; return whether the run is told to end."""
        self.now_s += timeout or 0.0
        assert self.now_s < self.ends_at_s, "the run does not come to an end"
        self._go_on()
        return self.is_told_to_end(self.now_s)

    def is_set(self) -> bool:
        return self.is_told_to_end(self.now_s)

    def look(self, names: Sequence[str]) -> Observation:
        pods = [
            AgentPod(
                name=f"agent-{node}-{self.uids[node]}",
                uid=f"{node}{self.uids[node]}",
                node=node,
                is_ready=node not in self.away,
                is_deleted=False,
            )
            for node in self.nodes
        ]
        jobs = {self.job.name: self.job} if not names or self.job.name in names else {}
        return Observation(pods=tuple(pods), jobs=jobs)

    def workers(self, pod: AgentPod) -> tuple[Worker, ...]:
        self.now_s += self.workers_s
        rank = None if pod.node in self.idle else self.nodes.index(pod.node)
        found = [Worker(pid=10, ticks=1, job=self.true.job, rank=rank)]
        if pod.node in self.strangers:
            found.append(Worker(pid=11, ticks=1, job=self.strangers[pod.node], rank=0))
        return tuple(found)

    def strike(self, kind: Kind, victim: Victim, *, stop_s: float, is_dry: bool) -> str:
        if self.refuses:
            raise NotStruck("The API server refuses it.")
        node = victim.pod.node
        self.deeds.append((self.now_s, kind, node, is_dry))
        if is_dry:
            return ""
        if self.loses_answers:
            return f"{LOST} (the connection ended)"
        self.away[node] = self.now_s + self.back_s
        self.most_away = max(self.most_away, len(self.away))
        self.uids[node] += not TRAITS[kind].is_of_worker
        losses = dict(self.true.losses)
        losses[self.reasons[kind]] = losses.get(self.reasons[kind], 0) + 1
        self._change(losses=losses, step=(self.true.step or 0) - self.steps_lost)
        return ""

    # --- private ------------------------------------------------------------------------------

    def _go_on(self) -> None:
        back = [node for node, at_s in self.away.items() if at_s <= self.now_s]
        for node in back:
            del self.away[node]
        if back:
            self._change()
        if self.goes_on or not self.deeds:
            self.true = replace(self.true, step=(self.true.step or 0) + 2)
        if self.now_s >= self.is_dead_s:
            self.true = replace(self.true, phase="Failed", message="budget spent")
        if self.true.phase != self.job.phase or self.now_s >= self.written_s + STATUS_S:
            self.job, self.written_s = self.true, self.now_s

    def _change(self, **more: Any) -> None:
        self.true = replace(
            self.true,
            generation=self.true.generation + 1,
            nodes=len(self.nodes) - len(self.away),
            **more,
        )

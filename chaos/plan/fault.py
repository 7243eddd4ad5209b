"""The faults that we know how to bring about, each with the right behaviour's outer bounds.

A fault names its victim by place (node 1, its worker 0), never by process: so the schedule is the
same for the same seed whatever the system makes of it, and who that is gets known at the moment of
the blow.
"""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["TRAITS", "After", "Fault", "Kind", "Place", "Point", "Scope", "Traits"]


class Place(StrEnum):
    """Where agents run."""

    PROCESSES = "processes"
    """The agents are processes of this machine, started by us."""
    PODS = "pods"
    """The agents are pods of a Kubernetes cluster that has elasticd already."""


class Kind(StrEnum):
    """What is done. The ids in the comments (P1, K2, ...) are those of the list in README.md."""

    WORKER_KILL = "worker-kill"  # P1
    WORKER_CRASH = "worker-crash"  # P2: SIGSEGV
    WORKER_RAISE = "worker-raise"  # P2: an exception inside the step
    WORKER_TERM = "worker-term"  # P1: SIGTERM, as somebody's `kill` sends it
    WORKER_EXIT = "worker-exit"  # P2: exits with a code, without a word
    WORKER_STOP = "worker-stop"  # P3: SIGSTOP, SIGCONT later
    WORKER_HANG = "worker-hang"  # P3: an endless wait, the GIL is free
    WORKER_GIL = "worker-gil"  # P4: an endless wait that holds the GIL
    WORKER_SLOW = "worker-slow"  # P13
    AGENT_KILL = "agent-kill"  # P8
    AGENT_STOP = "agent-stop"  # P9: beyond the lease's end, then SIGCONT
    NODE_KILL = "node-kill"  # K2, D9: agent, pool and workers at once
    NODE_STOP = "node-stop"  # P9, D10
    NODE_LEAVE = "node-leave"  # K1: SIGTERM of the agent
    NODE_DRAIN = "node-drain"  # K1: `elasticd drain`, taken back later
    NODE_CUT = "node-cut"  # N1: no packet in or out
    NODE_MUTE = "node-mute"  # N2: no packet out
    NODE_DEAF = "node-deaf"  # N2: no packet in
    NODE_PART = "node-part"  # N3: it and the next node lose each other, and nobody else
    NODE_DELAY = "node-delay"  # N4: every packet late, both ways
    JOB_SCALE = "job-scale"  # `elasticd scale` to a node less, and back later
    ETCD_KILL = "etcd-kill"  # a single member: E3 for a moment; of three: E1
    ETCD_STOP = "etcd-stop"
    ETCD_LEADER_KILL = "etcd-leader-kill"  # E2
    ETCD_LEADER_STOP = "etcd-leader-stop"  # E2
    ETCD_QUORUM_STOP = "etcd-quorum-stop"  # E3
    POD_DELETE = "pod-delete"  # K1: with the grace that its DaemonSet gives
    POD_FORCE_DELETE = "pod-force-delete"  # K2: without any
    CONTAINER_KILL = "container-kill"  # P8, K2: SIGKILL to all of an agent's container
    NODE_CORDON = "node-cordon"  # K3, K5
    NODE_EVICT = "node-evict"  # K3: cordoned, and evicted what no DaemonSet owns
    KUBELET_STOP = "kubelet-stop"  # K2: frozen, until the node counts as NotReady, and woken
    OPERATOR_KILL = "operator-kill"  # All pods of the operator, by force
    NODE_TAINT = "node-taint"  # K1: with a taint that says that the node goes
    NODE_OBJECT_DELETE = "node-object-delete"  # K5: and made again, as by a kubelet's new start
    CONTAINERD_STOP = "containerd-stop"  # SIGSTOP of the runtime below a node's pods
    IMAGE_AWAY = "image-away"  # K6: a pod deleted by force, and its image missing on the node
    NODE_TWIN = "node-twin"  # K10: a second agent with the name of one that lives
    WORKER_OOM = "worker-oom"  # P6: the container's limit of memory is hit
    AGENT_ROLLOUT = "agent-rollout"  # K3: a new version of the agents, one node after the other
    AGENT_OTHER_VERSION = "agent-other-version"  # K8: rolled to the version before, or back
    PROMETHEUS_FEWER = "prometheus-fewer"  # The metric asks for a node less, and back later
    PROMETHEUS_STOP = "prometheus-stop"  # K9: what the autoscaler reads stands still
    PROMETHEUS_ABSURD = "prometheus-absurd"  # K9: what it reads is no number to go by
    API_STOP = "api-stop"  # K4: the API server stands still
    API_ETCD_STOP = "api-etcd-stop"  # K4: the API server's own etcd does


class Scope(StrEnum):
    """What a fault hits."""

    WORKER = "worker"
    NODE = "node"
    ETCD = "etcd"
    JOB = "job"
    CLUSTER = "cluster"
    """What serves all nodes of a Kubernetes cluster."""


class Point(StrEnum):
    """Where in a step a worker does the fault to itself."""

    ANYWHERE = ""
    """The fault comes from outside, whatever the worker does at that moment."""
    BACKWARD = "before-backward"
    OPTIMIZER = "before-optimizer"
    """The gradients are reduced, nothing is updated."""
    COMMIT = "before-commit"
    """The parameters are updated, nothing is committed: the worker is dirty."""
    COMMITTED = "after-commit"


class After(StrEnum):
    """What a fault waits for before its `wait_s` begins."""

    STEADY = "steady"
    """A commit at full size since the fault before it, whose effects are undone."""
    RESTED = "rested"
    """That, and then so many commits at full size that no slot counts as one whose processes fail
    again and again: such a slot is given up."""
    PREVIOUS = "previous"
    """The fault before it, whatever came of it: a declared overlap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What one kind needs, and how late recovery may be when a scenario does not say."""

    scope: Scope
    for_s: float
    """The default time until it is undone (SIGCONT, the agent's new start, the link's repair)."""
    recover_s: float
    """From the fault to the next committed step, at most. A liveness bound for a loaded machine of
    two cores, not a benchmark."""
    has_network: bool = False
    """True if the nodes must be in network namespaces."""
    least_etcds: int = 1
    changes_world: bool = True
    """Whether right behaviour is a new generation."""
    places: frozenset[Place] = frozenset({Place.PROCESSES})
    """Where it can be brought about."""
    aftereffect_s: float = 0.0
    """How long its effects may still come after it was undone."""
    undone_s: float = 60.0
    """The time within which it should be undone: a pod that leaves in order takes its time."""


_BOTH = frozenset(Place)


def _in_pods(
    scope: Scope, *, for_s: float, recover_s: float, undone_s: float = 60.0, **more: bool
) -> Traits:
    return Traits(
        scope=scope,
        for_s=for_s,
        recover_s=recover_s,
        undone_s=undone_s,
        places=frozenset({Place.PODS}),
        **more,
    )


_W, _N, _E = Scope.WORKER, Scope.NODE, Scope.ETCD
TRAITS: dict[Kind, Traits] = {
    Kind.WORKER_KILL: Traits(scope=_W, for_s=0.0, recover_s=5.0, places=_BOTH),
    Kind.WORKER_CRASH: Traits(scope=_W, for_s=0.0, recover_s=5.0, places=_BOTH),
    Kind.WORKER_RAISE: Traits(scope=_W, for_s=0.0, recover_s=10.0, places=_BOTH),
    Kind.WORKER_TERM: Traits(scope=_W, for_s=0.0, recover_s=5.0, places=_BOTH),
    Kind.WORKER_EXIT: Traits(scope=_W, for_s=0.0, recover_s=5.0, places=_BOTH),
    # A frozen process is seen after about a second; the SIGCONT comes to a dead one then.
    Kind.WORKER_STOP: Traits(scope=_W, for_s=6.0, recover_s=10.0, places=_BOTH),
    # No progress is something else than frozen: the limit is a matter of the job's own setting.
    Kind.WORKER_HANG: Traits(scope=_W, for_s=0.0, recover_s=75.0, places=_BOTH),
    Kind.WORKER_GIL: Traits(scope=_W, for_s=0.0, recover_s=10.0, places=_BOTH),
    Kind.WORKER_SLOW: Traits(
        scope=_W, for_s=3.0, recover_s=10.0, changes_world=False, places=_BOTH
    ),
    Kind.AGENT_KILL: Traits(scope=_N, for_s=1.0, recover_s=8.0),
    # The TTL, the time of an election, and the guard of a pool whose agent stands still.
    Kind.AGENT_STOP: Traits(scope=_N, for_s=6.0, recover_s=15.0, places=_BOTH),
    Kind.NODE_KILL: Traits(scope=_N, for_s=1.0, recover_s=10.0),
    Kind.NODE_STOP: Traits(scope=_N, for_s=6.0, recover_s=15.0),
    Kind.NODE_LEAVE: Traits(scope=_N, for_s=1.0, recover_s=5.0),
    Kind.NODE_DRAIN: Traits(scope=_N, for_s=2.0, recover_s=5.0),
    Kind.JOB_SCALE: Traits(scope=Scope.JOB, for_s=2.0, recover_s=5.0, places=_BOTH),
    Kind.NODE_CUT: Traits(scope=_N, for_s=6.0, recover_s=15.0, has_network=True, places=_BOTH),
    Kind.NODE_MUTE: Traits(scope=_N, for_s=6.0, recover_s=15.0, has_network=True, places=_BOTH),
    Kind.NODE_DEAF: Traits(scope=_N, for_s=6.0, recover_s=15.0, has_network=True, places=_BOTH),
    # The silence of a connection (15 s), perhaps a formation that nobody can complete (10 s).
    Kind.NODE_PART: Traits(scope=_N, for_s=30.0, recover_s=45.0, has_network=True, places=_BOTH),
    Kind.NODE_DELAY: Traits(
        scope=_N, for_s=4.0, recover_s=15.0, has_network=True, changes_world=False
    ),
    Kind.ETCD_KILL: Traits(scope=_E, for_s=1.0, recover_s=5.0, changes_world=False, places=_BOTH),
    Kind.ETCD_STOP: Traits(scope=_E, for_s=1.0, recover_s=5.0, changes_world=False, places=_BOTH),
    Kind.ETCD_LEADER_KILL: Traits(
        scope=_E, for_s=3.0, recover_s=5.0, least_etcds=3, changes_world=False
    ),
    Kind.ETCD_LEADER_STOP: Traits(
        scope=_E, for_s=3.0, recover_s=5.0, least_etcds=3, changes_world=False
    ),
    # Leases that ran out are taken away, and their nodes come again, after the quorum is back.
    # Steps go on until then, so a commit alone shows nothing.
    Kind.ETCD_QUORUM_STOP: Traits(
        scope=_E, for_s=4.0, recover_s=5.0, least_etcds=3, changes_world=False, aftereffect_s=4.0
    ),
    # Undone when the DaemonSet's next pod is ready, which imports torch first. A pod that is told
    # to go waits for its keepers, and its DaemonSet for it.
    Kind.POD_DELETE: _in_pods(_N, for_s=0.0, recover_s=10.0, undone_s=180.0),
    Kind.POD_FORCE_DELETE: _in_pods(_N, for_s=0.0, recover_s=10.0, undone_s=180.0),
    Kind.CONTAINER_KILL: _in_pods(_N, for_s=0.0, recover_s=10.0, undone_s=180.0),
    Kind.NODE_CORDON: _in_pods(_N, for_s=8.0, recover_s=10.0),
    Kind.NODE_EVICT: _in_pods(_N, for_s=15.0, recover_s=30.0, undone_s=120.0),
    # A node that is silent counts as NotReady after 40 s by default, on the testbed after 12 s, and
    # is drained 10 s later.
    Kind.KUBELET_STOP: _in_pods(_N, for_s=60.0, recover_s=10.0, undone_s=120.0),
    Kind.OPERATOR_KILL: _in_pods(
        Scope.CLUSTER, for_s=0.0, recover_s=10.0, undone_s=120.0, changes_world=False
    ),
    Kind.NODE_TAINT: _in_pods(_N, for_s=8.0, recover_s=10.0),
    # Kubernetes takes the pods of a node away that has no object for 40 s.
    Kind.NODE_OBJECT_DELETE: _in_pods(_N, for_s=12.0, recover_s=10.0, undone_s=120.0),
    # A kubelet says NotReady when its runtime was silent for 30 s.
    Kind.CONTAINERD_STOP: _in_pods(_N, for_s=15.0, recover_s=10.0, changes_world=False),
    Kind.IMAGE_AWAY: _in_pods(_N, for_s=12.0, recover_s=10.0, undone_s=240.0),
    Kind.NODE_TWIN: _in_pods(_N, for_s=1.0, recover_s=10.0, undone_s=120.0, changes_world=False),
    Kind.WORKER_OOM: _in_pods(_W, for_s=3.0, recover_s=20.0),
    # Three pods, each of which leaves in order, waits for its keepers and imports torch.
    Kind.AGENT_ROLLOUT: _in_pods(Scope.CLUSTER, for_s=1.0, recover_s=10.0, undone_s=400.0),
    Kind.AGENT_OTHER_VERSION: _in_pods(Scope.CLUSTER, for_s=1.0, recover_s=10.0, undone_s=400.0),
    # An autoscaler that looks each second, and waits a second before it takes nodes away. Undone
    # when it has: it was just replaced, to read another Prometheus.
    Kind.PROMETHEUS_FEWER: _in_pods(Scope.JOB, for_s=10.0, recover_s=10.0),
    Kind.PROMETHEUS_STOP: _in_pods(Scope.CLUSTER, for_s=15.0, recover_s=10.0, changes_world=False),
    # Each absurd answer takes 3 s, and there are ten.
    Kind.PROMETHEUS_ABSURD: _in_pods(
        Scope.CLUSTER, for_s=33.0, recover_s=10.0, changes_world=False
    ),
    # On the testbed longer than a node may be silent: afterwards nodes count as NotReady for a
    # moment, one by one, which is no reason to drain them.
    Kind.API_STOP: _in_pods(Scope.CLUSTER, for_s=15.0, recover_s=10.0, changes_world=False),
    Kind.API_ETCD_STOP: _in_pods(Scope.CLUSTER, for_s=10.0, recover_s=10.0, changes_world=False),
}
_ORDERED = frozenset(
    {
        Kind.WORKER_RAISE,
        Kind.WORKER_EXIT,
        Kind.WORKER_HANG,
        Kind.WORKER_GIL,
        Kind.WORKER_SLOW,
        Kind.WORKER_OOM,
    }
)
"""What a worker can only do to itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a schedule."""

    number: int
    """The place in the schedule, from 0."""
    kind: Kind
    after: After = After.STEADY
    wait_s: float = 0.0
    node: int = 0
    """Which node; for etcd which member, counted from the followers."""
    worker: int = 0
    """Which of the node's workers."""
    point: Point = Point.ANYWHERE
    for_s: float = 0.0
    """The time until it is undone; 0: never, or it ends by itself."""
    amount_s: float = 0.0
    """Delay of a packet, or of a slow worker's step."""
    recover_s: float = 0.0

    @property
    def is_overlap(self) -> bool:
        return self.after is After.PREVIOUS

    @property
    def is_own_deed(self) -> bool:
        """Return whether the worker does it to itself, by order."""
        return self.kind in _ORDERED or self.point is not Point.ANYWHERE

    def __str__(self) -> str:
        has_node = TRAITS[self.kind].scope in (Scope.WORKER, Scope.NODE)
        where = f"node {self.node}" if has_node else ""
        if TRAITS[self.kind].scope is Scope.WORKER:
            where += f" worker {self.worker}"
        parts = [f"{self.kind:<16}", where, self.point.value]
        if self.amount_s:
            parts.append(f"by {self.amount_s:g} s")
        if self.for_s:
            parts.append(f"for {self.for_s:g} s")
        return " ".join(part for part in parts if part)

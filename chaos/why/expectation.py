"""What `elasticd why` is right to say of each kind of fault. Pure.

Some faults cannot be told apart by anybody who stands outside of them: an agent that was killed, a
machine that lost its power and one that came back before it was missed may each be *dead*, *lost*
or *returned*, as it happens. Where more words than one are right here, that is why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from chaos.history.records import Struck, Told
from chaos.plan.fault import Kind

__all__ = ["EXPECTED", "PLANNED", "Culprit", "Expectation", "blames_nobody", "is_right"]

PLANNED = frozenset({"first_world", "joined", "scaled", "drained"})
"""Changes that somebody wished for, or that nobody is to blame for."""


class Culprit(StrEnum):
    """Whom a change must name."""

    WORKER = "worker"
    """The very process."""
    NODE = "node"
    """The node is lost."""
    ANY_NODE = "any-node"
    """Some node is lost: what was struck serves all of them."""
    ONE_OF_TWO = "one-of-two"
    """Two nodes do not reach each other: one of them is lost, and not both."""
    NOBODY = "nobody"
    """It was wished for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    reasons: frozenset[str]
    culprit: Culprit
    signal: str = ""
    """The signal that ended the worker; empty: any signal, or none."""
    exit_code: int | None = None
    exception: str = ""
    """A part of the last line of the traceback."""
    least_s: float = 0.0
    """A fault that was over so soon may have passed without anybody having to do something."""
    may_pass: bool = False
    """Right behaviour is no change; if there is one, these words are right."""


_GONE = frozenset({"node_dead", "node_lost", "node_returned"})
_GOODBYE = frozenset({"node_left", "preempted"})
_SILENT = frozenset({"node_lost", "node_dead", "cut_off"})
"""What no packet comes from any more: a lease that ran out, or a connection that broke."""
_LEASE_S = 4.0
"""A lease, its end, and the time of an election."""


def _worker(reason: str, **more: object) -> Expectation:
    return Expectation(reasons=frozenset({reason}), culprit=Culprit.WORKER, **more)  # type: ignore[arg-type]


def _node(reasons: frozenset[str], **more: object) -> Expectation:
    return Expectation(reasons=reasons, culprit=Culprit.NODE, **more)  # type: ignore[arg-type]


_ETCD = Expectation(
    reasons=frozenset(),
    culprit=Culprit.NOBODY,
    may_pass=True,
)
"""etcd is nobody's node: nothing may change, and nobody may be blamed."""
_UNHURT = _node(_SILENT | {"node_returned"}, may_pass=True)

EXPECTED: Mapping[str, Expectation] = {
    Kind.WORKER_KILL: _worker("worker_killed", signal="SIGKILL"),
    Kind.WORKER_TERM: _worker("worker_killed", signal="SIGTERM"),
    Kind.WORKER_CRASH: _worker("worker_failed", signal="SIGSEGV"),
    Kind.WORKER_RAISE: _worker("worker_failed", exception="Ordered"),
    Kind.WORKER_EXIT: _worker("worker_failed", exit_code=3),
    # Frozen is seen after a second; awake before, it goes on.
    Kind.WORKER_STOP: _worker("worker_hung", least_s=2.0),
    Kind.WORKER_HANG: _worker("worker_hung"),
    Kind.WORKER_GIL: _worker("worker_hung"),
    Kind.WORKER_SLOW: _worker("worker_hung", may_pass=True),
    Kind.AGENT_KILL: _node(_GONE),
    Kind.AGENT_STOP: _node(_SILENT, least_s=_LEASE_S),
    Kind.NODE_KILL: _node(_GONE),
    Kind.NODE_STOP: _node(_SILENT, least_s=_LEASE_S),
    Kind.NODE_LEAVE: _node(_GOODBYE),
    Kind.NODE_DRAIN: _node(frozenset({"drained"})),
    Kind.JOB_SCALE: Expectation(reasons=frozenset({"scaled"}), culprit=Culprit.NOBODY),
    Kind.NODE_CUT: _node(_SILENT, least_s=_LEASE_S),
    Kind.NODE_MUTE: _node(_SILENT, least_s=_LEASE_S),
    Kind.NODE_DEAF: _node(_SILENT, least_s=_LEASE_S),
    Kind.NODE_PART: Expectation(reasons=frozenset({"cut_off"}), culprit=Culprit.ONE_OF_TWO),
    Kind.NODE_DELAY: _UNHURT,
    Kind.ETCD_KILL: _ETCD,
    Kind.ETCD_STOP: _ETCD,
    Kind.ETCD_LEADER_KILL: _ETCD,
    Kind.ETCD_LEADER_STOP: _ETCD,
    # Away for longer than a lease: whose lease ran out is lost, though none is to blame.
    Kind.ETCD_QUORUM_STOP: Expectation(
        reasons=frozenset({"node_lost", "node_returned"}),
        culprit=Culprit.ANY_NODE,
        may_pass=True,
    ),
    Kind.POD_DELETE: _node(_GOODBYE),
    # The kubelet sends SIGTERM even so, and the agent may get to say goodbye.
    Kind.POD_FORCE_DELETE: _node(_GONE | _GOODBYE),
    Kind.CONTAINER_KILL: _node(_GONE),
    # Taken back before the operator and the agents had acted on it, it changes nothing.
    Kind.NODE_CORDON: _node(frozenset({"drained"}), least_s=3.0),
    Kind.NODE_EVICT: _node(frozenset({"drained"})),
    Kind.KUBELET_STOP: _node(frozenset({"drained"})),
    Kind.OPERATOR_KILL: _ETCD,
    Kind.NODE_TAINT: _node(frozenset({"drained"})),
    Kind.NODE_OBJECT_DELETE: _node(frozenset({"drained"})),
    Kind.CONTAINERD_STOP: _ETCD,
    Kind.IMAGE_AWAY: _node(_GONE | _GOODBYE),
    Kind.NODE_TWIN: _ETCD,
    Kind.WORKER_OOM: _worker("worker_killed", signal="SIGKILL", exception="memory"),
    # Each node in its turn; `why` names the one that left.
    Kind.AGENT_ROLLOUT: Expectation(reasons=_GOODBYE, culprit=Culprit.ANY_NODE),
    Kind.AGENT_OTHER_VERSION: Expectation(reasons=_GOODBYE, culprit=Culprit.ANY_NODE),
    Kind.PROMETHEUS_FEWER: Expectation(reasons=frozenset({"scaled"}), culprit=Culprit.NOBODY),
    Kind.PROMETHEUS_STOP: _ETCD,
    Kind.PROMETHEUS_ABSURD: _ETCD,
    Kind.API_STOP: _ETCD,
    Kind.API_ETCD_STOP: _ETCD,
}


def blames_nobody(told: Told) -> bool:
    """Return whether it says that a collective broke, and not who broke it."""
    return told.reason == "collective_broken" and not told.node and not told.lost


def is_right(told: Told, fault: Struck, pids: Mapping[tuple[int, int], int]) -> bool:
    """Return whether what was told of a change names this fault, and whom it struck.

    `pids`: the process that was a rank of a generation.
    """
    want = EXPECTED[fault.kind]
    if told.reason not in want.reasons:
        return False
    match want.culprit:
        case Culprit.WORKER:
            if told.node != fault.node or (want.signal and told.signal != want.signal):
                return False
            if want.exit_code is not None and told.exit_code != want.exit_code:
                return False
            # Whoever ended before it came into the world is known by its node alone.
            pid = pids.get((told.of_generation, told.rank), fault.pid)
            return want.exception in told.exception and pid == fault.pid
        case Culprit.NODE:
            return fault.node in told.lost
        case Culprit.ANY_NODE:
            return bool(told.lost)
        case Culprit.ONE_OF_TWO:
            return len({fault.node, fault.other_node} & set(told.lost)) == 1
        case Culprit.NOBODY:
            return True

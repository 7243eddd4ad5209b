"""The closed lists of words for why a decision was taken: the same in log, metric, record, test."""

from enum import StrEnum

__all__ = ["Cause", "Phase", "Reason"]


class Reason(StrEnum):
    """Why a world was replaced, or a node left out of one."""

    FIRST_WORLD = "first_world"
    WORKER_FAILED = "worker_failed"
    """A worker raised, exited with a code, or died of its own fault (SIGSEGV, SIGABRT)."""
    WORKER_KILLED = "worker_killed"
    """Somebody or the kernel killed a worker (SIGKILL, SIGTERM)."""
    WORKER_HUNG = "worker_hung"
    """A worker was frozen, or was the last to arrive where all others waited for it."""
    NO_OUTPUT = "no_output"
    """No rank wrote anything for as long as `--output-timeout` allows (restart mode)."""
    COLLECTIVE_BROKEN = "collective_broken"
    """Workers failed with the consequence of a peer's death, and nobody saw that peer die."""
    NODE_LOST = "node_lost"
    """The node's lease ran out."""
    NODE_DEAD = "node_dead"
    """The agent's connection broke, and a probe found nobody there."""
    CUT_OFF = "cut_off"
    """The node reaches etcd, and cannot connect to other nodes of the world."""
    NODE_LEFT = "node_left"
    """The node's agent said goodbye."""
    NODE_RETURNED = "node_returned"
    """The same node came back as a new incarnation before its loss was noticed."""
    DRAINED = "drained"
    PREEMPTED = "preempted"
    """Reserved: nothing writes it. A node that is preempted gets SIGTERM, and is `NODE_LEFT`."""
    JOINED = "joined"
    SCALED = "scaled"
    DID_NOT_ARRIVE = "did_not_arrive"
    """The node was named in a world, but its workers had not started when the formation's deadline
    passed."""
    BELOW_MIN = "below_min"
    """Reserved: nothing writes it. The job's phase is `waiting`, with the reason of the change."""
    STOP_REQUESTED = "stop_requested"
    ALL_SUCCEEDED = "all_succeeded"
    BUDGET_SPENT = "budget_spent"
    REPEATED_ERROR = "repeated_error"
    """The same exception at the same line twice: with no group ever formed, at the same step, or
    on all ranks at once."""
    ENDS_JOB = "ends_job"
    """A rank raised an error that says that the job must end (`--on-nan stop`)."""
    ISOLATED = "isolated"
    """Reserved: nothing writes it. Others see a node that is cut off from etcd as `NODE_LOST`."""
    OTHER = "other"
    """A word that a newer version of elasticd wrote, and this one does not know."""

    @property
    def is_planned(self) -> bool:
        """Return whether the change was asked for: a drain, a stop, another size, a join.

        The workers then get `shutdown_timeout_s` of the job to stop, otherwise `failure_timeout_s`.
        `_ORDERLY` has the reasons that were not asked for and that are no fault either. Whether one
        change can be made without an abort is another question: `WorldChange.is_orderly`.
        """
        return self in _PLANNED

    @property
    def is_fault(self) -> bool:
        """Return whether something broke: nobody has wished, begun or ended anything."""
        return self not in _PLANNED | _ORDERLY

    @property
    def cause(self) -> "Cause | None":
        """Return the part of the restart budget that pays for the change; None if no part does."""
        return _CAUSES.get(self)


class Cause(StrEnum):
    """The parts of the restart budget."""

    USER_ERROR = "user_error"
    NODE_LOSS = "node_loss"
    PREEMPTION = "preemption"
    RESIZE = "resize"


class Phase(StrEnum):
    """Where a job stands."""

    PENDING = "pending"
    """It is submitted, and has no world yet."""
    RUNNING = "running"
    WAITING = "waiting"
    """It had a world, and has too few members for the next one. It goes on by itself."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    OTHER = "other"
    """A word of a newer version of elasticd: the job is not known to be over."""

    @property
    def is_final(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED)


_PLANNED = frozenset(
    {Reason.DRAINED, Reason.PREEMPTED, Reason.JOINED, Reason.SCALED, Reason.STOP_REQUESTED}
)
_ORDERLY = frozenset({Reason.FIRST_WORLD, Reason.NODE_LEFT, Reason.ALL_SUCCEEDED})
"""A world begins, a node says goodbye, a job ends: expected, and not wished by a person."""
_CAUSES = {
    Reason.WORKER_FAILED: Cause.USER_ERROR,
    Reason.WORKER_KILLED: Cause.NODE_LOSS,
    Reason.WORKER_HUNG: Cause.NODE_LOSS,
    Reason.NO_OUTPUT: Cause.NODE_LOSS,
    Reason.COLLECTIVE_BROKEN: Cause.NODE_LOSS,
    Reason.NODE_LOST: Cause.NODE_LOSS,
    Reason.NODE_DEAD: Cause.NODE_LOSS,
    Reason.CUT_OFF: Cause.NODE_LOSS,
    Reason.NODE_LEFT: Cause.PREEMPTION,
    Reason.NODE_RETURNED: Cause.NODE_LOSS,
    Reason.DID_NOT_ARRIVE: Cause.NODE_LOSS,
    Reason.DRAINED: Cause.RESIZE,
    Reason.PREEMPTED: Cause.PREEMPTION,
    Reason.JOINED: Cause.RESIZE,
    Reason.SCALED: Cause.RESIZE,
}

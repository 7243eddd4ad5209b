"""The closed list of causes to which the time of a slot can count."""

from enum import StrEnum

__all__ = ["WHOLE", "TimeCause"]


class TimeCause(StrEnum):
    """The cause of a second of a slot: account, record, metric and table use the same words.

    Another enum, `records.reason.Cause`, says which part of the restart budget pays.
    """

    TRAIN = "train"
    """The time of steps that counted. In restart mode without reported steps: the time in which
    workers run."""
    REDONE = "redone"
    """The time of steps that were repeated, and the work on a step that was lost with its world."""
    START = "start"
    """The time in which processes start (imports, the model, the first world up to its first
    commit), or end with the job: a slot whose worker has ended well is held until all have, and
    until etcd is told of it."""
    NOTICE = "notice"
    """The time from the fault until this node knew of it."""
    RECOVER = "recover"
    """The time from then until the slot's next commit."""
    RESIZE = "resize"
    """The time of a planned change: from the last step in the world before to the first commit
    after it."""
    RESTORE = "restore"
    """The time in which the state was read from a checkpoint."""
    SAVE = "save"
    """The time in which a step waited for a copy of the state, or the job's end for its last
    checkpoint."""
    DATA = "data"
    """The time in which the loader had no batch ready, or made one."""
    PAUSE = "pause"
    """The time in which the script said that no step would end: `state.pause`."""
    WAIT = "wait"
    """The time in which the slot is ready and there are too few nodes for a world: the job is
    pending, or below MIN."""
    SPARE = "spare"
    """The time in which the slot is ready and the job has as many nodes as it wants."""
    SUSPENDED = "suspended"
    """The time in which an operator has taken the job's nodes."""
    UNEXPLAINED = "unexplained"
    """The time that no rule claims."""


WHOLE = frozenset({TimeCause.PAUSE, TimeCause.WAIT, TimeCause.SPARE, TimeCause.SUSPENDED})
"""The causes whose time later facts never divide: it counts as it passes."""

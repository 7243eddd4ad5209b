"""The closed list of causes to which the time of a slot can go."""

from enum import StrEnum

__all__ = ["WHOLE", "TimeCause"]


class TimeCause(StrEnum):
    """One word for each second of each slot: the same in account, record, metric and table.

    Another enum, `records.reason.Cause`, says which part of the restart budget pays.
    """

    TRAIN = "train"
    """The time of steps that counted. In restart mode, where no steps are seen: the workers run."""
    REDONE = "redone"
    """The time of steps that were repeated, and the work on a step that was lost with its world."""
    START = "start"
    """The processes start (imports, the model, the first world up to its first commit), or end with
    the job."""
    NOTICE = "notice"
    """The time from the fault until this node knew of it."""
    RECOVER = "recover"
    """The time from then to the slot's next commit."""
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
    """The slot is ready, and there are too few nodes for a world: the job is pending, or below
    MIN."""
    SPARE = "spare"
    """The slot is ready, and the job has as many nodes as it wants."""
    SUSPENDED = "suspended"
    """An operator took the job's nodes for a while."""
    UNEXPLAINED = "unexplained"
    """The time that no rule claims."""


WHOLE = frozenset({TimeCause.PAUSE, TimeCause.WAIT, TimeCause.SPARE, TimeCause.SUSPENDED})
"""Causes whose time is never divided by what is learnt later: it counts as it passes."""

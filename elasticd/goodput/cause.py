"""The closed list of what the time of a slot may have gone to."""

from enum import StrEnum

__all__ = ["WHOLE", "TimeCause"]


class TimeCause(StrEnum):
    """One word for each second of each slot: the same in account, record, metric and table.

    Not to be confused with `records.reason.Cause`, which says what part of the restart budget pays.
    """

    TRAIN = "train"
    """Steps that counted. In restart mode, where no steps are seen: the workers run."""
    REDONE = "redone"
    """Steps that were done again, and the work on a step that was lost with its world."""
    START = "start"
    """The processes come up: imports, the model, the first world up to its first commit; or they
    end with the job."""
    NOTICE = "notice"
    """From the fault until this node knew of it."""
    RECOVER = "recover"
    """From then to the slot's next commit."""
    RESIZE = "resize"
    """A planned change: from the last step in the world before to the first commit after it."""
    RESTORE = "restore"
    """The state was read from a checkpoint."""
    SAVE = "save"
    """A step waited for a copy of the state, or the end of the job for its last checkpoint."""
    DATA = "data"
    """The loader had no batch ready, or made one."""
    PAUSE = "pause"
    """The script said that no step would end: `state.pause`."""
    WAIT = "wait"
    """Ready, and there are too few nodes for a world: pending, or below MIN."""
    SPARE = "spare"
    """Ready, and the job has as many nodes as it wants."""
    SUSPENDED = "suspended"
    """An operator took the job's nodes for a while."""
    UNEXPLAINED = "unexplained"
    """No rule claims it."""


WHOLE = frozenset({TimeCause.PAUSE, TimeCause.WAIT, TimeCause.SPARE, TimeCause.SUSPENDED})
"""What nothing learnt later can be a part of: such time counts as it goes by."""

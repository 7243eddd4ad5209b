"""A failure that a person can use: who, where, what, and where the full log is."""

from dataclasses import dataclass, replace

from elasticd.records.ids import Generation, Incarnation, NodeId, Nonce, Rank, Slot
from elasticd.records.reason import Reason

__all__ = ["Failure", "SLOT_LIMIT", "TRACEBACK_LIMIT_BYTES", "left_early", "returned_early"]

TRACEBACK_LIMIT_BYTES = 4096
"""A record stays small: etcd takes 1.5 MiB a request, and a thousand ranks may fail at once."""


_NO_ROOM = ("No space left on device", "Disk quota exceeded", "[Errno 28]", "[Errno 122]")
"""The words of the C library in English, and Python's numbers of ENOSPC and EDQUOT on Linux."""

SLOT_LIMIT = 8
"""Processes of one slot that end one after the other before the slot is left out: with the pauses
between them about two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How one worker of one generation ended, when it did not end well."""

    node: NodeId
    incarnation: Incarnation
    host: str
    generation: Generation
    rank: Rank
    local_rank: int
    slot: Slot
    nonce: Nonce
    exit_code: int | None = None
    signal: str = ""
    """By name, as in "SIGSEGV"; empty if it exited by itself."""
    exception: str = ""
    """Type and text, as in "ValueError: too hot"; empty if there was none to see."""
    where: str = ""
    """File and line of the innermost frame of the user's, as in "/x/train.py:12"."""
    traceback: str = ""
    """The last lines, at most TRACEBACK_LIMIT_BYTES."""
    log_path: str = ""
    is_secondary: bool = False
    """Looks like the echo of another rank's death (a broken collective)."""
    has_group: bool | None = None
    """Whether it had formed a process group; None: cannot be known."""
    step: int | None = None
    """Steps that it had applied; None: not known (restart mode)."""
    ends_job: bool = False
    """Whatever raised said that no other process would do better (`--on-nan stop`)."""
    in_a_row: int = 1
    """Processes of its slot that ended so one after the other, soon after their start, this one
    included (in-process mode)."""
    is_hung: bool = False
    """It was ended by its agent, because it was frozen or made no progress."""

    @property
    def reason(self) -> Reason:
        if self.is_hung:
            return Reason.WORKER_HUNG
        if self.is_secondary:
            return Reason.COLLECTIVE_BROKEN
        outside = self.signal in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
        return Reason.WORKER_KILLED if outside else Reason.WORKER_FAILED

    @property
    def ending(self) -> str:
        """Exit code or signal, for people."""
        if self.signal:
            return f"killed by {self.signal}"
        if self.exit_code is None:
            return "not started"
        return f"exit code {self.exit_code}"

    @property
    def has_full_disk(self) -> bool:
        """The script was told that no room is left, or no more of its quota: not its own mistake.

        A worker's own output never raises this.
        """
        return any(words in self.exception for words in _NO_ROOM)

    @property
    def is_last_of_slot(self) -> bool:
        """No other process is started in its slot."""
        return self.in_a_row >= SLOT_LIMIT

    def is_same_error(self, other: "Failure") -> bool:
        """True if both raised the same exception at the same line."""
        return bool(self.where) and (self.exception, self.where) == (other.exception, other.where)

    def is_same_process(self, other: "Failure") -> bool:
        """True if both tell of the end of one process: it was told twice, and happened once."""
        return (self.node, self.incarnation, self.slot, self.nonce) == (
            other.node,
            other.incarnation,
            other.slot,
            other.nonce,
        )


def returned_early(failure: Failure) -> Failure:
    """Say of a rank that it is out of `train` while others wait for it there: for good."""
    return replace(
        failure,
        is_hung=False,
        is_secondary=False,
        ends_job=True,
        traceback="",
        exception=f"CallError: rank {failure.rank} returned from train after step {failure.step}, "
        "and other ranks wait for it in a collective: return on all ranks after the same step.",
    )


def left_early(failure: Failure) -> Failure:
    """Say of a rank that exited with 0 that others still needed it."""
    return replace(
        failure,
        exception=f"rank {failure.rank} exited with 0 while other ranks still waited for it in a "
        "collective: have all ranks make the same number of steps (uneven data?).",
    )

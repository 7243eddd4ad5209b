"""A failure as a person can use it: who, where, what, and where the full log is."""

import re
import signal
from dataclasses import dataclass, replace

from elasticd.records.ids import Generation, Incarnation, NodeId, Nonce, Rank, Slot
from elasticd.records.reason import Reason

__all__ = [
    "ERROR_WORDS",
    "Failure",
    "SLOT_LIMIT",
    "TEXT_WORDS",
    "TRACEBACK_LIMIT_BYTES",
    "left_early",
    "returned_early",
    "signal_name",
    "signal_number",
]

TRACEBACK_LIMIT_BYTES = 4096
"""The size limit of a traceback: etcd takes 1.5 MiB a request, and a thousand ranks may fail at
once."""


_NO_ROOM = ("No space left on device", "Disk quota exceeded", "[Errno 28]", "[Errno 122]")
"""How the C library says ENOSPC and EDQUOT in English, and Python's numbers of them on Linux."""

_NAMELESS = re.compile(r"signal ([0-9]{1,3})")

_STACKS = re.compile(r"gen-([0-9]{1,9})\.(.+)\.stacks\.txt")

SLOT_LIMIT = 8
"""After this many processes of one slot that ended one after the other, the slot is left out: with
the pauses between them it takes about two minutes."""

_PEER_FAILURE = (
    r"connection (closed|reset) by peer|connection refused|broken pipe|DistNetworkError"
    r"|remote (process|peer) (has )?exited"
    r"|nccl(remote|system|internal)error|communicator (was|has been) aborted"
    r"|Watchdog caught collective operation timeout"
    r"|timed out waiting \d+ms for (send|recv)|socket timeout"
    r"|(sendbytes|recvvalue) failed"
    r"|store is (closed|no longer)|client socket has (failed|timed out)|broken by its peer"
)

TEXT_WORDS = re.compile(_PEER_FAILURE, re.IGNORECASE)
"""What collectives and stores say when somebody else died or the group was aborted, in a text of
which nobody knows the type of the error. A script's own network errors may look the same; they then
count as a node's loss in the budget, which is larger."""

ERROR_WORDS = re.compile(
    _PEER_FAILURE
    + r"|connection (was )?(likely )?(closed|reset|refused)|nccl communicator"
    + r"|timed out (waiting|after)|client socket has|wait timeout|(send|recv) failed",
    re.IGNORECASE,
)
"""For a RuntimeError or an OSError: these words may be wider, since a library that only waits for a
subprocess or a web site raises its own types."""


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
    """The name of the signal, as in "SIGSEGV"; empty if it exited by itself."""
    exception: str = ""
    """Type and text, as in "ValueError: too hot"; empty if there was none to see."""
    where: str = ""
    """File and line of the innermost frame of the user's code, as in "/x/train.py:12"."""
    traceback: str = ""
    """The last lines, at most TRACEBACK_LIMIT_BYTES."""
    log_path: str = ""
    is_secondary: bool = False
    """True if it looks like the consequence of another rank's death (a broken collective)."""
    has_group: bool | None = None
    """Whether it had formed a process group; None if that cannot be known."""
    step: int | None = None
    """The steps that it had applied; None if not known (restart mode)."""
    ends_job: bool = False
    """True if the error said that no other process would do better (`--on-nan stop`)."""
    has_lost_state: bool = False
    """True if it ended only because others were lost before the first snapshot of a sharded state:
    that loss is the cause, and new processes begin the training anew."""
    in_a_row: int = 1
    """How many processes of its slot, this one included, ended one after the other soon after their
    start (in-process mode)."""
    is_hung: bool = False
    """True if its agent ended it, because it was frozen or made no progress."""

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
        """Return the exit code or signal, for people."""
        if self.signal:
            return f"killed by {self.signal}"
        if self.exit_code is None:
            return "not started"
        return f"exit code {self.exit_code}"

    @property
    def has_full_disk(self) -> bool:
        """Return whether the script found no room left, or no more of its quota: that is not its
        own mistake.

        A worker's own output never raises this.
        """
        return any(words in self.exception for words in _NO_ROOM)

    @property
    def is_last_of_slot(self) -> bool:
        """Return whether no other process is started in its slot."""
        return self.in_a_row >= SLOT_LIMIT

    @property
    def stacks_generation(self) -> Generation | None:
        """Return the generation whose stacks its node wrote into a file; None if it wrote none.

        Mostly that is its own, and the one before if its world had not begun for it yet.
        """
        found = _STACKS.fullmatch(self.log_path.rpartition("/")[2])
        return Generation(int(found[1])) if found and found[2] == self.node else None

    def is_same_error(self, other: "Failure") -> bool:
        """Return whether both raised the same exception at the same line."""
        return bool(self.where) and (self.exception, self.where) == (other.exception, other.where)

    def is_same_process(self, other: "Failure") -> bool:
        """Return whether both describe the end of one process, which was reported twice and
        happened once.
        """
        return (self.node, self.incarnation, self.slot, self.nonce) == (
            other.node,
            other.incarnation,
            other.slot,
            other.nonce,
        )


def returned_early(failure: Failure) -> Failure:
    """Return the failure of a rank that has left `train` for good while others wait for
    it there.
    """
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
    """Return the failure of a rank that exited with 0 although others still needed it."""
    return replace(
        failure,
        exception=f"rank {failure.rank} exited with 0 while other ranks still waited for it in a "
        "collective: have all ranks make the same number of steps (uneven data?).",
    )


def signal_name(code: int) -> str:
    """Return the name of a signal, SIGKILL for -9; empty for an exit code.

    Most real-time signals have no name.
    """
    if code >= 0:
        return ""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def signal_number(name: str) -> int:
    """Return the number of the signal that `signal_name` gave this name; 0 if there is none."""
    if nameless := _NAMELESS.fullmatch(name):
        return int(nameless[1])
    return int(signal.Signals.__members__.get(name, 0))

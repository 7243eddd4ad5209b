"""The effects that an agent shall carry out for one job; their names are imperatives.

One function of the shell carries each effect out and answers with exactly one event, also when it
fails. The shell drops effects that write if the lease's deadline has passed by then.
"""

from dataclasses import dataclass

from elasticd.records.account.incident import Incident
from elasticd.records.ids import Generation, NodeId, Nonce, Slot
from elasticd.records.job import JobStatus
from elasticd.records.member import Member, Peer, Result, StoreAddress
from elasticd.records.world import Placement, World

__all__ = [
    "Effect",
    "EnterWorld",
    "FindOldest",
    "HoldPeers",
    "LeaveWorld",
    "Observe",
    "PrepareWorker",
    "ProposeWorld",
    "Retire",
    "StartWorker",
    "StopWorker",
    "UseStore",
    "Withdraw",
    "WriteIncident",
    "WriteMember",
    "WriteResult",
    "WriteStatus",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observe:
    """Watch all members and results (`nodes` None), or only the member records of these nodes.

    The first answer of a watch is a list, so asking again is also the slow re-read. `is_reread`:
    read world, status and wants again too, since a watch of those may have missed something as
    well.
    """

    nodes: tuple[NodeId, ...] | None
    is_reread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FindOldest:
    """Read who the oldest members are; the answer is OldestFound."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldPeers:
    """Keep a connection to each of these agents, and to no others, for this job."""

    peers: tuple[Peer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMember:
    """Put this node's member record, with its lease; the answer is MemberWritten."""

    member: Member


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeWorld:
    """If the world still has this revision, put the next one, the status and our own record.

    Otherwise put our own record alone. The answer is ProposalAnswered.
    """

    world: World
    status: JobStatus
    world_revision: int
    status_revision: int
    members_revision: int | None
    """No member may have changed since this revision; None after several lost races, then only the
    world decides."""
    member: Member | None
    oldest_kept: Generation
    """Incidents of generations before this one are deleted with it."""
    unneeded_results: tuple[NodeId, ...]
    """The results of these nodes are deleted too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStatus:
    """If the status still has this revision, put it; a final one ends the job's activity."""

    status: JobStatus
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteIncident:
    incident: Incident


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Say goodbye: delete the member record and put the result, in one step; the answer is
    WithdrawalDone.

    An incarnation that was in no world leaves the result of the node's earlier incarnation as it
    is: the standing world may count on its exits. A world that names this one meanwhile refuses the
    goodbye, since its members must read that this one has left.
    """

    result: Result
    world_revision: int | None
    """The revision of the world that we know; None once the job is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorker:
    """Start a worker; the answer is WorkerStarted or WorkerFailed."""

    world: World
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareWorker:
    """Start a worker that belongs to no world yet; the answer is that of StartWorker."""

    slot: Slot
    nonce: Nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterWorld:
    """Send an attached worker its next world; its steps there are seen as events."""

    slot: Slot
    nonce: Nonce
    world: World
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveWorld:
    """Order an attached worker to leave its world and wait; seen as WorkerLeft."""

    slot: Slot
    nonce: Nonce
    at_step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWorker:
    """Stop a worker; its end is seen as WorkerExited."""

    slot: Slot
    nonce: Nonce
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UseStore:
    """Take note that this fresh store of the node is a world's now; older worlds' may be closed."""

    store: StoreAddress
    is_begun: bool = True
    """False if that world is over, and never began here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    """End the job's pool and its watches and forget it, since nothing of the job is left here."""

    is_job_over: bool
    rejoin_after_s: float | None = None
    """How long to wait before coming back as a new incarnation."""
    is_cut_off: bool = False
    """True if it must not come back before it can reach the others, since it was left out for
    that."""
    keeps_workers: bool = False
    """True if the next incarnation takes over the workers, which wait, with their state."""


Effect = (
    Observe
    | FindOldest
    | HoldPeers
    | WriteMember
    | ProposeWorld
    | WriteStatus
    | WriteResult
    | WriteIncident
    | Withdraw
    | StartWorker
    | PrepareWorker
    | EnterWorld
    | LeaveWorld
    | StopWorker
    | UseStore
    | Retire
)

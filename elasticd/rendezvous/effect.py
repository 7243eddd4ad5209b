"""What an agent shall do about one job, in the imperative.

Each is carried out by one function of the shell, which answers with exactly one event, also when
it fails. Those that write are dropped by the shell if the lease's deadline has passed by then.
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
    """Watch all members and results (`nodes` None), or the members records of these nodes only.

    The first answer of a watch is a list, so asking again is also the slow re-read. `is_reread`:
    that of world, status and wants too, as a watch of those may have missed something as well.
    """

    nodes: tuple[NodeId, ...] | None
    is_reread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FindOldest:
    """Read who the oldest members are; answers OldestFound."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldPeers:
    """Keep a connection to each of these agents, and to no others, for this job."""

    peers: tuple[Peer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMember:
    """Put this node's member record, with its lease; answers MemberWritten."""

    member: Member


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeWorld:
    """If the world still stands at the revision: put the next one, the status and our own record.

    Otherwise put our own record alone. Answers ProposalAnswered.
    """

    world: World
    status: JobStatus
    world_revision: int
    status_revision: int
    members_revision: int | None
    """No member changed since; None after several lost races, then the world alone decides."""
    member: Member | None
    oldest_kept: Generation
    """Incidents of the generations before this one are deleted with it,"""
    unneeded_results: tuple[NodeId, ...]
    """and so are the results of these nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStatus:
    """If the status still stands at the revision, put it; a final one ends the job's activity."""

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
    """Goodbye: delete the member record, put the result, in one step; answers WithdrawalDone."""

    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorker:
    """Answers WorkerStarted or WorkerFailed."""

    world: World
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareWorker:
    """Start a worker that belongs to no world yet; answers as StartWorker."""

    slot: Slot
    nonce: Nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterWorld:
    """Tell an attached worker of its next world; its steps there are seen as events."""

    slot: Slot
    nonce: Nonce
    world: World
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveWorld:
    """Tell an attached worker to leave its world and wait; seen as WorkerLeft."""

    slot: Slot
    nonce: Nonce
    at_step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWorker:
    """Its end is seen as WorkerExited."""

    slot: Slot
    nonce: Nonce
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UseStore:
    """This fresh store of ours is now a world's; those of older worlds may be closed."""

    store: StoreAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    """Nothing of the job is left here: end its pool, its watches, forget it."""

    is_job_over: bool
    rejoin_after_s: float | None = None
    """Come back as a new incarnation after this long."""
    is_cut_off: bool = False
    """Not before the others can be reached from here: for want of that we were left out."""
    keeps_workers: bool = False
    """The next incarnation takes over the workers, which wait, with their state."""


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

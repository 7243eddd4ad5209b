"""Facts, in the past tense, that the core of an agent learns about one job."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.records.account.late import NodeWait
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Life, NodeId, Nonce, Slot
from elasticd.records.job import JobStatus, Want
from elasticd.records.member import Member, Result, Stall, StoreAddress, Training
from elasticd.records.reason import Reason
from elasticd.records.world import World

__all__ = [
    "EffectDone",
    "Event",
    "LeaseEnded",
    "LeaseHeld",
    "LeaseUncertain",
    "LeaveRequested",
    "MemberDeleted",
    "MemberSeen",
    "MemberWritten",
    "MembersListed",
    "NodeWaited",
    "OldestFound",
    "PeerDied",
    "PoolChanged",
    "ProposalAnswered",
    "ResultDeleted",
    "ResultSeen",
    "ResultsListed",
    "SlotsGranted",
    "StatusSeen",
    "StatusWritten",
    "StoresChanged",
    "Ticked",
    "WantsListed",
    "WithdrawalDone",
    "WorkerAttached",
    "WorkerBroken",
    "WorkerEntered",
    "WorkerExited",
    "WorkerFailed",
    "WorkerFinished",
    "WorkerFormed",
    "WorkerLeft",
    "WorkerPaced",
    "WorkerResumed",
    "WorkerStalled",
    "WorkerStarted",
    "WorkerStepped",
    "WorkersKept",
    "WorldSeen",
]

# --- from etcd's watches (hints: late, repeated or missing ones do no harm) -----------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersListed:
    """All members at one revision (`is_all`), or those of the watched few that exist."""

    revision: int
    members: tuple[tuple[Member, int, int], ...]
    """(member, create revision, mod revision) of each."""
    watched: tuple[NodeId, ...] | None = None
    """None if the list is complete; otherwise only these nodes were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSeen:
    revision: int
    member: Member
    create_revision: int
    mod_revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDeleted:
    revision: int
    node: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestFound:
    """The oldest members, oldest first; the answer to FindOldest."""

    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSeen:
    world: World
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSeen:
    """The job's status changed; None if there is none (any more)."""

    status: JobStatus | None
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WantsListed:
    wants: Mapping[str, Want]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsListed:
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSeen:
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultDeleted:
    node: NodeId


# --- answers to effects -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberWritten:
    member: Member
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalAnswered:
    """A world was proposed: accepted (the watch will show it), refused, or etcd did not answer."""

    token: str
    accepted: bool
    is_member_written: bool
    """True if the proposer's own change is in etcd, whichever branch was taken."""
    world: World | None = None
    """The world that now stands, if it was ours."""
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusWritten:
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawalDone:
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectDone:
    """Any other effect is carried out; if not ok, the core tries again if it matters."""

    name: str
    ok: bool


# --- from the node ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsGranted:
    """This agent gives these slots to the job; if fewer than before, others need the rest."""

    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersKept:
    """An earlier incarnation of this node left these attached workers behind, in no world."""

    workers: tuple[tuple[Slot, Nonce], ...]
    with_state: tuple[Slot, ...] = ()
    """The workers that have trained: a world needs one of them to go on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChanged:
    """The warm pool can start workers, or cannot."""

    is_ready: bool
    failure: Failure | None = None
    """Why it never will, if that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoresChanged:
    """These are the fresh TCPStores of this node, the next one to use first."""

    stores: tuple[StoreAddress, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfWorker:
    slot: Slot
    nonce: Nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(_OfWorker):
    """The pool has forked or spawned it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailed(_OfWorker):
    """A worker raised, or died, or could not be started; it may not be reaped yet."""

    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExited(_OfWorker):
    """A worker was reaped, and nothing of it is left."""

    code: int
    failure: Failure | None = None
    """None for exit 0, and if we stopped it ourselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAttached(_OfWorker):
    """A worker called `elasticd.run`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEntered(_OfWorker):
    """A worker left its last generation and is forming this generation's group."""

    generation: Generation
    committed_ago_s: float = 0.0
    """The age of its newest commit; 0 if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFormed(_OfWorker):
    """A worker's group is formed, and it has the job's state, its own or another rank's."""

    generation: Generation
    backend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLeft(_OfWorker):
    """A worker is in no generation and waits for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStepped(_OfWorker):
    """A worker made its first commit in this generation; it says how long each phase took."""

    generation: Generation
    step: int
    phases_s: Mapping[str, float] = field(default_factory=dict)
    lost_steps: int = 0
    received_bytes: int = 0
    place: str = ""
    """From where a state that no rank had was restored: ranks, memory or storage."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFinished(_OfWorker):
    """`train` returned on all ranks of a worker's world; the worker exits once its script has
    ended.
    """

    training: Training


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPaced(_OfWorker):
    """A worker reported how far it is; this comes now and then."""

    generation: Generation
    step: int
    step_s: float
    is_paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWaited:
    """The waits of this node's steps changed so much that the others should know."""

    wait: NodeWait


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBroken(_OfWorker):
    """A collective broke under a worker, or its group could not be formed; the process is well."""

    generation: Generation
    unreachable: tuple[NodeId, ...] = ()
    """Other nodes of the world that did not answer it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStalled:
    """A worker made no progress for too long: it hangs, or waits for a worker that hangs."""

    stall: Stall

    @property
    def slot(self) -> Slot:
        return self.stall.slot

    @property
    def nonce(self) -> Nonce:
        return self.stall.nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerResumed(_OfWorker):
    """A worker that was reported as stalled makes progress again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequested:
    """This node should leave the job: it is drained, its agent was told to end (SIGTERM, as when
    a spot machine is taken back), or its slots went to another job."""

    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerDied:
    """The connection to that agent broke, and a probe found nobody at its address."""

    node: NodeId
    life: Life


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHeld:
    """The lease is surely alive (again)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseUncertain:
    """The lease's deadline passed without an answer: nothing may be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEnded:
    """etcd says that the lease is over: everything of this incarnation is void."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """The time that `wake_at_s` asked for has come."""


Event = (
    MembersListed
    | MemberSeen
    | MemberDeleted
    | OldestFound
    | WorldSeen
    | StatusSeen
    | WantsListed
    | ResultsListed
    | ResultSeen
    | ResultDeleted
    | MemberWritten
    | ProposalAnswered
    | StatusWritten
    | WithdrawalDone
    | EffectDone
    | SlotsGranted
    | WorkersKept
    | PoolChanged
    | StoresChanged
    | WorkerStarted
    | WorkerFailed
    | WorkerExited
    | WorkerAttached
    | WorkerEntered
    | WorkerFormed
    | WorkerLeft
    | WorkerStepped
    | WorkerFinished
    | WorkerPaced
    | WorkerBroken
    | WorkerStalled
    | WorkerResumed
    | NodeWaited
    | LeaveRequested
    | PeerDied
    | LeaseHeld
    | LeaseUncertain
    | LeaseEnded
    | Ticked
)

"""All that an agent knows and has announced about one job, as one immutable value in four parts."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from elasticd.records.account.incident import Incident
from elasticd.records.account.late import NodeWait
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, NodeId, Nonce, Rank, Slot
from elasticd.records.job import JobSpec, JobStatus, Want
from elasticd.records.member import Exit, Member, Peer, Result, Stall, StoreAddress, Training
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import World
from elasticd.rendezvous.persistent_map import PersistentMap
from elasticd.rendezvous.slot_failures import SlotFailure

__all__ = [
    "ChangeRecord",
    "EtcdView",
    "JobState",
    "Me",
    "OwnPart",
    "Pace",
    "Past",
    "PlanState",
    "SeenMember",
    "Stage",
    "Timing",
    "Worker",
    "WorkerStage",
    "due_in_s",
    "replace",
]


if TYPE_CHECKING:
    # So that mypy checks the names and types of what is changed.
    from dataclasses import replace
else:

    def replace(state, **changes):
        """Return the JobState with these fields changed.

        It does what `dataclasses.replace` does, at a tenth of its cost: it is most of what a
        decision does.
        """
        changed = object.__new__(JobState)
        changed.__dict__.update(state.__dict__, **changes)
        return changed


class Stage(StrEnum):
    """Whether this node takes part in the job, leaves it, or has left it."""

    MEMBER = "member"
    LEAVING = "leaving"
    """It stops workers, then says goodbye."""
    WITHDRAWING = "withdrawing"
    """The goodbye is being written."""
    VOID = "void"
    """The lease is over: it stops workers, and writes nothing."""
    RETIRED = "retired"


class WorkerStage(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    """The worker is known to be lost, and not reaped yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    """This node's side of its member record."""

    node: NodeId
    incarnation: Incarnation
    host: str
    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What this agent knew of the job under an earlier incarnation.

    etcd may know less if it was restored from a backup, but logs and checkpoints of that generation
    exist, and its workers may still run.
    """

    generation: Generation = Generation(0)
    """The newest generation that was known or planned."""
    world: World | None = None
    """The newest world that was seen."""
    ended_s: float = 0.0
    """When its workers have surely ended, even where nothing is heard of them, on our clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMember:
    member: Member
    create_revision: int
    """Its age among the members."""
    mod_revision: int
    seen_s: float
    """When this agent first saw this incarnation, on its own clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process of this node, from the order to start it until none of its processes is left."""

    slot: Slot
    nonce: Nonce
    generation: Generation
    """The generation that it was started for, or was last ordered to enter; 0 if it is in none, or
    was ordered to leave."""
    rank: Rank
    stage: WorkerStage = WorkerStage.STARTING
    stop_sent: bool = False
    is_attached: bool = False
    """True if it called `elasticd.run`: it can go from world to world."""
    ordered: Generation = Generation(0)
    """The newest generation that it was ordered to enter."""
    entered: Generation = Generation(0)
    """The newest generation that it reported to have entered; 0 if it is in none."""
    stepped: Generation = Generation(0)
    """The newest generation in which it committed a step."""
    broken: Generation = Generation(0)
    """The newest generation that it reported to have broken."""
    has_state: bool = False
    """True if it was in a group that formed, so that it has the job's state of then."""
    backend: str = ""
    """The backend of that group; empty if it was in none, or told nothing of it."""
    first_step: int | None = None
    """The first step that it committed."""
    is_finished: bool = False
    """True if its `elasticd.run` returned: it enters no other world."""
    leave_by_s: float | None = None
    """It was ordered to leave for good, and is stopped if it has not left by then."""
    stall: Stall | None = None
    is_paused: bool = False

    @property
    def runs_in(self) -> Generation:
        """Return the generation whose work it does now; 0 if none."""
        return self.entered if self.is_attached else self.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How far the workers here are, and how fast: all ranks of a world step together."""

    generation: Generation
    step: int
    """The steps applied at `at_s`."""
    at_s: float
    step_s: float = 0.0
    """The duration of one; 0 if not known yet."""
    stepped_s: float = 0.0
    """When we first heard of that step, or last of a pause."""

    def further(self, now: "Pace", *, is_paused: bool) -> "Pace":
        """Return the pace after the report `now`."""
        is_same = not is_paused and (now.generation, now.step) == (self.generation, self.step)
        return dataclasses.replace(now, stepped_s=self.stepped_s if is_same else now.at_s)


_DUE_MARGIN = 3.0
"""Added because steps differ in length, and the ranks may agree on one step more than the world
names."""


def due_in_s(pace: Pace | None, world: World) -> float:
    """Return how long it may take, without faults, until this world's `at_step` is made.

    0 if that is not known, or if the world begins at once.
    """
    if pace is None or world.at_step is None:
        return 0.0
    return _DUE_MARGIN * max(1, world.at_step + 1 - pace.step) * pace.step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When things happened in the current change, on our own clock; None for not (yet)."""

    fact_s: float | None = None
    proposed_s: float | None = None
    world_s: float | None = None
    stopped_s: float | None = None
    entered_s: float | None = None


# Not slotted: a copy of a dict costs a tenth of setting sixty slots one by one.
@dataclass(frozen=True, kw_only=True)
class EtcdView:
    """The reads from etcd, their answers, and the facts about the standing world."""

    members: PersistentMap[SeenMember] = field(default_factory=PersistentMap)
    """All members if `has_all_members`, otherwise the proposers that we watch."""
    members_revision: int = 0
    deleted: PersistentMap[int] = field(default_factory=PersistentMap)
    """Members deleted since the last list, by the last revision of theirs that we saw; anything not
    newer is outdated."""
    has_all_members: bool = False
    results: PersistentMap[Result] = field(default_factory=PersistentMap)
    has_results: bool = False
    world: World | None = None
    world_revision: int = 0
    status: JobStatus | None = None
    status_revision: int = 0
    wants: Mapping[str, Want] = field(default_factory=dict)
    is_replaced: bool = False
    """True if this job is over: another has the name by now, or, with no `status`, all its records
    were removed."""
    oldest: tuple[NodeId, ...] | None = None
    """The proposers before the first world."""
    is_oldest_asked: bool = False
    observed: tuple[NodeId, ...] | bool | None = False
    """What we asked to watch: None for everything, False for nothing yet."""
    reread_at_s: float = 0.0
    world_due_s: float | None = None
    """When to read again if the world that the status announces is not seen by then."""
    dead: frozenset[Incarnation] = frozenset()
    """Incarnations whose agents a probe found dead. A node may have several, one that the world
    names and one whose record still stands."""
    gone_s: Mapping[NodeId, float] = field(default_factory=dict)
    """Nodes of the world whose agent (that very life of it) has no member record, and since when,
    on our clock."""
    arrived: int = 0
    """The members of the world that reported their arrival."""
    ok_ranks: int = 0
    """The ranks of the world that exited with 0."""
    formed_s: float | None = None
    ended_s: float = 0.0
    """When we saw that the world had been declared over for want of members."""

    @property
    def is_over(self) -> bool:
        return self.is_replaced or (self.status is not None and self.status.phase.is_final)

    @property
    def is_world_ended(self) -> bool:
        """Return whether the standing world was declared over without a successor (too few
        members).
        """
        return (
            self.world is not None
            and self.status is not None
            and self.status.phase is Phase.WAITING
            and self.status.generation >= self.world.generation
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseWait:
    """Until when a change waits for the word of other ranks; there is one such wait for a world."""

    reason: Reason
    """What is known so far. WORKER_FAILED: other ranks may show that they raise what one has
    raised. COLLECTIVE_BROKEN: ranks that have said nothing may tell who broke it."""
    until_s: float


@dataclass(frozen=True, kw_only=True)
class PlanState:
    """The plan or proposal of this agent: the next world, or a status."""

    formation_deadline_s: float | None = None
    is_formation_overdue: bool = False
    unheard_s: float | None = None
    """Since when the next world waits for records that may tell of the state."""
    handover_s: float | None = None
    """Since when it waits for a node that can take the state over from one that goes by itself."""
    join_at_s: float | None = None
    """When to look whether others can be taken in, or anything else has changed."""
    plan_at_s: float | None = None
    """When to look whether another world is needed; None: nothing to look at."""
    read_at_end_s: float | None = None
    """When members and results were last read once more, as the world is at its end."""
    cause_wait: CauseWait | None = None
    """How long other ranks may still tell what is behind a change."""
    lost_races: int = 0
    proposal: str = ""
    """The token of the proposal that is in flight."""
    is_status_in_flight: bool = False


@dataclass(frozen=True, kw_only=True)
class OwnPart:
    """This node's own part: its workers, their ends, and the record that it has written."""

    stage: Stage = Stage.MEMBER
    is_fenced: bool = False
    """True if the lease is not surely alive: nothing may be written."""
    leaving: Reason | None = None
    slots: tuple[Slot, ...] = ()
    is_pool_ready: bool = False
    stores: tuple[StoreAddress, ...] = ()
    nonces: Mapping[Slot, Nonce] = field(default_factory=dict)
    """For each slot the least number that the next worker may have."""
    workers: Mapping[Slot, Worker] = field(default_factory=dict)
    adopted: Generation = Generation(0)
    """The generation that our workers belong to, or are being started for."""
    adopted_arrival: Generation = Generation(0)
    formed_world: World | None = None
    """The newest generation whose group formed with a worker of ours in it: all in it have the
    state."""
    exits: tuple[Exit, ...] = ()
    """The exits of our ranks in the adopted generation."""
    done: Mapping[Slot, Nonce] = field(default_factory=dict)
    """Our processes that exited with 0 in it."""
    failure: Failure | None = None
    raised_alike: int = 0
    """The ranks here that ended with that very error."""
    broken: Generation = Generation(0)
    """The newest generation that broke under our workers, which live."""
    cut_off: tuple[NodeId, ...] = ()
    """Nodes of that generation that our workers could not reach."""
    pace: Pace | None = None
    wait: NodeWait | None = None
    """What the others should know of the waits of our steps."""
    slot_failures: Mapping[Slot, SlotFailure] = field(default_factory=dict)
    """The slots whose last process failed by itself."""
    member_sent: Member | None = None
    is_member_in_flight: bool = False
    result_sent: Result | None = None
    is_result_in_flight: bool = False
    peers_held: tuple[Peer, ...] = ()
    retry_at_s: float | None = None
    """A write failed because etcd was away: try again then."""
    training: Training | None = None
    """What a worker here reported of the whole run when it had finished."""
    trained_in: Generation = Generation(0)
    """The generation in which that was."""


@dataclass(frozen=True, kw_only=True)
class ChangeRecord:
    """The change of world under way: how it is made, when, and what it cost."""

    is_in_process: bool = False
    """True if somebody's script called `elasticd.run`: only workers that did can be in a world."""
    timing: Timing = field(default_factory=Timing)
    incident: Incident | None = None
    """The incident of the current change, as far as it is known; written once our workers have
    stepped."""


@dataclass(frozen=True, kw_only=True)
class JobState(EtcdView, PlanState, OwnPart, ChangeRecord):
    """The state of one job in its four parts; it is immutable, see `replace`.

    The fields of its own are given when the agent begins with the job, and never change.
    """

    me: Me
    spec: JobSpec
    past: Past = Past()

    @property
    def next_generation(self) -> Generation:
        """Return the generation that follows all that are known."""
        standing = self.world.generation if self.world is not None else 0
        return Generation(max(standing, self.past.generation) + 1)

    @property
    def lost_world(self) -> World | None:
        """Return the world that we knew and that etcd does not know any more, if there is one."""
        past, standing = self.past.world, self.world
        is_known = past is None or (standing is not None and standing.generation >= past.generation)
        return None if is_known else past

    @property
    def is_in_world(self) -> bool:
        return self.world is not None and self.world.has(self.me.node, self.me.incarnation)

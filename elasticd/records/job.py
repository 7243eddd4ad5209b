"""A job: its spec, the wishes for its size or its end, and its status."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from elasticd.records.account.late import OnLate
from elasticd.records.checkpoint import CheckpointSpec
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, JobName
from elasticd.records.reason import Cause, Phase, Reason
from elasticd.records.tensorboard import TensorBoardSpec

__all__ = [
    "Active",
    "Budget",
    "EndedJob",
    "EntryKind",
    "JobSpec",
    "JobStatus",
    "Limits",
    "UNSERVED_LIMIT_S",
    "WRITERS",
    "Want",
    "is_stuck",
    "lacks_nodes",
    "may_end_unserved",
    "nodes_missing",
    "preload_of",
    "size_want",
    "target_nodes",
]

UNSERVED_LIMIT_S = 10.0
"""The time in seconds for which a job that has trained may have no node before another ends it:
after etcd was away, agents need the time of a lease to come back, with workers that save."""
PRELOAD_AUTO, PRELOAD_NONE = "auto", "none"


class EntryKind(StrEnum):
    SCRIPT = "script"
    """A Python file, run as `python FILE ARGS`."""
    MODULE = "module"
    """A Python module, run as `python -m MODULE ARGS`."""
    COMMAND = "command"
    """Any program (`--no-python`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many changes of world each cause may bring about before the job fails; -1 for
    no limit.
    """

    user_error: int = 3
    """`--max-restarts`; 0 ends the job at the first failure, as torchrun does by default."""
    node_loss: int = 100
    preemption: int = -1
    resize: int = -1
    refill_after_s: float = 600.0
    """A world that has run this long counts as progress and refills the budget."""
    refill_after_steps: int = 100
    """So do this many committed steps, if steps are seen (in-process mode)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The job that a submitter asks for; this record is written once and never changed."""

    name: JobName
    uid: str
    """It distinguishes two jobs of one name (the first ended before the second was submitted)."""
    entry_kind: EntryKind
    entry: str
    args: tuple[str, ...] = ()
    min_nodes: int = 1
    max_nodes: int = 1
    workers_per_node: int = 1
    """The slots that each node gives; 0 (`auto`) for as many as it offers."""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    """Only nodes whose agents have all of these labels take part; empty for any node. An agent of a
    version that does not know this takes part whatever its labels are."""
    priority: int = 0
    """If several jobs wait for the same slots, the one with the highest priority gets them; among
    equals it is the one that was submitted first. No running job loses slots for it."""
    python: str = ""
    """The interpreter of the workers; empty for the agent's own."""
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    """Only variables that were named with `--env`: a submitter's whole environment may hold
    secrets."""
    env_files: Mapping[str, str] = field(default_factory=dict)
    """Variables whose values stand in files of the nodes, and not here: secrets that are mounted
    there. A missing file fails the worker's start."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts by their names below the folder where the workers start; each node writes them."""
    preload: tuple[str, ...] = ()
    """Modules that each node imports before it forks workers."""
    learns_imports: bool = False
    """True if each node finds out what the script imports, and has that ready for later workers
    too."""
    role: str = "default"
    run_folder: str = ""
    """Where each node keeps `<job>/gen-<n>/rank-<r>.{out,err}`; empty for the agent's default."""
    limits: Limits = field(default_factory=Limits)
    shutdown_timeout_s: float = 30.0
    """The time from SIGTERM to SIGKILL when a change was planned."""
    failure_timeout_s: float = 3.0
    """The time from SIGTERM to SIGKILL when something broke: a rank stuck in a collective runs no
    handler."""
    formation_timeout_s: float = 60.0
    """The time from a world's record to the last member's arrival, on top of the shutdown grace."""
    join_window_s: float = 0.2
    """Joins that come this close together become one world."""
    first_window_s: float = 30.0
    """How long the first world waits for members that are here but not ready yet."""
    isolation_limit_s: float = 60.0
    """Workers of a node without etcd are stopped after this long."""
    progress_timeout_s: float = 60.0
    """A worker in `elasticd.run`, outside `state.pause`, without any progress for so long is hung.
    0 for no limit, even if others wait for it."""
    output_timeout_s: float = 0.0
    """In restart mode, ranks that all write nothing for so long are taken for hung. 0 for no
    limit."""
    log_max_bytes: int = 0
    """What each stream of a rank may take of the disk, in each generation; 0 for no limit."""
    on_nan: str = "ignore"
    """What happens to a step with non-finite gradients: stop, skip or ignore (in-process mode)."""
    compare_every: int = 0
    """After how many commits replicas are compared bit for bit; 0 for never (in-process mode)."""
    compares_seldom: bool = True
    """True if they are compared after the first commits of a generation, and then more and more
    seldom."""
    on_late: OnLate = OnLate.REPORT
    """What happens to a node that all others wait for (in-process mode)."""
    checkpoint: CheckpointSpec | None = None
    """None if nothing is saved."""
    tensorboard: TensorBoardSpec | None = None
    """None if no event files are written."""
    is_local: bool = False
    """True if it belongs to the agents started beside it (`elasticd run` without --etcd, or
    `--join`)."""
    submitted_by: str = ""
    """`user@host` of the submitter, as its machine says; empty from an older version."""
    submitted_at_unix_s: float = 0.0
    """The time by the submitter's clock, for people; 0 if not known."""
    owner: str = ""
    """The object elsewhere that this job was made of, and ends with: for an operator on Kubernetes
    `kubernetes/<cluster>/<namespace>/<name>`. Empty if it has none."""
    unknown: Mapping[str, object] = field(default_factory=dict)

    @property
    def needs_no_torch(self) -> bool:
        """Return whether it is a program of its own (`--no-python`), and not a script under another
        interpreter.
        """
        return self.entry_kind is EntryKind.COMMAND and self.args[:1] != ("-u",)

    def may_run_on(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels may take part."""
        return self.node_labels.items() <= labels.items()

    @property
    def label_text(self) -> str:
        """Return the labels as they are given to `--label` and `--node-label`."""
        return ", ".join(f"{key}={value}" for key, value in sorted(self.node_labels.items()))


def preload_of(words: Iterable[str]) -> tuple[tuple[str, ...], bool]:
    """Read `auto`, `none` or names of modules; return the names, and whether more is learned.

    Nothing means `auto`. Names alone mean these and no others; `auto` beside them means both.
    """
    given = tuple(filter(None, words))
    names = tuple(word for word in given if word not in (PRELOAD_AUTO, PRELOAD_NONE))
    return names, PRELOAD_AUTO in given or not given


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """Marks a job that is not over; one small key each, so that daemons can watch them all."""

    uid: str
    is_ready: bool
    """False while the submitter still clears away an ended job of the same name."""
    unknown: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """Marks a job that is over and whose records still stand."""

    kept_s: float = 0.0
    """For how long agents have watched its records stand, one after the other, each on its own
    clock."""
    unknown: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """One writer's wish for a job: a size, or its end."""

    writer: str
    nodes: int | None = None
    is_stop: bool = False
    why: str = ""
    since_unix_s: float = 0.0
    """When the size was wished for, by the writer's clock, for people; 0 if not known."""
    unknown: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The changes of world paid for since the last refill, by cause."""

    user_error: int = 0
    node_loss: int = 0
    preemption: int = 0
    resize: int = 0

    def charged(self, cause: Cause) -> "Budget":
        return replace(self, **{cause.value: self.used(cause) + 1})

    def used(self, cause: Cause) -> int:
        return int(getattr(self, cause.value))

    def is_spent(self, cause: Cause, limits: Limits) -> bool:
        """Return whether one more change for this cause would exceed its limit."""
        limit = int(getattr(limits, cause.value))
        return 0 <= limit <= self.used(cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The phase of a job; a proposer writes it with the world, by compare-and-set."""

    phase: Phase = Phase.PENDING
    generation: Generation = Generation(0)
    """The newest generation that this status speaks of. In phase WAITING it is over."""
    reason: Reason = Reason.FIRST_WORLD
    message: str = ""
    """One sentence for people: what it waits for, why it ended."""
    budget: Budget = field(default_factory=Budget)
    nodes: int = 0
    """The nodes of the newest world; 0 if there is none yet, or from an old proposer."""
    restarts: int = 0
    """The changes of world in the whole life of the job."""
    failure: Failure | None = None
    """The first failing worker of the change that this status belongs to."""
    last_user_error: Failure | None = None
    """The error of the generation before, to see that the same error comes back."""
    is_in_process: bool = False
    """True if the script calls `elasticd.run`: workers outlive a change of world."""
    refilled_step: int = 0
    """The committed steps when the budget was last refilled."""
    uid: str = ""
    """The uid of the job's spec, since a name may be used again. Empty from an older version."""
    exit_code: int | None = None
    """The greatest exit code of a local run's agents, if they ended before the job and no rank has
    failed."""
    unknown: Mapping[str, object] = field(default_factory=dict)


WRITERS = ("user", "operator", "autoscaler")
"""Writers of wishes for a size, the strongest first. Without a wish a job has as many nodes as it
may have. Other writers' wishes do not count."""


def size_want(wants: Mapping[str, Want]) -> Want | None:
    """Return the wish that decides the size; None if there is no wish."""
    found = (wants.get(writer) for writer in WRITERS)
    return next((want for want in found if want is not None and want.nodes is not None), None)


def target_nodes(spec: JobSpec, wants: Mapping[str, Want]) -> int:
    """Return the size that the first of `WRITERS` wishes for, between min and max."""
    want = size_want(wants)
    nodes = want.nodes if want is not None and want.nodes is not None else spec.max_nodes
    return max(spec.min_nodes, min(spec.max_nodes, nodes))


def lacks_nodes(spec: JobSpec, wants: Mapping[str, Want], status: JobStatus) -> bool:
    """Return whether one more node would train, and not stand by as a spare."""
    if status.phase.is_final or any(want.is_stop for want in wants.values()):
        return False
    if status.phase is not Phase.RUNNING:
        return True
    return 0 < status.nodes < target_nodes(spec, wants)


def is_stuck(status: JobStatus) -> bool:
    """Return whether the job had begun, and waits for more nodes: it keeps the ones that it has."""
    return status.phase is Phase.WAITING and status.generation > 0


def may_end_unserved(
    status: JobStatus, unserved_s: float, *, limit_s: float = UNSERVED_LIMIT_S
) -> bool:
    """Return whether a job that has had no node for `unserved_s` may be ended without one: it has
    never trained, or no workers are about to come back that save.
    """
    return status.generation == 0 or unserved_s >= limit_s


def nodes_missing(spec: JobSpec, ready: int) -> str:
    """Return how many nodes a job waits for, as the rest of a sentence: "waiting for ..."."""
    missing = max(0, spec.min_nodes - ready)
    per_node = spec.workers_per_node
    slots = f" with {per_node} free slots" if per_node > 1 else ""
    label = f" labelled {spec.label_text}" if spec.node_labels else ""
    more = f"{missing} more node{'' if missing == 1 else 's'}"
    what = f"{more}{label}{slots}" if missing else "its start"
    return f"{what}: {ready} of at least {spec.min_nodes} ready"

"""The messages between an agent and a worker that called `elasticd.run`.

The worker connects to the agent's socket (`ELASTICD_AGENT`, an abstract unix socket) and sends
`Attached` first. The agent knows it by its process number, which the kernel confirms. The end of
the connection is not the end of the worker: the pool reports that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from elasticd.channel import wire
from elasticd.records.ids import Generation, NodeId, Rank
from elasticd.records.member import Peer, StoreAddress

__all__ = [
    "Attached",
    "Beat",
    "Broken",
    "Dump",
    "Enter",
    "Entered",
    "Finished",
    "Formed",
    "FromWorker",
    "Leave",
    "Left",
    "Progressed",
    "Stacks",
    "Stepped",
    "ToWorker",
    "Waits",
    "unpack_from_worker",
    "unpack_to_worker",
]


# --- agent to worker --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Enter:
    """Enter a world: be this rank of this generation, which is newer than that of any earlier Enter
    or Leave.

    It is answered by Entered as soon as the generation before is left, later by Formed and Stepped.
    """

    generation: Generation
    rank: Rank
    size: int
    local_rank: int
    local_size: int
    node_rank: int
    nodes: int
    node: str
    store: StoreAddress
    reason: str
    agents: tuple[Peer, ...] = ()
    """The agents of the world's other nodes, which listen as long as they live."""
    out_path: str = ""
    """Where its output goes from now on; empty if it goes where it went before."""
    err_path: str = ""
    at_step: int | None = None
    """Stay in the generation before until at least this many steps are applied; None: leave it at
    once. The ranks agree on the last step among themselves: a later one if somebody is past it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Leave the generation and wait for another with the state kept; it is answered by Left."""

    at_step: int | None = None
    """The step after which to leave, as in Enter."""
    save_within_s: float | None = None
    """The job ends: save the state first, and answer when it is durable, or when this time is
    over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """Report where every thread stands; it is answered by Stacks."""


ToWorker = Enter | Leave | Dump


# --- worker to agent --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """The script called `elasticd.run`: imports are done, the model is built."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """Nothing of an older generation runs here any more; the new group is being formed."""

    generation: Generation
    committed_ago_s: float = 0.0
    """The age of the newest commit; 0 if there was none, or from an older version."""
    sent_s: float = 0.0
    """When this was sent, by CLOCK_BOOTTIME of this machine; 0 from an older version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formed:
    """The group is formed and all ranks have one state; `train` is called now."""

    generation: Generation
    step: int
    """The applied steps that all ranks have now."""
    source: int = -1
    """The lowest rank whose state was copied; -1 if nobody needed it."""
    place: str = ""
    """From where a state that no rank had was restored: ranks, memory or storage."""
    received_bytes: int = 0
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds on this worker's clock for abort, form, compare and copy."""
    backend: str = ""
    """The group's backend, as torch names it; empty from an older version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """The first commit in this generation returned."""

    generation: Generation
    step: int
    """The applied steps, this one included."""
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """The phases of Formed, and `step`: from there to this commit."""
    lost_steps: int = 0
    """Steps that were applied or begun in the generation before and done again."""
    place: str = ""
    """The place of Formed."""
    note: str = ""
    """What a person should know of this recovery, if anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The worker's answer to Leave: at which step it stopped, and what is saved."""

    step: int
    durable_step: int = -1
    """Where the state was to be saved: the step of the newest checkpoint that is known to be
    durable."""
    why: str = ""
    """Why that is behind, if it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A collective failed, or the group could not be formed, and no newer world came to
    explain it.
    """

    generation: Generation
    why: str
    unreachable: tuple[NodeId, ...] = ()
    """Other nodes of the world that did not answer, if they were asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The typical durations of the last steps of a rank, in seconds."""

    steps: int = 0
    """How many steps this is about; 0 if none yet, and nothing is known."""
    step_s: float = 0.0
    """The median of the time from commit to commit."""
    wait_s: float = 0.0
    """The median of the time in which a step waited in collectives, which is for the last rank."""
    low_s: float = 0.0
    """In two of three steps it waited for longer than this."""
    high_s: float = 0.0
    """In one of three steps it waited for longer than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat: sent by a thread of its own, five times a second, while the process lives and
    gets the GIL.

    Progress is any change of the numbers.
    """

    generation: Generation
    """The generation; 0 if the worker is not in `train`."""
    step: int
    """The applied steps."""
    step_s: float
    """The smoothed duration of a step; 0 if unknown."""
    batches: int
    """The batches that were delivered in this process."""
    sequence: int
    """The number of collectives of its group that this rank's device reached; a rank that hangs has
    the least."""
    is_in_step: bool = False
    """True if a batch was delivered that is in no commit yet."""
    is_in_collective: bool = False
    """True if a collective that it has begun in its group has no result yet: it waits for another
    rank, or for the network. False where that is not known (on a GPU, or in an older version)."""
    has_returned: bool = False
    """True if `train` returned here, and the worker waits until it has on all ranks."""
    is_paused: bool = False
    why_paused: str = ""
    epoch: int = 0
    consumed: int = 0
    """The samples of this epoch in applied steps, of all ranks."""
    epochs: int = 0
    """The epochs that `state.epochs` was asked for; 0 if it was not called."""
    steps: int = 0
    """The step at which the script said that it ends; 0 if it did not."""
    epoch_samples: int = 0
    """The samples of one epoch of the first loader; 0 if there is no loader."""
    scalars: Mapping[str, float] = field(default_factory=dict)
    """What the script last gave to `commit`, where it is a number by now."""
    committed_ago_s: float = 0.0
    """The age of the newest commit."""
    sent_s: float = 0.0
    """When this was sent, by CLOCK_BOOTTIME of this machine: an agent that was stopped for a while
    reads it late. 0: an older version."""
    samples: int = 0
    """The samples in applied steps of the whole job, of all ranks; 0 if there is no loader."""
    data_s: float = 0.0
    """Seconds that this process has waited for its loaders, which had no batch ready or made
    one."""
    save_s: float = 0.0
    """Seconds for which steps of this process have waited for copies of the state."""
    step_wait_s: float = 0.0
    """Seconds for which committed steps of this process have waited for collectives."""
    waits: Waits | None = None
    """The waits of the last steps of this generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """`train` returned on all ranks.

    The message says what the whole run did, as this process knows it.
    """

    step: int
    epochs: int
    samples: int
    repeated: int
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """The report of a script of restart mode by `elasticd.progress`, five times a second at most.

    It comes without Attached, and makes no attachment. Sums and durations are of this process.
    """

    step: int
    """The script's own number of the newest step that ended."""
    first_step: int = 0
    """The step of the first call in this process."""
    samples: int = 0
    """The samples of all calls."""
    epoch: int = 0
    scalars: Mapping[str, float] = field(default_factory=dict)
    """What the script last gave to `elasticd.progress` beside the step."""
    told_ago_s: float = 0.0
    """The age of the newest call."""
    stepping_s: float = 0.0
    """Seconds from the first call to the newest, those of `save_s` included."""
    save_s: float = 0.0
    """Seconds in which `elasticd.checkpoint.save` was waited for."""
    step_s: float = 0.0
    """The smoothed duration of a step, without saving; 0 if unknown."""


FromWorker = (
    Attached | Entered | Formed | Stepped | Left | Broken | Beat | Stacks | Finished | Progressed
)

_TO_WORKER = {kind.__name__: kind for kind in (Enter, Leave, Dump)}
_FROM_WORKER = {kind.__name__: kind for kind in get_args(FromWorker)}


def unpack_to_worker(line: bytes) -> ToWorker:
    message: ToWorker = wire.unpack(line, _TO_WORKER)
    return message


def unpack_from_worker(line: bytes) -> FromWorker:
    message: FromWorker = wire.unpack(line, _FROM_WORKER)
    return message

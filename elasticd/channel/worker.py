"""The messages between an agent and a worker that called `elasticd.run`.

The worker connects to the agent's socket (`ELASTICD_AGENT`, an abstract unix socket) and says
`Attached` first; the agent knows it by its process number, which the kernel vouches for. Its end
is the end of the attachment, not of the worker: that is the pool's to tell.
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
    """Be this rank of this generation; a newer one than an earlier Enter or Leave named.

    Answered by Entered as soon as the generation before is left, later by Formed and Stepped.
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
    """Those of the other nodes of the world, which listen as long as they live."""
    out_path: str = ""
    """Where its output goes from now on; empty: where it went before."""
    err_path: str = ""
    at_step: int | None = None
    """Stay in the generation before until at least this many steps are applied; None: leave it at
    once. The ranks agree on the last step among themselves: a later one if somebody is past it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Leave the generation and wait, with the state kept, for another; answered by Left."""

    at_step: int | None = None
    """As in Enter."""
    save_within_s: float | None = None
    """The job ends: save the state first, and answer when it is durable, or when this is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """Say where every thread stands; answered by Stacks."""


ToWorker = Enter | Leave | Dump


# --- worker to agent --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """The script called `elasticd.run`: imports are done, the model is built."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """Nothing of an older generation goes on here; the new group is being formed."""

    generation: Generation
    committed_ago_s: float = 0.0
    """Age of the newest commit; 0: there was none, or an older version says nothing."""
    sent_s: float = 0.0
    """When this was sent, by CLOCK_BOOTTIME of this machine; 0: an older version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formed:
    """The group stands and all ranks have one state; `train` is called now."""

    generation: Generation
    step: int
    """Applied steps that all ranks now have."""
    source: int = -1
    """Lowest rank whose state was copied; -1: nobody needed it."""
    place: str = ""
    """From where a state that no rank had was restored: ranks, memory or storage."""
    received_bytes: int = 0
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """abort, form, compare, copy: seconds on this worker's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """The first commit in this generation returned."""

    generation: Generation
    step: int
    """Applied steps, this one included."""
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """Those of Formed, and step: from there to this commit."""
    lost_steps: int = 0
    """Steps applied here or begun in the generation before and done again."""
    place: str = ""
    """That of Formed."""
    note: str = ""
    """What a person should know of this recovery, if anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Answer to Leave."""

    step: int
    durable_step: int = -1
    """Where the state was to be saved: of the newest checkpoint that is known to be durable."""
    why: str = ""
    """Why that is behind, if it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A collective or the forming of the group failed, and no newer world came to explain it."""

    generation: Generation
    why: str
    unreachable: tuple[NodeId, ...] = ()
    """Other nodes of the world that did not answer, where that was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """What is typical of the last steps of a rank, in seconds."""

    steps: int = 0
    """Of so many; 0: of none yet, and nothing is known."""
    step_s: float = 0.0
    """Median of the time from commit to commit."""
    wait_s: float = 0.0
    """Median of the time in which a step waited for collectives, that is for the last rank."""
    low_s: float = 0.0
    """In two of three steps it waited for longer."""
    high_s: float = 0.0
    """In one of three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Sent by a thread of its own, about five times a second: the process lives and gets the GIL.

    Progress is any change of the numbers.
    """

    generation: Generation
    """0: not in train."""
    step: int
    """Applied steps."""
    step_s: float
    """Smoothed duration of a step; 0: unknown."""
    batches: int
    """Batches delivered in this process."""
    sequence: int
    """Collectives of its group that this rank's device came to; the odd rank has the least."""
    is_in_step: bool = False
    """A batch was delivered that is in no commit yet."""
    has_returned: bool = False
    """`train` returned here; it waits until it has on all ranks."""
    is_paused: bool = False
    why_paused: str = ""
    epoch: int = 0
    consumed: int = 0
    """Samples of this epoch in applied steps, of all ranks."""
    epochs: int = 0
    """Epochs that `state.epochs` was asked for; 0: it was not called."""
    epoch_samples: int = 0
    """Samples of one epoch of the first loader; 0: there is no loader."""
    scalars: Mapping[str, float] = field(default_factory=dict)
    """What the script last gave to `commit`, where it is a number by now."""
    committed_ago_s: float = 0.0
    """Age of the newest commit."""
    sent_s: float = 0.0
    """When this was sent, by CLOCK_BOOTTIME of this machine: an agent that was stopped for a while
    reads it late. 0: an older version."""
    samples: int = 0
    """In applied steps of the whole job, of all ranks; 0: there is no loader."""
    data_s: float = 0.0
    """Seconds that this process has spent in its loaders, which had no batch ready or made one."""
    save_s: float = 0.0
    """Seconds for which steps of this process have waited for copies of the state."""
    step_wait_s: float = 0.0
    """Seconds for which committed steps of this process have waited for collectives."""
    waits: Waits | None = None
    """Of the last steps of this generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """`train` returned on all ranks; what the whole run did, as this process knows it."""

    step: int
    epochs: int
    samples: int
    repeated: int
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """What a script of restart mode said to `elasticd.progress`, five times a second at most.

    It comes without Attached, and makes no attachment. Sums and durations are of this process.
    """

    step: int
    """The script's own number of the newest step that ended."""
    first_step: int = 0
    """That of the first call in this process."""
    samples: int = 0
    """Those of all calls."""
    epoch: int = 0
    scalars: Mapping[str, float] = field(default_factory=dict)
    """What the script last gave to `elasticd.progress` beside the step."""
    told_ago_s: float = 0.0
    """Age of the newest call."""
    stepping_s: float = 0.0
    """Seconds from the first call to the newest, those of `save_s` included."""
    save_s: float = 0.0
    """Seconds for which `elasticd.checkpoint.save` was waited for."""
    step_s: float = 0.0
    """Smoothed duration of a step, without saving; 0: unknown."""


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

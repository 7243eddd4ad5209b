"""The messages between an agent and its warm pool.

The socket is a socketpair that the agent makes and the pool inherits, so nobody else can speak on
it. When it ends, the other side has ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from elasticd.channel import wire
from elasticd.records.job import EntryKind
from elasticd.records.member import StoreAddress

__all__ = [
    "Exited",
    "FromPool",
    "KeepStores",
    "License",
    "ModulesLoaded",
    "NotParked",
    "PoolFailed",
    "PoolLearned",
    "PoolParked",
    "PoolReady",
    "Raised",
    "Start",
    "StartFailed",
    "Started",
    "Stop",
    "StoresReady",
    "ToPool",
    "unpack_from_pool",
    "unpack_to_pool",
]

# --- agent to pool ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start a worker; answered by Started or StartFailed, later by Exited."""

    worker: str
    """The worker's name in every later message; unique in the life of the pool."""
    entry_kind: EntryKind
    entry: str
    args: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    """The whole environment of the worker, not a difference."""
    out_path: str
    err_path: str
    """It is opened for appending, like `out_path`; their folder is created."""
    error_file: str
    """Where a traceback is written in `@record`'s form, if the script wrote none itself."""
    threads: int = 0
    """The value for `torch.set_num_threads`; 0 leaves it alone."""
    niceness: int = 0
    """It is added to the worker's niceness; above 0 the worker yields to those who train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Send SIGTERM now, and SIGKILL to the whole subtree after the grace; 0 kills at once."""

    worker: str
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class License:
    """Workers may run until this time (CLOCK_BOOTTIME); the pool kills them if it is
    not renewed.
    """

    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepStores:
    """Keep `count` unused TCPStores; those named in `used` do not count any more.

    A store in `close` may be shut, since its generation is over.
    """

    count: int
    host: str
    used: tuple[StoreAddress, ...] = ()
    close: tuple[StoreAddress, ...] = ()
    are_ports: bool = False
    """Only keep the ports free for programs that want to listen there; nothing of torch is
    imported."""


ToPool = Start | Stop | License | KeepStores


# --- pool to agent ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReady:
    pid: int
    import_s: float
    can_fork: bool
    """False where a preloaded module started threads; then workers are spawned, not forked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFailed:
    """The pool cannot work (torch is missing, a preload raised); it ends after this."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    worker: str
    pid: int
    mutex_fd: int = -1
    """The worker's descriptor of the robust mutex that it holds as long as it lives; -1: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed:
    worker: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An exception left the script, or the script exited with a code other than 0.

    It is sent before the interpreter winds down, ahead of Exited.
    """

    worker: str
    exception: str
    where: str
    traceback: str
    has_group: bool
    code: int = 1
    """The code with which it is going to exit."""
    ends_job: bool = False
    """True if the error says that a new process would fail in the same way."""
    has_lost_state: bool = False
    """True if the error says that the loss of others took the state away (`Failure`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """The worker was reaped, and nothing of its subtree is left."""

    worker: str
    code: int
    """The exit code, negative for a signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoresReady:
    """All fresh stores, the next one to use first."""

    stores: tuple[StoreAddress, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulesLoaded:
    """A worker that trains says which modules of installed packages it has loaded since its start.

    It goes from the worker to the pool, and no further: values of variables may be secrets.
    """

    worker: str
    modules: tuple[str, ...]
    """The modules, in the order in which their imports began."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of its environment that changed since its start; empty for one that was removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLearned:
    """From now on workers are forked from a process that has the script's packages loaded too."""

    pid: int
    modules: int
    import_s: float
    pss_bytes: int
    """The memory of that process in bytes, each shared page counted by its share; 0 if not
    known."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Packages that each worker still imports for itself, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolParked:
    """A second process for each worker of this node is forked already, and waits for its order."""

    workers: int
    private_bytes: int
    """The memory in bytes that the largest of them shares with no other process; 0 if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotParked:
    """No worker is forked ahead from now on, or until this is over."""

    why: str


FromPool = (
    PoolReady
    | PoolFailed
    | Started
    | StartFailed
    | Raised
    | Exited
    | StoresReady
    | ModulesLoaded
    | PoolLearned
    | PoolParked
    | NotParked
)

_TO_POOL = {kind.__name__: kind for kind in (Start, Stop, License, KeepStores)}
_FROM_POOL = {kind.__name__: kind for kind in get_args(FromPool)}


def unpack_to_pool(line: bytes) -> ToPool:
    message: ToPool = wire.unpack(line, _TO_POOL)
    return message


def unpack_from_pool(line: bytes) -> FromPool:
    message: FromPool = wire.unpack(line, _FROM_POOL)
    return message

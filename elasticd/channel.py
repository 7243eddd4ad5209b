"""The messages between an agent and its warm pool: one JSON object a line, both ways.

Pure: only the shapes and their text form. The socket is a socketpair that the agent makes and the
pool inherits, so nobody else can speak on it; its end is the end of the other side.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticd.errors import InvariantBroken
from elasticd.records.codec import from_plain, to_plain
from elasticd.records.job import EntryKind
from elasticd.records.member import StoreAddress

__all__ = [
    "Exited",
    "FromPool",
    "KeepStores",
    "LINE_LIMIT_BYTES",
    "License",
    "PoolFailed",
    "PoolReady",
    "Raised",
    "Start",
    "StartFailed",
    "Started",
    "Stop",
    "StoresReady",
    "ToPool",
    "pack",
    "unpack_from_pool",
    "unpack_to_pool",
]

LINE_LIMIT_BYTES = 4_000_000
"""Room for an environment of the largest size that Linux lets a process start with."""


# --- agent to pool ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start a worker; answered by Started or StartFailed, later by Exited."""

    worker: str
    """Names it in every later message; unique in the life of the pool."""
    entry_kind: EntryKind
    entry: str
    args: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    """The whole environment of the worker, not a difference."""
    out_path: str
    err_path: str
    """Opened for appending; their folder is made."""
    error_file: str
    """Where a traceback goes in `@record`'s form, if the script did not write one itself."""
    threads: int = 0
    """For `torch.set_num_threads`; 0 leaves it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """SIGTERM now, SIGKILL of the whole subtree after the grace; 0 kills at once."""

    worker: str
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class License:
    """Workers may run until then (CLOCK_BOOTTIME); the pool kills them if it is not renewed."""

    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepStores:
    """Keep `count` TCPStores that nobody used yet; those named in `used` count no more.

    A store in `close` may be shut: its generation is over.
    """

    count: int
    host: str
    used: tuple[StoreAddress, ...] = ()
    close: tuple[StoreAddress, ...] = ()


ToPool = Start | Stop | License | KeepStores


# --- pool to agent ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReady:
    pid: int
    import_s: float
    can_fork: bool
    """False where a preloaded module started threads: then workers are spawned, not forked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFailed:
    """The pool cannot work (torch is missing, a preload raised); it ends after this."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    worker: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed:
    worker: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An exception left the script; sent before the interpreter winds down, ahead of Exited."""

    worker: str
    exception: str
    where: str
    traceback: str
    has_group: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """Reaped, and nothing of its subtree is left."""

    worker: str
    code: int
    """Negative for a signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoresReady:
    """All fresh stores, next to be used first."""

    stores: tuple[StoreAddress, ...] = field(default=())


FromPool = PoolReady | PoolFailed | Started | StartFailed | Raised | Exited | StoresReady

_TO_POOL = {kind.__name__: kind for kind in (Start, Stop, License, KeepStores)}
_FROM_POOL = {
    kind.__name__: kind
    for kind in (PoolReady, PoolFailed, Started, StartFailed, Raised, Exited, StoresReady)
}


def pack(message: ToPool | FromPool) -> bytes:
    """One line, with its newline."""
    return json.dumps([type(message).__name__, to_plain(message)]).encode() + b"\n"


def unpack_to_pool(line: bytes) -> ToPool:
    message: ToPool = _unpack(line, _TO_POOL)
    return message


def unpack_from_pool(line: bytes) -> FromPool:
    message: FromPool = _unpack(line, _FROM_POOL)
    return message


def _unpack(line: bytes, kinds: Mapping[str, type]) -> Any:
    try:
        name, plain = json.loads(line)
        return from_plain(kinds[name], plain)
    except (ValueError, KeyError, TypeError) as exc:
        raise InvariantBroken(f"A message on the pool's channel does not fit: {exc}") from exc

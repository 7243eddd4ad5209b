"""The messages between an agent and a fork server, from which the warm pools of jobs are forked.

A message is one packet of a unix socket of the kind SOCK_SEQPACKET, so it has its end without a
mark. An order may be longer than a packet: it stands in a file in memory, whose descriptor goes
with `FORK`, before the pool's end of its connection, its log, and the end of a pipe. The pool does
nothing until the agent, which knows it by then, has written a byte into that pipe.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from elasticd.channel import wire

__all__ = [
    "REAP",
    "FORK",
    "ORDER_FDS",
    "PACKET_BYTES",
    "SERVER_VARIABLE",
    "Buried",
    "ForkOrder",
    "ForkRefused",
    "FromServer",
    "PoolForked",
    "ServerFailed",
    "ServerReady",
    "unpack_from_server",
    "unpack_order",
]

SERVER_VARIABLE = "ELASTICD_FORK_SERVER"
"""Names the socket of a fork server that serves more than one agent of this machine."""

FORK = b"fork"
REAP = b"bury"  # The wire keeps its word: the server may be of another version.
ORDER_FDS = 4
"""The order, the pool's end of its connection to the agent, its log, the end of a pipe."""
PACKET_BYTES = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkOrder:
    """The order for a pool; it is answered by PoolForked or ForkRefused."""

    job: str
    env: Mapping[str, str]
    """Its whole environment, not a difference."""
    surroundings: Mapping[str, str]
    """Where the agent runs, which the pool must not leave."""
    folder: str
    """Where modules are looked for first."""
    script: str = ""
    is_module: bool = False
    learn_in: str = ""
    """Where it is kept what the script imports; empty if that is not learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReady:
    """It is the first packet of each connection, unless the imports failed."""

    import_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFailed:
    """No pool can be forked from this server, ever."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolForked:
    """A descriptor of the process goes with it: the number may be another's after its end."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRefused:
    """A pool for this order must be started as a program of its own."""

    why: str
    is_stale: bool = False
    """True if a new server would not refuse it: packages were installed since this one began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buried:
    """The fork server has reaped a pool: none of its processes is left."""

    pid: int


FromServer = ServerReady | ServerFailed | PoolForked | ForkRefused | Buried

_FROM_SERVER = {kind.__name__: kind for kind in get_args(FromServer)}


def unpack_from_server(packet: bytes) -> FromServer:
    message: FromServer = wire.unpack(packet, _FROM_SERVER)
    return message


def unpack_order(data: bytes) -> ForkOrder:
    order: ForkOrder = wire.unpack(data, {ForkOrder.__name__: ForkOrder})
    return order

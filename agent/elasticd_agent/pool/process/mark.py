"""A worker's name on every process that descends from it, also on those that left its session.

A daemon that forks twice and calls setsid loses parent and session, by which one finds a
descendant. It keeps the memory that /proc/PID/environ shows: a copy of the environment that the
last exec laid down. Processes that exec get our variable the ordinary way. For processes that only
fork, the pool is exec'ed with room in that memory, and a forked worker writes its name there.

Rejected: one cgroup for each worker. It is the better tool, but few containers let us make one.
"""

import ctypes
import os
import sys
from collections.abc import Mapping
from typing import NoReturn

from elasticd_agent.pool.process.prctl import environment_area

__all__ = [
    "MARK",
    "NAME_LIMIT_BYTES",
    "exec_again_with_room",
    "has_room",
    "read_mark",
    "take_environment_room",
    "take_room",
    "write_environment",
    "write_mark",
]

MARK = "ELASTICD_WORKER"
NAME_LIMIT_BYTES = 200
_ROOM = "_" * NAME_LIMIT_BYTES
_ENVIRONMENT = "ELASTICD_ENVIRONMENT"
_ENVIRONMENT_BYTES = 65_536
"""Less than Linux allows for one variable, more than the environment of most jobs."""


def has_room(env: Mapping[str, str]) -> bool:
    return env.get(MARK) == _ROOM


def exec_again_with_room(*, has_environment: bool = False) -> NoReturn:
    """Start this program anew, in the same process, with room for a name. Costs 20 ms, once.

    `has_environment` asks also for room for another environment, which a fork of this process is to
    show.
    """
    env = {**os.environ, MARK: _ROOM}
    if has_environment:
        env[_ENVIRONMENT] = "_" * _ENVIRONMENT_BYTES
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], env)  # noqa: S606  # itself


def take_room() -> int:
    """Return the memory for a name; call it before anything sets the variable."""
    address, size = environment_area(MARK)
    os.environ.pop(MARK, None)
    return address if size == NAME_LIMIT_BYTES else 0


def take_environment_room() -> tuple[int, int]:
    """Return the address of the room for an environment, and its bytes; (0, 0) if there is none."""
    address, size = environment_area(_ENVIRONMENT)
    os.environ.pop(_ENVIRONMENT, None)
    return (address, size) if size == _ENVIRONMENT_BYTES else (0, 0)


def write_environment(room: tuple[int, int], env: Mapping[str, str]) -> None:
    """Show these variables in our /proc/PID/environ too, as far as there is room for them."""
    address, size = room
    text = b""
    for name, value in env.items():
        entry = os.fsencode(f"{name}={value}") + b"\0"
        if len(text) + len(entry) < size:
            text += entry
    if address:
        # The first entry would be taken for the value of the variable that has made the room.
        ctypes.memmove(address, (b"\0" + text).ljust(size, b"\0"), size)


def write_mark(room: int, name: str) -> None:
    """Show a name in our /proc/PID/environ, and in that of all that we fork from now on."""
    if room:
        ctypes.memmove(room, name.encode().ljust(NAME_LIMIT_BYTES, b"\0"), NAME_LIMIT_BYTES)


def read_mark(environ: bytes) -> str:
    """Return the worker's name in the content of a /proc/PID/environ; empty if there is none."""
    prefix = f"{MARK}=".encode()
    for entry in environ.split(b"\0"):
        if entry.startswith(prefix):
            name = entry[len(prefix) :].decode(errors="replace")
            return "" if name == _ROOM else name
    return ""

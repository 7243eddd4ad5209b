"""The processes of one run, found by variables in their environment, whatever became of them.

A process keeps the environment of its last exec for /proc to show, also when it left its session,
lost its parent, or was forked from a pool. So a mark finds agents, pools, workers, and whatever
these started; one more variable tells the node, another the life of its agent.
"""

import ctypes
import os
import secrets
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chaos.error import ChaosError

__all__ = ["Mark", "Process", "adopt_orphans", "boottime_s", "is_stopped", "send"]

RUN, NODE, LIFE = "CHAOS_RUN", "CHAOS_NODE", "CHAOS_LIFE"
WORKER = b"ELASTICD_WORKER="
"""elasticd names each worker there: `<generation>.<...>`; the pool itself has only a filler."""
FILLER = b"_"
STRANGERS = ("ELASTICD_", "PET_", "TORCHELASTIC_", "OMP_", "CHAOS_")
PR_SET_CHILD_SUBREAPER = 36
KILL_LIMIT_S = 20.0
POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    pid: int
    name: str
    """As set by prctl: elasticd names its workers rank<n>."""
    command: str
    node: str
    life: int
    """0: not of an agent."""
    is_worker: bool
    """Or descends from one."""


class Mark:
    """The mark of one run."""

    def __init__(self) -> None:
        self._value = secrets.token_hex(8)

    def environ(self, *, node: str = "", life: int = 0) -> dict[str, str]:
        """Our environment without what steers elasticd or torchrun, and with the mark."""
        kept = {key: text for key, text in os.environ.items() if not key.startswith(STRANGERS)}
        marked = {**kept, RUN: self._value}
        if node:
            marked |= {NODE: node, LIFE: str(life)}
        return marked

    def processes(self) -> list[Process]:
        """List those that live, the oldest first; zombies hold nothing and are left out."""
        found = []
        wanted = f"{RUN}={self._value}".encode()
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with suppress(OSError):  # it ended meanwhile
                    process = _read(Path(entry.path), wanted)
                    if process is not None:
                        found.append(process)
        return sorted(found, key=lambda process: process.pid)

    def kill_all(self) -> None:
        """SIGKILL, until none is left: they may start others meanwhile.

        Raises:
            ChaosError: one cannot be killed.
        """
        deadline_s = time.monotonic() + KILL_LIMIT_S
        while left := self.processes():
            send((process.pid for process in left), signal.SIGKILL)
            if time.monotonic() > deadline_s:
                raise ChaosError(f"These processes cannot be killed: {left}.")
            time.sleep(POLL_S)
            reap()


def send(pids: Iterable[int], number: signal.Signals) -> list[int]:
    """Send a signal; return those that were there to get it."""
    reached = []
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            reached.append(pid)
    return reached


def adopt_orphans() -> None:
    """Become the parent of every process below us whose parent dies."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(except_for: Iterable[int] = ()) -> None:
    """Take leave of orphans that came to us and have ended; not of children that somebody owns."""
    kept = set(except_for)
    for pid in _children():
        if pid not in kept:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped the process (state T); a debugger's stop is state t."""
    with suppress(OSError):
        return _state((Path("/proc") / str(pid) / "stat").read_text(errors="replace")) == "T"
    return False


def _state(stat: str) -> str:
    """Return the state of a process from its /proc/PID/stat; its name may hold parentheses."""
    return stat[stat.rindex(")") + 2]


def _read(folder: Path, wanted: bytes) -> Process | None:
    entries = (folder / "environ").read_bytes().split(b"\0")
    if wanted not in entries:
        return None
    text = (folder / "stat").read_text(errors="replace")
    name = text[text.index("(") + 1 : text.rindex(")")]
    if _state(text) in "ZX":
        return None
    values = {
        key: value
        for key, _, value in (entry.decode(errors="replace").partition("=") for entry in entries)
    }
    return Process(
        pid=int(folder.name),
        name=name,
        command=(folder / "cmdline")
        .read_bytes()
        .replace(b"\0", b" ")
        .decode(errors="replace")
        .strip(),
        node=values.get(NODE, ""),
        life=int(values.get(LIFE, 0)),
        is_worker=any(
            entry.startswith(WORKER) and not entry.startswith(WORKER + FILLER) for entry in entries
        ),
    )


def _children() -> list[int]:
    with suppress(OSError):
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return [int(word) for word in text.split()]
    return []

"""The processes that `elasticd run` starts on this machine, and their certain end.

Agents are children in sessions of their own, so that Ctrl-C on the terminal reaches only this
process, which decides which agents end. Three things keep a process from being left behind: an
agent asks the kernel for SIGTERM when this process dies (it does so itself: a hook between fork and
exec is not safe beside grpc's threads), a pool kills its workers when its agent is gone, and this
process is a subreaper, so that processes that still escaped become its children and are killed at
the end.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elasticd.records.ids import JobName, NodeId
from elasticd.store.api import StoreSettings
from elasticd.telemetry.log import open_log

__all__ = [
    "AgentCall",
    "Agents",
    "adopt_orphans",
    "end_descendants",
    "event_writers",
    "is_dead",
    "keepers",
]

PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.02
LAST_LINES_BYTES = 16384
WORDS_LIMIT = 300
PASSWORD_VARIABLE = "ELASTICD_ETCD_PASSWORD"  # noqa: S105  # a name; argv is there for all to read


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall:
    """One agent to start here."""

    node: NodeId
    job: JobName
    store: StoreSettings
    cluster: str
    slots: int
    run_folder: Path
    log_path: Path
    lease_ttl_s: float
    address: str = ""
    """The address; empty if the agent finds its own address."""
    env: Mapping[str, str]
    """The agent's whole environment, which its workers inherit."""

    def argv(self, parent_pid: int) -> list[str]:
        # Without -P, `python -m` puts the user's folder first in sys.path and may hide our modules.
        argv = [sys.executable, "-P", "-m", "elasticd.cli", "agent", "--log-json"]
        flags = {
            "etcd": ",".join(self.store.endpoints),
            "etcd-user": self.store.user,
            "etcd-cacert": self.store.ca_file,
            "etcd-cert": self.store.cert_file,
            "etcd-key": self.store.key_file,
            "cluster": self.cluster,
            "job": self.job,
            "node-id": self.node,
            "slots": str(self.slots),
            "local-addr": self.address,
            "log-dir": str(self.run_folder),
            "lease-ttl": f"{self.lease_ttl_s:g}",
            "parent-pid": str(parent_pid),
        }
        for flag, value in flags.items():
            if value:
                argv += [f"--{flag}", value]
        return argv


class Agents:
    """The agents of this machine; `stop` ends them in any case."""

    def __init__(self) -> None:
        self._children: dict[NodeId, tuple[subprocess.Popen[bytes], Path]] = {}

    def start(self, calls: Sequence[AgentCall]) -> None:
        """Start all agents, from a thread that does not end: parent-death signals belong to it."""
        for call in calls:
            env = dict(call.env)
            if call.store.password:
                env[PASSWORD_VARIABLE] = call.store.password
            with open_log(call.log_path) as log:
                child = subprocess.Popen(
                    call.argv(os.getpid()),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=env,
                    start_new_session=True,
                )
            self._children[call.node] = (child, call.log_path)

    @property
    def nodes(self) -> frozenset[NodeId]:
        return frozenset(self._children)

    def running(self) -> list[NodeId]:
        return [node for node, (child, _) in self._children.items() if child.poll() is None]

    def ended(self) -> dict[NodeId, int]:
        """Return the exit codes of the agents that have ended; a negative one is a signal."""
        return {
            node: child.returncode
            for node, (child, _) in self._children.items()
            if child.poll() is not None
        }

    def last_words(self, node: NodeId) -> str:
        """Return the last line that an agent wrote for people, to tell why it ended."""
        _, path = self._children[node]
        with suppress(OSError), path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - LAST_LINES_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
            plain = [line for line in lines if line.startswith("elasticd: ")]
            # The agent's log lines are JSON, for programs.
            others = [line for line in lines if not line.startswith("{")]
            return (plain or others or [""])[-1].removeprefix("elasticd: ")[:WORDS_LIMIT]
        return ""

    def signal(self, number: int, nodes: Collection[NodeId] | None = None) -> None:
        """Send a signal to all agents, or to those of `nodes`; a signal handler may call this."""
        for node, (child, _) in self._children.items():
            if nodes is None or node in nodes:
                with suppress(ProcessLookupError):
                    child.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Wait until all agents have ended; return False if one still runs after `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        while self.running():
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(POLL_S)
        return True

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM to all agents, and SIGKILL to those that still run after `grace_s`."""
        if self.running():
            self.signal(signal.SIGTERM)
            if not self.wait(grace_s):
                self.signal(signal.SIGKILL)
                self.wait(5.0)


def adopt_orphans() -> None:
    """Make this process the new parent of each descendant whose parent dies."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def is_dead(pid: int) -> bool:
    """Return whether a child has ended; the child is not reaped."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def end_descendants(grace_s: float, timeout_s: float = 5.0) -> int:
    """Wait `grace_s` for the descendants to end, then kill the rest; return the number of kills."""
    deadline_s = time.monotonic() + grace_s
    _reap()
    while (left := _descendants()) and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
        _reap()
    killed = set()
    deadline_s = time.monotonic() + timeout_s
    while (left := _descendants()) and time.monotonic() < deadline_s:
        for pid in left:
            killed.add(pid)
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)
        _reap()
    return len(killed)


def keepers() -> dict[int, str]:
    """Return the descendants that are keepers of checkpoints: process number and socket's name."""
    return _running("elasticd.keeper")


def event_writers() -> dict[int, str]:
    """Return the descendants that are writers of event files: process number and socket's name."""
    return _running("elasticd.tensorboard.writer")


def _running(module: str) -> dict[int, str]:
    found = {}
    for pid in _descendants():
        with suppress(OSError):
            # A script may give its processes names and arguments that are no text.
            call = os.fsdecode(Path("/proc", str(pid), "cmdline").read_bytes()).split("\0")
            if module in call[:-2]:
                found[pid] = call[call.index(module) + 1]
    return found


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _descendants() -> set[int]:
    """Return the process numbers of this process's live descendants."""
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                # The name in parentheses may contain any character, even spaces and parentheses.
                # The kernel cuts a name after 15 bytes, so it need not be text either.
                stat = Path("/proc", entry.name, "stat").read_bytes()
                state, parent = stat.rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    parents[int(entry.name)] = int(parent)
    found: set[int] = set()
    fresh = {os.getpid()}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found

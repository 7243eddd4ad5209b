"""Collects a job's files from nodes and disks: from all nodes at once, within a time limit.

A thread of its own asks each node, in the order of the use to a reader: the agent's facts about
itself, the stacks, the output of ranks that failed, then the output of the others from the newest
generation on. Files that a node did not send in time are listed as missing; no later step waits for
them.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue

from elasticd.bundle.agent_client import AgentClient
from elasticd.bundle.job_files import LOG_BYTES, JobFile, JobFiles, generation_of
from elasticd.bundle.mask import Mask
from elasticd.bundle.part import Parts
from elasticd.errors import NotFound
from elasticd.net.listener import host_port
from elasticd.records.ids import JobName, NodeId
from elasticd.records.member import Node
from elasticd.store.api import StoreSettings

__all__ = ["BundleRequest", "files_path", "from_agents", "from_disk", "worth"]

LIMIT_S = 60.0
"""The time limit in seconds; files that arrive later are left out."""
THREADS = 32
RAW_BYTES = 192 << 20
"""The limit for all files together before compression, in bytes, since the caller holds them in
memory."""
OLDER = "its agent is of a version that does not give these"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRequest:
    """The job of the bundle, and the files that come first."""

    job: JobName
    mask: Mask
    failed: frozenset[tuple[int, int]] = frozenset()
    """The generation and rank of each worker that failed."""


def files_path(job: JobName, name: str) -> str:
    """Return the path in a bundle for a file of the job's folder, as `--log-dir run` reads it."""
    return f"run/{job}/{name}"


def worth(name: str, failed: frozenset[tuple[int, int]], newest: int) -> tuple[int, int, int]:
    """Return a key that orders the files by their use to a reader, the most useful first."""
    output = generation_of(name)
    if output is None:
        return (4 if name.startswith("prepared/") else 1, 0, 0)
    generation, rank = output
    is_first = output in failed or name.endswith(".json")
    return (2 if is_first else 3 if generation == newest else 5, -generation, rank)


def from_disk(folder: Path, wanted: BundleRequest, taken: Collection[str] = ()) -> Parts:
    """Return the files of the job's folder on this machine, without those of `taken`."""
    files, parts, room = JobFiles(folder), Parts(), RAW_BYTES
    for file in _ordered(files.list(), wanted):
        path = files_path(wanted.job, file.name)
        if path in taken:
            continue
        try:
            data = files.end(file.name, wanted.mask, room)
        except NotFound:
            continue
        except OSError as exc:
            parts.lack(path, f"it cannot be read ({exc.strerror})")
            continue
        parts.add(path, data, size=file.size)
        room -= len(data)
        if room <= 0:
            parts.lack("more of the job's files", f"they are too many: see {folder}")
            break
    return parts


def from_agents(
    nodes: Sequence[Node],
    settings: StoreSettings | None,
    wanted: BundleRequest,
    *,
    limit_s: float = LIMIT_S,
    opened: Callable[[Node, JobName, StoreSettings | None], AgentClient] = AgentClient,
) -> Mapping[NodeId, Parts]:
    """Ask all nodes; return the parts that each sent within the limit, and no file twice."""
    claims = _Claims(set())
    visits = [
        _Visit(node=node, client=opened(node, wanted.job, settings), wanted=wanted, claims=claims)
        for node in nodes
    ]
    waiting: SimpleQueue[_Visit] = SimpleQueue()
    for visit in visits:
        visit.room = RAW_BYTES // len(visits)
        waiting.put(visit)
    until_s = time.monotonic() + limit_s
    threads = [
        # A node that neither answers nor closes the connection must not hold this process.
        threading.Thread(target=_work, args=(waiting, until_s), name="bundle", daemon=True)
        for _ in range(min(THREADS, len(visits)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    return {visit.node.node: visit.result(limit_s) for visit in visits}


@dataclass(slots=True)
class _Claims:
    """The names of files that a node already sends, since agents may share a folder."""

    names: set[str]
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, name: str) -> bool:
        with self.lock:
            is_free = name not in self.names
            self.names.add(name)
            return is_free

    def release(self, name: str) -> None:
        with self.lock:
            self.names.discard(name)


@dataclass(slots=True, kw_only=True)
class _Visit:
    """The requests to one node."""

    node: Node
    client: AgentClient
    wanted: BundleRequest
    claims: _Claims
    room: int = 0
    parts: Parts = field(default_factory=Parts)
    is_begun: bool = False
    is_done: bool = False
    is_over: bool = False
    """True if nothing waits for this node any more: files that arrive now are too late."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        self.is_begun = True
        try:
            self._ask_agent()
            if not self.client.is_silent:
                self._ask_files()
            if self.client.is_silent:
                where = host_port(self.node.address, self.node.http_port)
                self._lack(f"node {self.node.node}", f"its agent does not answer ({where})")
        finally:
            self.client.close()
            self.is_done = True

    def result(self, limit_s: float) -> Parts:
        """Return the parts that have arrived; no part is added afterwards."""
        with self.lock:
            self.is_over = True
            if not self.is_done:
                begun = "gave the rest of it" if self.is_begun else "could be asked"
                self.parts.lack(f"node {self.node.node}", f"not all {begun} within {limit_s:g} s")
            return self.parts

    def _ask_agent(self) -> None:
        name = self.node.node
        log = files_path(self.wanted.job, f"agents/{name}.log")
        for path, what, ask in (
            (log, "agent's own log", self.client.log),
            (f"versions/{name}.json", "versions", self.client.versions),
            (f"metrics/{name}.txt", "metrics", self.client.metrics),
        ):
            data = ask()
            if self.client.is_silent:
                return
            if data is None:
                why = OLDER if what != "metrics" else "its agent was too busy to tell"
                self._lack(f"{what} of node {name}", why)
                continue
            if path == log:
                self.claims.take(f"agents/{name}.log")
            self._add(path, data, 0)

    def _ask_files(self) -> None:
        found = self.client.list()
        if found is None:
            if not self.client.is_silent:
                self._lack(f"files of node {self.node.node}", OLDER)
            return
        left_out = 0
        for file in _ordered(found, self.wanted):
            if self.is_over or not self.claims.take(file.name):
                continue
            if self.room < min(file.size, LOG_BYTES):
                left_out += 1
                continue
            data = self.client.end(file.name, self.room)
            if self.client.is_silent:
                return
            if data is None:
                self.claims.release(file.name)
                path = files_path(self.wanted.job, file.name)
                self._lack(f"{path} of node {self.node.node}", "it cannot be read there")
                continue
            self.room -= len(data)
            self._add(files_path(self.wanted.job, file.name), data, file.size)
        if left_out:
            what = f"{left_out} files of node {self.node.node}"
            self._lack(what, "of so many nodes there is room for less of each")

    def _add(self, path: str, data: bytes, size: int) -> None:
        masked = self.wanted.mask.data(data)
        with self.lock:
            if not self.is_over:
                whole = size if size > len(data) else 0
                self.parts.add(path, masked, size=whole, node=self.node.node)

    def _lack(self, what: str, why: str) -> None:
        with self.lock:
            if not self.is_over:
                self.parts.lack(what, why)


def _work(waiting: "SimpleQueue[_Visit]", until_s: float) -> None:
    while time.monotonic() < until_s:
        try:
            visit = waiting.get_nowait()
        except Empty:
            return
        visit.run()


def _ordered(files: Sequence[JobFile], wanted: BundleRequest) -> list[JobFile]:
    known = [output for file in files if (output := generation_of(file.name))]
    newest = max((generation for generation, _ in known), default=0)
    return sorted(files, key=lambda file: (worth(file.name, wanted.failed, newest), file.name))

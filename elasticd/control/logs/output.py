"""Reads the output of workers while they write it: local files, and logs of agents on other hosts.

A worker writes only to files in the run folder (elasticd has no pipe that could fill up), and this
module reads these files. One thread reads local files, another asks the agents of other hosts. The
files of generation n are read until generation n + 2 begins, since workers may print while they are
being stopped.
"""

import http.client
import os
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.message import Message
from pathlib import Path
from typing import BinaryIO, Protocol

from elasticd.control.logs.console import ERR, OUT, TIMES, Choice
from elasticd.control.logs.log_hole import find_gap
from elasticd.control.logs.log_slice import CHUNK_BYTES, LogSlice, OpenLog, dropped
from elasticd.control.logs.log_times import LogTimes, TimedLines
from elasticd.records.ids import Generation, JobName, NodeId, Rank
from elasticd.records.member import Node
from elasticd.records.world import World, WorldNode
from elasticd.store.api import StoreSettings

__all__ = [
    "TROUBLE",
    "LogFetch",
    "HttpFetch",
    "LogName",
    "Tail",
    "local_log",
    "log_path",
    "remote_log",
    "times_beside",
]

LOCAL_POLL_S = 0.05
REMOTE_POLL_S = 0.5
REMOTE_TIMEOUT_S = 5.0
FAR_BEHIND = 10**15 - 1
"""An offset beyond the end of any log: an agent then answers with the size only."""
LINE_LIMIT_BYTES = 1 << 16
"""A longer line is shown in pieces of this size."""
GENERATIONS_KEPT = 2
TROUBLE = "writes to etcd fail: "
"""The words in an agent's `/healthz` before its sentence about refused writes."""
TROUBLE_LIMIT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LogName:
    """The name of one stream of a worker, or of the times of both streams (`TIMES`)."""

    job: JobName
    generation: Generation
    rank: Rank
    stream: int

    @property
    def suffix(self) -> str:
        return {OUT: "out", ERR: "err", TIMES: "times"}[self.stream]


def log_path(run_folder: Path, name: LogName) -> Path:
    return run_folder / name.job / f"gen-{name.generation}" / f"rank-{name.rank}.{name.suffix}"


class LogFetch(Protocol):
    """Reads a log from another host's agent."""

    def __call__(self, node: Node, name: LogName, offset: int) -> bytes | None:
        """Return the bytes from the offset on; None if there is no such file or no answer."""

    def size(self, node: Node, name: LogName) -> int | None:
        """Return the log's size in bytes, 0 if there is no such file, None without an answer."""

    def close(self) -> None: ...


class HttpFetch:
    """Asks agents' log servers, over TLS with the client's certificate if etcd uses TLS, too."""

    def __init__(
        self, settings: StoreSettings | None = None, timeout_s: float = REMOTE_TIMEOUT_S
    ) -> None:
        self._timeout_s = timeout_s
        self._context: ssl.SSLContext | None = None
        if settings is not None and settings.ca_file and settings.cert_file:
            self._context = ssl.create_default_context(cafile=settings.ca_file)
            # Nodes are reached by address, and their certificates have any name that the operator
            # chose. So only the CA's signature is checked.
            self._context.check_hostname = False
            self._context.load_cert_chain(settings.cert_file, settings.key_file)
        self._connections: dict[tuple[str, int], http.client.HTTPConnection] = {}

    def __call__(self, node: Node, name: LogName, offset: int) -> bytes | None:
        """Return the bytes from the offset on; None if the node does not answer."""
        path = f"/v1/logs/{name.job}/{name.generation}/{name.rank}/{name.suffix}?offset={offset}"
        return self.get(node, path, CHUNK_BYTES + 1)

    def size(self, node: Node, name: LogName) -> int | None:
        """Return the log's size in bytes, 0 if there is no such file, None without an answer."""
        path = (
            f"/v1/logs/{name.job}/{name.generation}/{name.rank}/{name.suffix}?offset={FAR_BEHIND}"
        )
        answer = self._ask(node, path, CHUNK_BYTES + 1)
        if answer is None:
            return None
        size = answer[1].get("X-Elasticd-Size", "")
        return int(size) if size.isdecimal() else 0

    def trouble(self, node: Node) -> str:
        """Return which writes of this node etcd refuses; empty if none or without an answer."""
        body = self.get(node, "/healthz", TROUBLE_LIMIT_BYTES) or b""
        return body.decode("utf-8", "replace").partition(TROUBLE)[2].strip()

    def get(self, node: Node, path: str, limit_bytes: int) -> bytes | None:
        """Return the body of an answer, empty if there is no such path, None without an answer."""
        answer = self._ask(node, path, limit_bytes)
        return answer[0] if answer is not None else None

    def answer(self, node: Node, path: str, limit_bytes: int) -> tuple[int, bytes] | None:
        """Return the status and the body of any answer; None without an answer."""
        found = self._reply(node, path, limit_bytes)
        return found[:2] if found is not None else None

    def date(self, node: Node) -> str | None:
        """Return the time of the node's clock as an HTTP date.

        The text is empty if the answer has no date. The result is None without an answer.
        """
        found = self._reply(node, "/healthz", TROUBLE_LIMIT_BYTES)
        return found[2].get("Date", "") if found is not None else None

    def _ask(self, node: Node, path: str, limit_bytes: int) -> tuple[bytes, Message] | None:
        found = self._reply(node, path, limit_bytes)
        if found is None:
            return None
        status, body, headers = found
        return (body, headers) if status == http.client.OK else (b"", Message())

    def _reply(self, node: Node, path: str, limit_bytes: int) -> tuple[int, bytes, Message] | None:
        where = (node.address, node.http_port)
        if not node.http_port:
            return None
        connection = self._connections.get(where) or self._connect(*where)
        self._connections[where] = connection
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read(limit_bytes)
        except (OSError, http.client.HTTPException):
            connection.close()
            return None
        return answer.status, body, answer.headers

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _connect(self, address: str, port: int) -> http.client.HTTPConnection:
        if self._context is not None:
            return http.client.HTTPSConnection(
                address, port, timeout=self._timeout_s, context=self._context
            )
        return http.client.HTTPConnection(address, port, timeout=self._timeout_s)


@dataclass(slots=True, kw_only=True)
class _Reading:
    """The position in one stream; the thread that reads the stream owns this object."""

    name: LogName
    node: Node | None
    """The node; None if the log is on this host, or if the node is unknown."""
    wanted: LogSlice
    """The part of the log that is shown."""
    offset: int = 0
    file: BinaryIO | None = None
    rest: bytes = b""
    """The beginning of a line whose end has not been read."""
    log: OpenLog | None = None
    """The log; None until the log exists."""
    is_begun: bool = False
    stamps: TimedLines | None = None


@dataclass(slots=True)
class _Lane:
    """The streams that one thread reads."""

    poll_s: float
    readings: list[_Reading] = field(default_factory=list)
    thread: threading.Thread | None = None


class Tail:
    """Shows the streams that a console choice picks, for each world that `show` gets.

    Without `fetch` it shows only the streams of this host's agents (`own_nodes`): with `--join`,
    as with torchrun, every host shows its own workers.
    """

    def __init__(
        self,
        *,
        job: JobName,
        run_folder: Path,
        choice: Choice,
        write: Callable[[int, bytes], None],
        own_nodes: frozenset[NodeId] = frozenset(),
        fetch: LogFetch | None = None,
        own_host: str = "",
        wanted: LogSlice | None = None,
    ) -> None:
        """Start the threads; `wanted` is the part of the first world's present output to show."""
        self._job, self._run_folder, self.choice = job, run_folder, choice
        self._write, self._fetch, self.own_nodes = write, fetch, own_nodes
        self._own_host = own_host or socket.gethostname()
        self._wanted = wanted or LogSlice()
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._ending = threading.Event()
        self._oldest = 0
        self._local = _Lane(poll_s=LOCAL_POLL_S)
        self._remote = _Lane(poll_s=REMOTE_POLL_S)

    def show(self, world: World, nodes: Mapping[NodeId, Node]) -> None:
        """Show this world's streams, too; streams of worlds that ended long ago are dropped."""
        for place in world.placements():
            streams = self.choice.streams(place.rank, place.local_rank)
            for stream in (OUT, ERR):
                if streams & stream:
                    name = LogName(
                        job=self._job, generation=world.generation, rank=place.rank, stream=stream
                    )
                    self._add(name, place.node, nodes.get(place.node.node))
        self._oldest = world.generation - GENERATIONS_KEPT + 1
        # The output of later worlds is shown from its beginning.
        self._wanted = replace(self._wanted, lines=None, since_unix_s=None)

    def finish(self, timeout_s: float) -> None:
        """Read all streams to their ends and stop; call this when the workers are gone."""
        self._ending.set()
        for lane in (self._local, self._remote):
            if lane.thread is not None:
                lane.thread.join(timeout_s)
        if self._fetch is not None:
            self._fetch.close()

    # --- private ------------------------------------------------------------------------------

    def _add(self, name: LogName, place: WorldNode, node: Node | None) -> None:
        is_own = place.node in self.own_nodes
        if not is_own and (self._fetch is None or node is None):
            return
        # A daemon on this host may keep its logs in the same run folder: then it is not asked.
        is_here = place.host == self._own_host and (self._run_folder / name.job).is_dir()
        is_local = is_own or is_here
        lane = self._local if is_local else self._remote
        with self._lock:
            lane.readings.append(
                _Reading(
                    name=name,
                    node=None if is_local else node,
                    wanted=self._wanted,
                )
            )
        if lane.thread is None:
            lane.thread = threading.Thread(
                target=self._read_lane, args=(lane,), name="output", daemon=True
            )
            lane.thread.start()

    def _read_lane(self, lane: _Lane) -> None:
        is_last = False
        while not is_last:
            is_last = self._ending.wait(lane.poll_s)
            with self._lock:
                readings = list(lane.readings)
            for reading in readings:
                while self._read_some(reading):
                    pass
                if is_last or reading.name.generation < self._oldest:
                    self._end(reading)
                    with self._lock:
                        lane.readings.remove(reading)

    def _read_some(self, reading: _Reading) -> bool:
        """Read one chunk; return whether more may be available at once."""
        if reading.log is None:
            reading.log = self._open(reading)
        log = reading.log
        if log is None:
            return False
        if not reading.is_begun:
            if self._is_silent(reading):
                return False
            begin = reading.wanted.begin(log)
            reading.offset = log.size() if begin is None else begin
            reading.stamps = reading.wanted.stamps(log, reading.offset, is_live=True)
            reading.is_begun = True
        data = log.read(reading.offset, CHUNK_BYTES)
        if not data:
            return False
        size = len(data)
        gap = find_gap(log.read, data, reading.offset, log.size()) if b"\0" in data else None
        if gap is not None:
            data = data[: gap.begin - reading.offset] + dropped(gap.end - gap.begin)
            reading.offset = gap.end
        else:
            reading.offset += size
        if reading.stamps is not None:
            data = reading.stamps.stamped(data)
            reading.stamps.offset = reading.offset
        self._emit(reading, data)
        return size >= CHUNK_BYTES or gap is not None

    def _is_silent(self, reading: _Reading) -> bool:
        """Return whether the offset to begin at is unknown, because the node does not answer."""
        if reading.node is None or self._fetch is None or reading.wanted.is_complete:
            return False
        return self._fetch.size(reading.node, reading.name) is None

    def _open(self, reading: _Reading) -> OpenLog | None:
        if reading.node is not None:
            assert self._fetch is not None
            return remote_log(self._fetch, reading.node, reading.name)
        path = log_path(self._run_folder, reading.name)
        with suppress(OSError):
            reading.file = path.open("rb")
            return local_log(reading.file, path, reading.name.stream)
        return None

    def _emit(self, reading: _Reading, data: bytes) -> None:
        if self.choice.has_prefix:
            *lines, reading.rest = (reading.rest + data).split(b"\n")
            if len(reading.rest) > LINE_LIMIT_BYTES:
                lines, reading.rest = [*lines, reading.rest], b""
            prefix = b"[rank%d]:" % reading.name.rank
            data = b"".join(prefix + line + b"\n" for line in lines)
        if data:
            with self._write_lock:
                self._write(reading.name.stream, data)

    def _end(self, reading: _Reading) -> None:
        if reading.rest:
            self._emit(reading, b"\n")
        if reading.file is not None:
            reading.file.close()


def local_log(file: BinaryIO, path: Path, stream: int) -> OpenLog:
    """Return a log of this machine as an OpenLog; the caller opens and closes `file`."""

    def read(offset: int, count: int) -> bytes:
        return os.pread(file.fileno(), count, offset)

    return OpenLog(
        read=read,
        size=lambda: os.fstat(file.fileno()).st_size,
        times=lambda: times_beside(path, stream),
    )


def times_beside(path: Path, stream: int) -> LogTimes:
    """Return the times that an agent noted beside a log of this machine; none if it noted none."""
    with suppress(OSError):
        return LogTimes.parse(path.with_suffix(".times").read_bytes(), stream)
    return LogTimes()


def remote_log(fetch: LogFetch, node: Node, name: LogName) -> OpenLog:
    """Return a log of another node as an OpenLog; a missing answer counts as the log's end."""

    def read(offset: int, count: int) -> bytes:
        return (fetch(node, name, offset) or b"")[:count]

    def times() -> LogTimes:
        noted, beside = b"", replace(name, stream=TIMES)
        while data := fetch(node, beside, len(noted)):
            noted += data
        return LogTimes.parse(noted, name.stream)

    return OpenLog(read=read, size=lambda: fetch.size(node, name) or 0, times=times)

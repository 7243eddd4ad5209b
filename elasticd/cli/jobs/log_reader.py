"""The present output of workers, from this machine's files or from the nodes' log servers."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from elasticd.cli.jobs.follow import run_folder_of
from elasticd.cli.record_source import RecordSource, complain_once
from elasticd.control.logs.console import ERR, OUT
from elasticd.control.logs.log_slice import LogSlice, OpenLog, line_count, read_slice
from elasticd.control.logs.output import (
    HttpFetch,
    LogFetch,
    LogName,
    log_path,
    remote_log,
    times_beside,
)
from elasticd.control.report.report import JobReport
from elasticd.control.report.unreadable import UnreadableRecords, readable_nodes
from elasticd.errors import NotFound, Unavailable
from elasticd.records.ids import Generation, NodeId, Rank
from elasticd.records.member import Node

__all__ = ["RemoteLogs", "print_logs"]


def print_logs(
    source: RecordSource,
    report: JobReport,
    ranks: Sequence[int],
    generation: int | None,
    *,
    wanted: LogSlice,
    is_json: bool,
    node: NodeId | None = None,
) -> None:
    """Print the output of all generations, or of one; with `node`, only the output on that node.

    Raises:
        NotFound: neither this machine nor a node that answers has any output.
        Unavailable: a node stopped answering in the middle of its output.
    """
    newest = max(report.status.generation, report.world.generation if report.world else 0)
    numbers = [generation] if generation is not None else range(1, newest + 1)
    unreadable = UnreadableRecords()
    found = readable_nodes(source.store.list(source.keys.nodes).items, source.keys, unreadable)
    complain_once(unreadable.sentence)
    nodes = [each for each in found if node in (None, each.node)]
    remote = RemoteLogs(nodes if source.settings is not None else (), HttpFetch(source.settings))
    is_here_too = node is None or source.settings is None
    has_any = False
    with closing(remote):
        logs = _Logs(source, report, remote, is_here_too=is_here_too)
        for name, log, slice_of in _ordered(logs, numbers, ranks, wanted):
            has_any = True
            for data in read_slice(log, slice_of):
                _print(name, data, is_json=is_json)
    if remote.broken:
        raise Unavailable(
            f"The output of {', '.join(remote.broken)} breaks off: its node does not answer any "
            "more. Try again, or read the files there."
        )
    if not has_any:
        raise NotFound(_nothing(report, ranks, generation, newest))


def _nothing(report: JobReport, ranks: Sequence[int], generation: int | None, newest: int) -> str:
    """Return a sentence that says which ranks have no output, and the possible reasons."""
    job, whose = report.spec.name, f"rank {', '.join(map(str, ranks))}"
    if generation is not None and generation > newest:
        return (
            f"Job {job!r} has no generation {generation}: its newest is {newest}; "
            f"`elasticd why {job}` lists them."
        )
    if generation is not None:
        whose += f" in generation {generation}"
    told = f"There is no output of {whose} of job {job!r} here or on a node that answers: "
    size = report.world.size if report.world is not None else 0
    if generation is None and 0 < size <= min(ranks, default=0):
        return f"{told}its newest world has the ranks 0 to {size - 1}."
    return f"{told}nothing was written, or its node is gone."


class RemoteLogs:
    """The output that is on other nodes.

    No record says which node had a rank in an old generation: the node that has the file had the
    rank. Most often a rank stays on its node, so the last node that had the rank is asked first. A
    node that does not answer is asked only once.
    """

    def __init__(self, nodes: Sequence[Node], fetch: LogFetch) -> None:
        self._nodes, self._fetch = list(nodes), fetch
        self._silent: set[NodeId] = set()
        self._last: dict[Rank, Node] = {}
        self.broken: list[str] = []
        """The ranks and generations whose output is incomplete, as text."""

    def find(self, name: LogName) -> OpenLog | None:
        """Open one stream on a node that has it; return None if no node that answers has it."""
        last = self._last.get(name.rank)
        for node in sorted(self._nodes, key=lambda each: each is not last):
            if node.node in self._silent:
                continue
            size = self._fetch.size(node, name)
            if size is None:
                self._silent.add(node.node)
            elif size:
                self._last[name.rank] = node
                log = remote_log(self._fetch, node, name)
                return replace(log, read=partial(self._read, node, name))
        return None

    def close(self) -> None:
        self._fetch.close()

    def _read(self, node: Node, name: LogName, offset: int, count: int) -> bytes:
        if node.node in self._silent:
            return b""
        data = self._fetch(node, name, offset)
        if data is None:
            self._silent.add(node.node)
            self.broken.append(f"rank {name.rank}, generation {name.generation}")
        return (data or b"")[:count]


class _Logs:
    """Finds the streams of a job, here or on other nodes."""

    def __init__(
        self, source: RecordSource, report: JobReport, remote: RemoteLogs, *, is_here_too: bool
    ) -> None:
        self._run_folder, self._job = run_folder_of(source, report), report.spec.name
        self._remote, self._is_here_too = remote, is_here_too

    def find(self, generation: int, rank: int, stream: int) -> tuple[LogName, OpenLog | None]:
        name = LogName(
            job=self._job, generation=Generation(generation), rank=Rank(rank), stream=stream
        )
        path = log_path(self._run_folder, name)
        if self._is_here_too and path.is_file():
            return name, _closed_log(path, stream) if path.stat().st_size else None
        return name, self._remote.find(name)


def _closed_log(path: Path, stream: int) -> OpenLog:
    """Return a log of this machine whose file is open only while a part of it is read.

    A job that ran for weeks may have more generations than a process may have open files.
    """

    def read(offset: int, count: int) -> bytes:
        with path.open("rb") as file:
            return os.pread(file.fileno(), count, offset)

    return OpenLog(
        read=read, size=lambda: path.stat().st_size, times=lambda: times_beside(path, stream)
    )


def _ordered(
    logs: _Logs, generations: Sequence[int], ranks: Sequence[int], wanted: LogSlice
) -> Iterator[tuple[LogName, OpenLog, LogSlice]]:
    """Yield the logs and the slices to print, in order; `--lines` counts over all generations."""
    if wanted.lines is None:
        for number in generations:
            for rank in ranks:
                for stream in (OUT, ERR):
                    name, log = logs.find(number, rank, stream)
                    if log is not None:
                        yield name, log, wanted
        return
    found: list[tuple[LogName, OpenLog, LogSlice]] = []
    for rank in ranks:
        for stream in (OUT, ERR):
            rest = wanted.lines
            for number in reversed(generations):
                name, log = logs.find(number, rank, stream)
                if log is not None:
                    found.append((name, log, replace(wanted, lines=rest)))
                    rest -= _lines_up_to(log, rest)
                if rest <= 0:
                    break
    yield from sorted(found, key=lambda one: (one[0].generation, one[0].rank, one[0].stream))


def _lines_up_to(log: OpenLog, limit: int) -> int:
    """Return the number of lines of a log; `limit` if the log has more."""
    return limit if LogSlice(lines=limit).begin(log) else line_count(log)


def _print(name: LogName, data: bytes, *, is_json: bool) -> None:
    if is_json:
        plain = {
            "generation": name.generation,
            "rank": name.rank,
            "stream": name.suffix,
            "text": data.decode(errors="replace"),
        }
        data = json.dumps(plain).encode() + b"\n"
    target = sys.stdout if is_json or name.stream == OUT else sys.stderr
    target.buffer.write(data)
    target.buffer.flush()

"""Output of workers as it stands, from this machine's files or from the nodes' log servers."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Protocol

from elasticd.cli.jobs.follow import run_folder_of
from elasticd.cli.source import Source
from elasticd.control.console import ERR, OUT
from elasticd.control.output import CHUNK_BYTES, HttpFetch, LogName, log_path
from elasticd.control.report import JobReport
from elasticd.errors import NotFound, Unavailable
from elasticd.records.codec import decode
from elasticd.records.ids import Generation, NodeId, Rank
from elasticd.records.member import Node

__all__ = ["Fetch", "RemoteLogs", "print_logs"]


class Fetch(Protocol):
    """How a node's log server is asked; `HttpFetch` does it."""

    def __call__(self, node: Node, name: LogName, offset: int) -> bytes | None: ...
    def close(self) -> None: ...


def print_logs(
    source: Source,
    report: JobReport,
    ranks: Sequence[int],
    generation: int | None,
    *,
    is_json: bool,
) -> None:
    """Print what is there of all generations, or of one.

    Raises:
        NotFound: nothing is, on this machine or on a node that answers.
        Unavailable: a node stopped answering in the middle of it.
    """
    newest = max(report.status.generation, report.world.generation if report.world else 0)
    wanted = [generation] if generation is not None else range(1, newest + 1)
    nodes = [decode(Node, item.value) for item in source.store.list(source.keys.nodes).items]
    remote = RemoteLogs(nodes if source.settings is not None else (), HttpFetch(source.settings))
    has_any = False
    for number in wanted:
        for rank in ranks:
            for stream in (OUT, ERR):
                name = LogName(
                    job=report.spec.name,
                    generation=Generation(number),
                    rank=Rank(rank),
                    stream=stream,
                )
                for data in _read(source, report, name, remote):
                    has_any = True
                    _print(name, data, is_json=is_json)
    remote.close()
    if remote.broken:
        raise Unavailable(
            f"The output of {', '.join(remote.broken)} breaks off: its node does not answer any "
            "more. Try again, or read the files there."
        )
    if not has_any:
        raise NotFound(
            f"There is no output of rank {', '.join(map(str, ranks))} of job {report.spec.name!r} "
            "here or on a node that answers: nothing was written, or its node is gone."
        )


class RemoteLogs:
    """Output that stands on other nodes.

    Which node had a rank in an old generation stands nowhere: the one that has the file did. It
    mostly was the one that had the rank before, and a node that does not answer is asked once.
    """

    def __init__(self, nodes: Sequence[Node], fetch: Fetch) -> None:
        self._nodes, self._fetch = list(nodes), fetch
        self._silent: set[NodeId] = set()
        self._last: dict[Rank, Node] = {}
        self.broken: list[str] = []
        """Whose output is not whole."""

    def read(self, name: LogName) -> Iterator[bytes]:
        """Give all that there is of one stream."""
        last = self._last.get(name.rank)
        for node in sorted(self._nodes, key=lambda each: each is not last):
            offset = 0
            while node.node not in self._silent:
                data = self._fetch(node, name, offset)
                if data is None:
                    self._silent.add(node.node)
                    if offset:
                        self.broken.append(f"rank {name.rank}, generation {name.generation}")
                    break
                if not data:
                    break
                offset += len(data)
                yield data
            if offset:
                self._last[name.rank] = node
                return

    def close(self) -> None:
        self._fetch.close()


def _read(source: Source, report: JobReport, name: LogName, remote: RemoteLogs) -> Iterator[bytes]:
    path = log_path(run_folder_of(source, report), name)
    if not path.is_file():
        yield from remote.read(name)
        return
    with path.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            yield data


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

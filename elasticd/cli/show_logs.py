"""`elasticd logs`: what the workers wrote, from this machine's files or the nodes' log servers."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from elasticd.cli.screen import Screen
from elasticd.cli.source import Source
from elasticd.control.console import ERR, OUT, RankChoice
from elasticd.control.follow import Ended, Follower, Formed
from elasticd.control.output import CHUNK_BYTES, HttpFetch, LogName, Tail, log_path
from elasticd.control.report import JobReport
from elasticd.errors import NotFound
from elasticd.records.codec import decode
from elasticd.records.ids import Generation, NodeId, Rank
from elasticd.records.member import Node

__all__ = ["follow_logs", "print_logs"]

OUTPUT_END_S = 3.0


def follow_logs(source: Source, report: JobReport, ranks: Sequence[int]) -> None:
    """Show the ranks' output from its begin in the current generation to the end of the job."""
    screen = Screen()
    tail = Tail(
        job=report.spec.name,
        run_folder=_run_folder(source, report),
        choice=RankChoice(ranks=frozenset(ranks)),
        write=screen.output,
        own_nodes=_local_nodes(source, report),
        fetch=HttpFetch(source.settings) if source.settings is not None else None,
    )
    follower = Follower(source.store, source.keys, report.spec)
    try:
        while True:
            news = follower.next(1.0)
            if isinstance(news, Formed):
                if source.settings is None:
                    tail.own_nodes |= {node.node for node in news.world.nodes}
                tail.show(news.world, news.nodes)
            if isinstance(news, Ended):
                return
    finally:
        follower.close()
        tail.finish(OUTPUT_END_S)


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
    """
    newest = max(report.status.generation, report.world.generation if report.world else 0)
    wanted = [generation] if generation is not None else range(1, newest + 1)
    fetch = HttpFetch(source.settings)
    nodes = [decode(Node, item.value) for item in source.store.list(source.keys.nodes).items]
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
                for data in _read(source, report, name, nodes, fetch):
                    has_any = True
                    _print(name, data, is_json=is_json)
    fetch.close()
    if not has_any:
        raise NotFound(
            f"There is no output of rank {', '.join(map(str, ranks))} of job {report.spec.name!r} "
            "here or on a node that answers: nothing was written, or its node is gone."
        )


def _read(
    source: Source, report: JobReport, name: LogName, nodes: Sequence[Node], fetch: HttpFetch
) -> Iterator[bytes]:
    path = log_path(_run_folder(source, report), name)
    if path.is_file():
        with path.open("rb") as file:
            while data := file.read(CHUNK_BYTES):
                yield data
        return
    # Which node had that rank in an old generation stands nowhere: the one that has the file did.
    for node in nodes if source.settings is not None else ():
        offset = 0
        while data := fetch(node, name, offset) or b"":
            offset += len(data)
            yield data
        if offset:
            return


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


def _run_folder(source: Source, report: JobReport) -> Path:
    return Path(report.spec.run_folder or source.run_folder)


def _local_nodes(source: Source, report: JobReport) -> frozenset[NodeId]:
    if source.settings is not None or report.world is None:
        return frozenset()
    return frozenset(node.node for node in report.world.nodes)

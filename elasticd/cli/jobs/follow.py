"""Follows a running job for `logs -f` and `attach`: its output, its news, its end."""

import math
from collections.abc import Callable
from pathlib import Path

from elasticd.cli.etcd_flags import Values
from elasticd.cli.jobs.wait import end_of
from elasticd.cli.progress.screen import Screen
from elasticd.cli.record_source import RecordSource
from elasticd.control.follow import News, WorldFormed
from elasticd.control.logs.console import Choice, RankChoice
from elasticd.control.logs.log_slice import LogSlice
from elasticd.control.logs.output import HttpFetch, Tail
from elasticd.control.report.report import JobReport
from elasticd.records.ids import Generation, NodeId
from elasticd.records.job import JobStatus
from elasticd.records.world import World

__all__ = ["follow_job", "run_folder_of"]

OUTPUT_END_S = 3.0


def follow_job(
    values: Values,
    source: RecordSource,
    report: JobReport,
    choice: Callable[[World], Choice],
    screen: Screen,
    *,
    wanted: LogSlice | None = None,
    needs_reader: bool = False,
    on_news: Callable[[News], None] = lambda news: None,
) -> JobStatus:
    """Show the output that `choice` picks of each world until the job ends; return how it ended.

    `wanted` is the part of the present generation's output that is shown; None shows all of it.
    Later generations are shown in full. With `needs_reader` it also ends with the reader of the
    pipe to which the output goes.

    Raises:
        BrokenPipeError: that reader has ended, as in `elasticd logs -f JOB | head`.
        KeyboardInterrupt: the user pressed Ctrl-C; the job does not notice.
        NotFound: the job's records were removed, or its run was killed.
    """
    tail = Tail(
        job=report.spec.name,
        run_folder=run_folder_of(source, report),
        choice=RankChoice(ranks=frozenset()),
        write=screen.output,
        own_nodes=_local_nodes(source, report),
        fetch=HttpFetch(source.settings) if source.settings is not None else None,
        wanted=wanted,
    )

    shown = Generation(0)

    def take(news: News) -> None:
        nonlocal shown
        if isinstance(news, WorldFormed):
            if news.world.generation <= shown:
                return  # This repeats: the records were reopened.
            shown = news.world.generation
            if source.settings is None:
                tail.own_nodes |= {node.node for node in news.world.nodes}
            tail.choice = choice(news.world)
            tail.show(news.world, news.nodes)
        on_news(news)

    try:
        status = end_of(
            values,
            report.spec.name,
            until_s=math.inf,
            uid=report.spec.uid,
            is_given_up=lambda: needs_reader and not screen.has_reader,
            on_news=take,
        )
    finally:
        tail.finish(OUTPUT_END_S)
    if status is None:
        raise BrokenPipeError
    return status


def run_folder_of(source: RecordSource, report: JobReport) -> Path:
    """Return the folder on this machine to which the workers of a job write, or would write."""
    return Path(report.spec.run_folder or source.run_folder)


def _local_nodes(source: RecordSource, report: JobReport) -> frozenset[NodeId]:
    if source.settings is not None or report.world is None:
        return frozenset()
    return frozenset(node.node for node in report.world.nodes)

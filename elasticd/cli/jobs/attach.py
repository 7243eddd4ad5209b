"""`elasticd attach`: follows a running job as the `elasticd run` that submitted the job does."""

import os
import signal
from dataclasses import replace
from typing import Any

import click

from elasticd.cli.etcd_flags import where_options
from elasticd.cli.jobs.follow import follow_job, run_folder_of
from elasticd.cli.jobs.options import report_of
from elasticd.cli.jobs.wait import final_report
from elasticd.cli.parse_value import at_least
from elasticd.cli.progress.reporter import Reporter
from elasticd.cli.progress.screen import Screen
from elasticd.cli.record_source import job_source
from elasticd.control.follow import News
from elasticd.control.local_run.session import exit_code
from elasticd.control.logs.console import RankChoice
from elasticd.control.logs.log_slice import LogSlice
from elasticd.control.progress import AskRanks, read_goodput

__all__ = ["attach"]

LAST_LINES = 10


@click.command()
@click.argument("job", required=False)
@click.option("--rank", type=at_least(0), multiple=True, help="[0]; may be repeated.")
@click.option(
    "--tail",
    "lines",
    type=at_least(0),
    help=f"Number of earlier lines to show first.  [{LAST_LINES}]",
)
@click.option("--json", "is_json", is_flag=True, help="State changes and summary as JSON lines.")
@click.option("--quiet", "is_quiet", is_flag=True, help="Show no state changes, only the output.")
@where_options
def attach(
    job: str | None,
    rank: tuple[int, ...],
    lines: int | None,
    is_json: bool,
    is_quiet: bool,
    **values: Any,
) -> int:
    """Show a job that runs already: its output, its changes, its summary and its exit code.

    Ctrl-C detaches: the job continues. Without JOB it shows the newest local run. If the job is
    over, it shows only the summary.
    """
    screen = Screen(is_json=is_json, is_quiet=is_quiet, term=os.environ.get("TERM", ""))
    with job_source(values, job) as (source, name):
        report = report_of(source, name)
        status = report.status
        if not status.phase.is_final:
            screen.note(f"attached to job {name}; Ctrl-C detaches, the job goes on")
            choice = RankChoice(ranks=frozenset(rank or (0,)))
            ask = AskRanks(name, source.settings)
            reporter = Reporter(
                ask,
                screen.progress,
                screen.hide_progress,
                is_live=screen.is_live,
                goodput=lambda: read_goodput(source.store, source.keys, report.spec),
            )

            def tell(news: News) -> None:
                reporter.receive(news)
                screen.print_news(news)

            reporter.start()
            try:
                status = follow_job(
                    values,
                    source,
                    report,
                    lambda world: choice,
                    screen,
                    wanted=LogSlice(lines=LAST_LINES if lines is None else lines),
                    on_news=tell,
                )
            except KeyboardInterrupt:
                screen.note(f"detached; job {name} goes on, `elasticd attach {name}` comes back")
                return 128 + signal.SIGINT
            finally:
                reporter.stop()
        is_here = source.settings is None
        folder = str(run_folder_of(source, report) / name)
    final = final_report(values, name)  # This has the newest measurements.
    if final.spec.uid == report.spec.uid:
        report = final
    logs = folder if is_here else f"on the nodes; `elasticd logs {name}` reads them"
    screen.summary(replace(report, status=status), logs)
    screen.failure(status)
    return exit_code(status)

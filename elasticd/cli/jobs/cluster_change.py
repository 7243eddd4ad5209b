"""`scale`, `drain`, `stop`, `prune`: the commands that change something. Each has `--dry-run`."""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from elasticd.cli.etcd_flags import Values, where_options
from elasticd.cli.jobs.wait import end_of
from elasticd.cli.main import complain
from elasticd.cli.parse_value import at_least, duration_option
from elasticd.cli.record_source import RecordSource, job_source, sources
from elasticd.cli.terminal import words
from elasticd.control import jobs, node_drain
from elasticd.control import prune as pruning
from elasticd.control.job_wait import wait_node_free
from elasticd.control.local_run.session import STOP_SLACK_S
from elasticd.control.report.report import JobReport, read_job
from elasticd.control.state_loss import check_drain, check_stop
from elasticd.errors import CallError, ElasticdError, NotFound, Refused, TimedOut, Unavailable
from elasticd.records.codec import to_plain
from elasticd.records.ids import JobName, NodeId, checked_name
from elasticd.records.job import UNSERVED_LIMIT_S, JobSpec

__all__ = [
    "CommandReport",
    "ask_to_stop",
    "change_options",
    "drain",
    "drain_node",
    "each_of",
    "prune",
    "scale",
    "scale_job",
    "stop",
    "undrain_node",
    "unpin_job",
]

F = TypeVar("F", bound=Callable[..., Any])


_force = click.option(
    "--force", is_flag=True, help="Do it even if a job loses what it has trained."
)


def _wait(command: F) -> F:
    command = click.option(
        "--wait", "is_waiting", is_flag=True, help="Return when it is done, not when requested."
    )(command)
    return duration_option("--timeout", "timeout_s", "With --wait: return after this.")(command)


def _until(is_waiting: bool, timeout_s: float | None, *, at_once: str) -> float | None:
    """Return the moment at which a wait ends, on the monotonic clock; None for no wait.

    `at_once` is a flag that needs no wait, if it was given.

    Raises: CallError: the flags contradict each other.
    """
    if at_once and (is_waiting or timeout_s is not None):
        raise CallError(f"{at_once} is done at once: leave out --wait and --timeout.")
    if timeout_s is not None and not is_waiting:
        raise CallError("--timeout says how long to wait: add --wait, or leave it out.")
    if not is_waiting:
        return None
    return math.inf if timeout_s is None else time.monotonic() + timeout_s


def change_options(command: F) -> F:
    command = click.option(
        "--dry-run", "is_dry_run", is_flag=True, help="Check, and only say what would be done."
    )(command)
    command = click.option(
        "--json", "is_json", is_flag=True, help="Print one JSON object a line, for programs."
    )(command)
    return where_options(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReport:
    """Prints the result of a command, as a sentence or as JSON."""

    is_dry_run: bool = False
    is_json: bool = False
    echo: Callable[[str], None] = click.echo

    def __call__(self, sentence: str, **facts: object) -> None:
        if self.is_json:
            plain = {**facts, "is_dry_run": self.is_dry_run, "message": sentence}
            self.echo(json.dumps(plain))
        else:
            dry = "dry run, nothing was changed: " if self.is_dry_run else ""
            self.echo(dry + sentence)


AUTO = 0
"""The number that stands for `auto` among numbers of nodes."""


def _number_or_auto(text: str) -> int:
    if text == "auto":
        return AUTO
    try:
        return at_least(1)(text)
    except click.BadParameter as exc:
        raise click.BadParameter(f"{exc.message}, or `auto`") from exc


@click.command()
@click.argument("job")
@click.argument("nodes", metavar="N|auto", type=_number_or_auto)
@change_options
def scale(job: str, nodes: int, is_dry_run: bool, is_json: bool, **values: Any) -> int:
    """Set a job's number of nodes, within the range of its --nnodes.

    `auto` withdraws this wish: then the autoscaler chooses the size if the job has a policy;
    otherwise the job is as large as it may be.
    """
    output = CommandReport(is_dry_run=is_dry_run, is_json=is_json)
    if nodes == AUTO:
        unpin_job(job, output, values)
    else:
        scale_job(job, nodes, output, values)
    return 0


def unpin_job(job: str, output: CommandReport, values: Values) -> None:
    """Withdraw the wish for a size, and report the size that is wanted after that."""
    with job_source(values, job) as (source, name):
        _check_live(source, job)
        nodes = jobs.unpin(source.store, source.keys, name, is_dry_run=output.is_dry_run)
    output(
        f"job {job} is not scaled by a person any more: {words.counted(nodes, 'node')} wanted",
        job=job,
        nodes=nodes,
    )


def scale_job(job: str, nodes: int, output: CommandReport, values: Values) -> None:
    """Write the wish for a number of nodes, and report it."""
    with job_source(values, job) as (source, name):
        _check_live(source, job)
        spec = jobs.scale(source.store, source.keys, name, nodes, is_dry_run=output.is_dry_run)
    output(
        f"job {job} is wanted on {nodes} node{'s' if nodes != 1 else ''} "
        f"(of {spec.min_nodes}:{spec.max_nodes})",
        job=job,
        nodes=nodes,
    )


@click.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@click.option("--undo", is_flag=True, help="Put the node back into service.")
@click.option("--why", "reason", default="", metavar="TEXT", help="Reason, kept with the node.")
@_force
@_wait
@change_options
def drain(
    nodes: tuple[str, ...],
    undo: bool,
    reason: str,
    force: bool,
    is_waiting: bool,
    timeout_s: float | None,
    is_dry_run: bool,
    is_json: bool,
    **values: Any,
) -> int:
    """Take nodes out of service: their jobs continue without them, and they get no new jobs.

    It refuses a node with the only copy of a job's state if no other node could take it over. With
    --wait it returns when no job holds a slot there: then you may switch off the machine.
    """
    output = CommandReport(is_dry_run=is_dry_run, is_json=is_json)
    until_s = _until(is_waiting, timeout_s, at_once="--undo" if undo else "")
    if undo:
        return each_of(nodes, lambda node: undrain_node(node, output, values))
    asked: list[str] = []

    def ask(node: str) -> None:
        # A dry run did not write the drains of the nodes before, and this node's check needs them.
        drain_node(node, reason, output, values, is_forced=force, others=asked)
        asked.append(node)

    code = each_of(nodes, ask)
    if until_s is None or is_dry_run:
        return code
    return each_of(asked, lambda node: _await_free(node, until_s, output, values)) or code


def drain_node(
    node: str,
    reason: str,
    output: CommandReport,
    values: Values,
    *,
    is_forced: bool,
    others: Sequence[str] = (),
) -> None:
    """Write the wish that the node takes no more work, and report it.

    `others` are the nodes that the same call drains, too.
    """
    with _serving(node, values) as (source, name):
        if not is_forced:
            check_drain(source.store, source.keys, name, [NodeId(other) for other in others])
        node_drain.drain(source.store, source.keys, name, why=reason, is_dry_run=output.is_dry_run)
    output(f"node {node} is being drained", node=node, is_drained=True)


def _await_free(node: str, until_s: float, output: CommandReport, values: Values) -> None:
    with _serving(node, values) as (source, name):
        busy = wait_node_free(source.store, source.keys, name, until_s=until_s)
    if busy:
        raise TimedOut(
            f"Node {node!r} is still used by {', '.join(busy)}: it is being drained, `elasticd "
            "nodes` shows when it is free."
        )
    output(f"node {node} is free of jobs", node=node, is_free=True)


def undrain_node(node: str, output: CommandReport, values: Values) -> None:
    """Bring a node back into service, and report it."""
    with _serving(node, values) as (source, name):
        node_drain.undrain(source.store, source.keys, name, is_dry_run=output.is_dry_run)
    output(f"node {node} may work again", node=node, is_drained=False)


@contextmanager
def _serving(node: str, values: Values) -> Iterator[tuple[RecordSource, NodeId]]:
    """Open the records of the cluster, or of the local run, in which this node serves."""
    name = NodeId(checked_name("node", node))
    with sources(values) as opened:
        live = [source for source in opened if not source.is_archive]
        if not live:
            raise NotFound(f"There is no node {node!r}: no local run is in progress, see --etcd.")
        source = next(
            (s for s in live if s.store.get(s.keys.node(name)) is not None),
            live[0],
        )
        yield source, name


@click.command()
@click.argument("names", metavar="JOB...", nargs=-1, required=True)
@click.option(
    "--why", "reason", default="elasticd stop", metavar="TEXT", help="Reason, kept with the job."
)
@click.option("--forget", is_flag=True, help="Free the name of a job that no node serves any more.")
@_force
@_wait
@change_options
def stop(
    names: tuple[str, ...],
    reason: str,
    forget: bool,
    force: bool,
    is_waiting: bool,
    timeout_s: float | None,
    is_dry_run: bool,
    is_json: bool,
    **values: Any,
) -> int:
    """End jobs: their workers get SIGTERM and the shutdown timeout.

    Jobs that call `elasticd.run` and have --checkpoint save their state first; this command waits
    for it and shows the result. Without --checkpoint such a job is not ended once it has trained,
    unless you give --force. With --wait it returns when the jobs are over.
    """
    output = CommandReport(is_dry_run=is_dry_run, is_json=is_json)
    until_s = _until(is_waiting, timeout_s, at_once="--forget" if forget else "")
    if forget:
        return each_of(names, lambda job: _forget(job, output, values))
    asked: list[tuple[str, JobSpec]] = []

    def ask(job: str) -> None:
        asked.append((job, ask_to_stop(job, reason, output, values, is_forced=force)))

    code = each_of(names, ask)
    for job, spec in asked:  # All jobs save at the same time.
        if not is_dry_run and spec.checkpoint is not None:
            _tell_saved(job, spec, output, values)
    if until_s is None or is_dry_run:
        return code
    return (
        each_of([job for job, _ in asked], lambda job: _await_end(job, until_s, output, values))
        or code
    )


def _await_end(job: str, until_s: float, output: CommandReport, values: Values) -> None:
    status = end_of(values, job, until_s=until_s)
    if status is None:
        raise TimedOut(
            f"Job {job!r} was asked to stop and is not over: `elasticd status {job}` shows for "
            "what it waits."
        )
    output(f"job {job} is over ({status.phase})", job=job, phase=status.phase.value)


def _forget(job: str, output: CommandReport, values: Values) -> None:
    with job_source(values, job) as (source, name):
        _check_live(source, job)
        jobs.forget(source.store, source.keys, name, is_dry_run=output.is_dry_run)
    output(f"job {job} is given up", job=job)


def ask_to_stop(
    job: str, reason: str, output: CommandReport, values: Values, *, is_forced: bool
) -> JobSpec:
    """Write the wish that the job ends, and report it."""
    with job_source(values, job) as (source, name):
        _check_live(source, job)
        where = (source.store, source.keys, name)
        if not is_forced:
            check_stop(*where)
        wait_s = 0.0 if is_forced else UNSERVED_LIMIT_S
        spec = jobs.stop(*where, why=reason, is_dry_run=output.is_dry_run, unserved_limit_s=wait_s)
    output(f"job {job} is asked to stop", job=job)
    return spec


def _tell_saved(job: str, spec: JobSpec, output: CommandReport, values: Values) -> None:
    report = None
    try:
        with job_source(values, job) as (source, name):
            report = _awaited(source, spec)
    except Unavailable:  # The job was a local run, which has ended.
        with job_source(values, job) as (source, name):
            report = read_job(source.store, source.keys, name)
    if report is not None and report.saved is not None:
        saved = report.saved
        output(f"job {job} was {saved.sentence}", job=job, saved=to_plain(saved))


def each_of(names: Sequence[str], do: Callable[[str], None]) -> int:
    """Call `do` for each name; an error for one name does not stop the others."""
    code = 0
    for name in names:
        try:
            do(name)
        except ElasticdError as exc:
            if len(names) == 1:
                raise
            complain(str(exc))
            code = exc.exit_code
    return code


@click.command()
@click.argument("job", nargs=-1)
@change_options
def prune(job: tuple[str, ...], is_dry_run: bool, is_json: bool, **values: Any) -> int:
    """Remove the records of jobs that are over from etcd: of the named jobs, or of all.

    Logs and checkpoints stay. The agents do the same by themselves after --keep-ended.
    """
    output = CommandReport(is_dry_run=is_dry_run, is_json=is_json)
    names = [JobName(checked_name("job", name)) for name in job]
    total = 0
    with sources(values) as opened:
        clusters = [source for source in opened if source.settings is not None]
        if not clusters:
            raise NotFound("Local runs keep nothing in etcd: give --etcd to prune a cluster's.")
        for done in pruning.prune(
            clusters[0].store, clusters[0].keys, names, is_dry_run=is_dry_run
        ):
            total += done.records
            count = words.counted(done.records, "record")
            output(f"job {done.job}: {count} removed", job=done.job, records=done.records)
    if is_json:
        return 0
    if not total:
        click.echo("There is no job that is over: nothing to remove.")
    elif not is_dry_run:
        click.echo("etcd has the space back when it is compacted and defragmented.")
    return 0


def _awaited(source: RecordSource, spec: JobSpec) -> JobReport | None:
    """Return the job's report once its workers have saved their state, if they save it."""
    report = read_job(source.store, source.keys, spec.name)
    if report is None or not report.is_in_process:
        return report
    wait_s = spec.shutdown_timeout_s + STOP_SLACK_S
    jobs.wait_left(source.store, source.keys, spec.name, timeout_s=wait_s)
    return read_job(source.store, source.keys, spec.name)


def _check_live(source: RecordSource, job: str) -> None:
    if source.is_archive:
        raise Refused(f"Job {job!r} is over: `elasticd why {job}` tells what happened.")

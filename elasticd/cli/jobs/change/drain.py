"""`elasticd drain`: a person takes nodes out of service, or brings them back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from elasticd.cli.etcd_flags import Values
from elasticd.cli.jobs.change.command_report import CommandReport, change_options, each_of
from elasticd.cli.jobs.change.wait_flags import force_option, wait_end_s, wait_options
from elasticd.cli.record_source import RecordSource, sources
from elasticd.control import node_drain
from elasticd.control.job_wait import wait_node_free
from elasticd.control.state_loss import check_drain
from elasticd.errors import NotFound, TimedOut
from elasticd.records.ids import NodeId, checked_name

__all__ = ["drain", "drain_node", "undrain_node"]


@click.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@click.option("--undo", is_flag=True, help="Put the node back into service.")
@click.option("--why", "reason", default="", metavar="TEXT", help="Reason, kept with the node.")
@force_option
@wait_options
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

    It refuses a node with the only copy of a job's state, or the one that is to take it over, if no
    other node could take it over. With --wait it returns when no job holds a slot there: then you
    may switch off the machine.
    """
    output = CommandReport(is_dry_run=is_dry_run, is_json=is_json)
    until_s = wait_end_s(is_waiting, timeout_s, at_once="--undo" if undo else "")
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
        jobs = node_drain.undrain(source.store, source.keys, name, is_dry_run=output.is_dry_run)
    rest = f"; it still leaves job {', '.join(jobs)} first, and then joins again" if jobs else ""
    output(f"node {node} may work again{rest}", node=node, is_drained=False, leaving=jobs)


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

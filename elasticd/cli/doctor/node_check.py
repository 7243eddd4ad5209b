"""Checks the cluster's nodes as another node sees them: their ports, versions and clocks."""

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from elasticd import __version__
from elasticd.cli.doctor.finding import Finding, Verdict
from elasticd.cli.machine import says_loopback
from elasticd.cli.terminal.words import counted
from elasticd.control.logs.output import HttpFetch
from elasticd.control.report.unreadable import UnreadableRecords
from elasticd.net.listener import host_port
from elasticd.records.member import Node
from elasticd.store.api import StoreSettings

__all__ = ["NodeAnswer", "ask", "ask_all", "findings_of"]

LIMIT_S = 3.0
AT_ONCE = 32
SKEW_S = 3.0
"""A greater difference of clocks gets a warning; the nodes' answers name whole seconds."""
NAMED = 5
ANSWER_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """The answer of one node to this machine."""

    node: Node
    unreachable: str = ""
    """Why the node's port for other agents cannot be reached; empty if it can be reached."""
    is_http_silent: bool = False
    skew_s: float = 0.0
    """How far the node's clock is ahead of ours, exact to one or two seconds."""


def ask_all(
    nodes: Sequence[Node], settings: StoreSettings, how: Callable[..., NodeAnswer] | None = None
) -> list[NodeAnswer]:
    """Ask all nodes, several at a time; return the answers in the order of the nodes."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda node: (how or ask)(node, settings), nodes))


def ask(node: Node, settings: StoreSettings) -> NodeAnswer:
    """Connect to a node as another agent would, and ask its HTTP server for the node's state."""
    try:
        socket.create_connection((node.address, node.port), timeout=LIMIT_S).close()
    except OSError as exc:
        return NodeAnswer(node=node, unreachable=exc.strerror or str(exc))
    fetch = HttpFetch(settings, LIMIT_S)
    try:
        before_s = time.time()
        date = fetch.date(node)
        middle_s = (before_s + time.time()) / 2
    finally:
        fetch.close()
    if date is None:
        return NodeAnswer(node=node, is_http_silent=True)
    try:
        theirs_s = parsedate_to_datetime(date).timestamp() + 0.5
    except ValueError:
        return NodeAnswer(node=node)
    return NodeAnswer(node=node, skew_s=theirs_s - middle_s)


def findings_of(answers: Sequence[NodeAnswer], unreadable: UnreadableRecords) -> Iterator[Finding]:
    """Yield the findings that follow from the nodes' answers, and from unreadable records."""
    if unreadable.clause:
        yield _finding(Verdict.WARNING, unreadable.sentence)
    elif not answers:
        yield _finding(
            Verdict.WARNING,
            "no agent is registered: a job that is submitted waits for one",
            "Start `elasticd agent --etcd ...` on the machines that shall train.",
        )
    if not answers:
        return
    yield from _unreachable(answers)
    yield from _loopback([each.node for each in answers])
    silent = [each.node for each in answers if each.is_http_silent]
    if silent:
        yield _finding(
            Verdict.WARNING,
            f"the HTTP port of {_named(silent)} does not answer here: logs and metrics of that "
            "node cannot be shown",
            "Let it through, or give the agents a fixed one with --http-port.",
        )
    yield from _versions([each.node for each in answers])
    wrong = [each for each in answers if abs(each.skew_s) > SKEW_S]
    if wrong:
        worst = max(wrong, key=lambda each: abs(each.skew_s))
        yield _finding(
            Verdict.WARNING,
            f"the clock of {_named([each.node for each in wrong])} is {abs(worst.skew_s):.0f} s "
            f"{'ahead of' if worst.skew_s > 0 else 'behind'} this machine's: nothing that elasticd "
            "decides depends on it, but times in logs and `why` do",
            "Run an NTP client there.",
        )
    reached = [each.node for each in answers if not each.unreachable]
    if reached:
        slots = sum(node.slots for node in reached)
        yield _finding(
            Verdict.OK,
            f"{counted(len(reached), 'node')} of {len(answers)} can be reached, with "
            f"{counted(slots, 'slot')}",
        )


def _unreachable(answers: Sequence[NodeAnswer]) -> Iterator[Finding]:
    lost = [each for each in answers if each.unreachable]
    for each in lost[:NAMED]:
        yield _finding(
            Verdict.PROBLEM,
            f"node {each.node.node} at {host_port(each.node.address, each.node.port)} cannot be "
            f"reached from here: {each.unreachable}",
            "Nodes of one job connect to each other at any port: open the firewall between them, "
            "or give that agent another --local-addr. If it ended a moment ago, its record ends "
            "with its lease.",
        )
    if len(lost) > NAMED:
        yield _finding(Verdict.PROBLEM, f"{len(lost) - NAMED} more nodes cannot be reached")


def _loopback(nodes: Sequence[Node]) -> Iterator[Finding]:
    found = [each for each in nodes if says_loopback(each.address)]
    if found and len({each.host for each in nodes}) > 1:
        yield _finding(
            Verdict.PROBLEM,
            f"{_named(found)} registered a loopback address, where each machine finds only itself",
            "Give the agent --local-addr, or an --etcd by another name than localhost.",
        )


def _versions(nodes: Sequence[Node]) -> Iterator[Finding]:
    versions = Counter(each.version for each in nodes)
    if set(versions) != {__version__}:
        listed = ", ".join(f"{count} x {version}" for version, count in versions.most_common())
        yield _finding(
            Verdict.WARNING,
            f"the agents have elasticd {listed}, and this command {__version__}",
            "One version beside the next one works while you upgrade; then let all have the same.",
        )


def _named(nodes: Sequence[Node]) -> str:
    names = ", ".join(each.node for each in nodes[:NAMED])
    return f"{names} and {len(nodes) - NAMED} more" if len(nodes) > NAMED else names


def _finding(verdict: Verdict, found: str, advice: str = "") -> Finding:
    return Finding(subject="nodes", verdict=verdict, found=found, advice=advice)

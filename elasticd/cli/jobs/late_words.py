"""Sentences about nodes for which all others waited. Pure, except for the time zone."""

import time
from collections.abc import Iterable

from elasticd.records.account.late import LateNode

__all__ = ["late_history", "late_now", "late_sentence", "late_share"]


def late_now(nodes: Iterable[LateNode]) -> list[str]:
    """Return a sentence for each node that is late now: by how much and since when."""
    return [_standing(node) for node in nodes if not node.until_unix_s]


def late_history(nodes: Iterable[LateNode], *, is_over: bool) -> list[str]:
    """Return a sentence for each node that ever was late, with the time of day.

    `is_over` is true if the job is over.
    """
    lines = []
    for node in nodes:
        when = time.strftime("%H:%M:%S", time.localtime(node.since_unix_s))
        lines.append(f"{when}  {late_sentence(node, is_over=is_over)}")
    return lines


def late_sentence(node: LateNode, *, is_over: bool) -> str:
    """Return a sentence that a node is late, or was late; with `is_over` it always was."""
    return _past(node) if is_over or node.until_unix_s else _standing(node)


def late_share(ratio: float) -> str:
    """Return by how much a node is late, for a place without room for a sentence."""
    return f"{round(100 * ratio)} % late"


def _standing(node: LateNode) -> str:
    since = _clock(node.since_unix_s)
    return f"node {node.node} is {late_share(node.ratio)} since {since}{_cost(node, 's')}"


def _past(node: LateNode) -> str:
    until = f"until {_clock(node.until_unix_s)}" if node.until_unix_s else "until the end"
    since = _clock(node.since_unix_s)
    return f"node {node.node} was {late_share(node.ratio)} from {since} {until}{_cost(node, '')}"


def _cost(node: LateNode, ending: str) -> str:
    text = f", cost{ending} {node.cost_nodes:.1f} node"
    if node.drained_unix_s:
        text += f"; drained at {_clock(node.drained_unix_s)}"
    return text + (f"; {node.note}" if node.note else "")


def _clock(at_unix_s: float) -> str:
    return time.strftime("%H:%M", time.localtime(at_unix_s))

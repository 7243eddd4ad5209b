"""What a person reads of nodes that all others waited for."""

import time

import pytest

from elasticd.cli.jobs.late_words import late_history, late_now
from elasticd.records.account.late import LateNode
from elasticd.records.ids import NodeId


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def late(**more: object) -> LateNode:
    since_s = 14 * 3600 + 2 * 60 + 11.0
    given = {"node": NodeId("b"), "ratio": 0.336, "cost_nodes": 0.76, "since_unix_s": since_s}
    return LateNode(**{**given, **more})  # type: ignore[arg-type]


def test_late_node_is_told_with_what_it_costs() -> None:
    """By how much, since when, in nodes."""
    assert late_now([late()]) == ["node b is 34 % late since 14:02, costs 0.8 node"]


def test_what_was_done_about_it_is_said() -> None:
    """Or why nothing was."""
    assert late_now([late(drained_unix_s=14 * 3600 + 600.0)]) == [
        "node b is 34 % late since 14:02, costs 0.8 node; drained at 14:10"
    ]
    assert late_now([late(note="not drained: job j needs it")]) == [
        "node b is 34 % late since 14:02, costs 0.8 node; not drained: job j needs it"
    ]


def test_history_tells_the_end() -> None:
    """Of a job that is over no node is late any more."""
    over, standing = late(until_unix_s=15 * 3600.0), late(node=NodeId("c"))
    assert late_now([over]) == []
    assert late_history([over, standing], is_over=False) == [
        "14:02:11  node b was 34 % late from 14:02 until 15:00, cost 0.8 node",
        "14:02:11  node c is 34 % late since 14:02, costs 0.8 node",
    ]
    assert late_history([standing], is_over=True) == [
        "14:02:11  node c was 34 % late from 14:02 until the end, cost 0.8 node"
    ]

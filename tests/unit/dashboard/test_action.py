"""What a page may ask for."""

import json

import pytest

from elasticd.dashboard.action import (
    DrainRequest,
    ScaleRequest,
    StopRequest,
    UndrainRequest,
    read_action,
)
from elasticd.errors import CallError


def test_four_actions_are_read() -> None:
    """Each with exactly its values."""
    given = [
        {"action": "scale", "job": "j", "nodes": 3},
        {"action": "stop", "job": "j"},
        {"action": "drain", "node": "a"},
        {"action": "undrain", "node": "a"},
    ]
    assert [read_action(json.dumps(each).encode()) for each in given] == [
        ScaleRequest(job="j", nodes=3),
        StopRequest(job="j"),
        DrainRequest(node="a"),
        UndrainRequest(node="a"),
    ]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "is no JSON"),
        (b"\xff", "is no JSON"),
        (b"[" * 4000, "is no JSON"),
        (b"[]", "is an object"),
        (b"{}", "no action None: choose one of scale, stop, drain, undrain"),
        (b'{"action": "rm", "job": "j"}', "no action 'rm'"),
        (b'{"action": ["scale"]}', "no action"),
        (b'{"action": "scale", "job": "j"}', "has the values job, nodes; given were job"),
        (b'{"action": "stop", "job": "j", "force": true}', "given were job, force"),
        (b'{"action": "drain"}', "given were none"),
        (b'{"action": "scale", "job": "j", "nodes": true}', "nodes True is not usable"),
        (b'{"action": "scale", "job": "j", "nodes": 2.0}', "nodes 2.0 is not usable"),
        (b'{"action": "stop", "job": 1}', "job 1 is not usable"),
    ],
)
def test_anything_else_is_refused_in_a_sentence(body: bytes, why: str) -> None:
    """Nothing is guessed, and nothing that was not understood is left aside."""
    with pytest.raises(CallError, match=why):
        read_action(body)

"""What a page asks for is done as the commands do it, and told in the terminal too."""

import pytest

from elasticd.cli.views.actions import Actor
from elasticd.dashboard.action import DrainRequest, ScaleRequest, StopRequest, UndrainRequest
from elasticd.errors import CallError, NotFound
from elasticd.records.codec import decode
from elasticd.records.ids import NodeId
from elasticd.records.job import Want
from elasticd.records.member import Drain
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS


def test_what_is_asked_for_stands_in_etcd(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """With who wished it, and a line for whoever started the dashboard."""
    act = Actor({})
    assert act(ScaleRequest(job=JOB, nodes=1)) == "job j is wanted on 1 node (of 1:1)"
    want = store.get(KEYS.want(JOB, "user"))
    assert want is not None and decode(Want, want.value).nodes == 1
    assert act(DrainRequest(node="a")) == "node a is being drained"
    drain = store.get(KEYS.drain(NodeId("a")))
    assert drain is not None and decode(Drain, drain.value).why == "the dashboard"
    assert act(UndrainRequest(node="a")) == "node a may work again"
    assert store.get(KEYS.drain(NodeId("a"))) is None
    assert act(StopRequest(job=JOB)) == "job j is asked to stop"
    lines = capfd.readouterr().out.splitlines()
    assert [line.split("  ", 1)[1] for line in lines] == [
        "job j is wanted on 1 node (of 1:1)",
        "node a is being drained",
        "node a may work again",
        "job j is asked to stop",
    ]


def test_what_is_refused_is_a_sentence(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """Names that are none, and numbers that do not fit."""
    act = Actor({})
    with pytest.raises(CallError, match="2 is outside of --nnodes 1:1"):
        act(ScaleRequest(job=JOB, nodes=2))
    with pytest.raises(CallError, match="is not usable as a name"):
        act(DrainRequest(node="../etc"))
    with pytest.raises(NotFound, match="no node 'zz'"):
        act(DrainRequest(node="zz"))
    with pytest.raises(NotFound, match="There is no job 'other'"):
        act(StopRequest(job="other"))
    assert capfd.readouterr().out.count("refused: ") == 4

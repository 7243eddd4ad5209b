"""The lines of a watch, however the network cuts them."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import Unavailable
from elasticd.kube.api import stream
from elasticd.kube.api.failure import Busy, Failed, Gone
from elasticd.kube.api.port import ELASTIC_JOBS, NODES
from elasticd.kube.api.stream import WatchLines, WatchProgress


def line(word: str, version: int, name: str = "a", **more: object) -> bytes:
    metadata = {"name": name, "namespace": "n", "resourceVersion": str(version)}
    return json.dumps({"type": word, "object": {"metadata": metadata, **more}}).encode() + b"\n"


WHOLE = (
    line("ADDED", 2, spec={"x": "ä\u2028"})
    + line("MODIFIED", 5)
    + b"\r\n"
    + line("BOOKMARK", 9)
    + line("DELETED", 11)
)


def test_events_say_what_stands_now() -> None:
    """A bookmark is a version alone; a deletion has no object."""
    told = list(WatchLines(ELASTIC_JOBS, "h").feed(WHOLE))
    assert [each.version for each in told] == ["2", "5", "9", "11"]
    assert [each.change is None for each in told] == [False, False, True, False]
    first, last = told[0].change, told[-1].change
    assert first is not None and first.item is not None and first.item["kind"] == "ElasticJob"
    assert last is not None and last.item is None and last.name == ("n", "a")


@given(st.lists(st.integers(0, len(WHOLE))))
def test_it_does_not_matter_where_the_network_cuts(cuts: list[int]) -> None:
    """All events come, once and in order; half a line at the end is none."""
    lines, told = WatchLines(ELASTIC_JOBS, "h"), list[WatchProgress]()
    bounds = [0, *sorted(cuts), len(WHOLE)]
    for begin, end in itertools.pairwise(bounds):
        told += lines.feed(WHOLE[begin:end])
    assert told == list(WatchLines(ELASTIC_JOBS, "h").feed(WHOLE))
    assert list(lines.feed(line("ADDED", 12)[:-1])) == []


@pytest.mark.parametrize(
    ("code", "kind"), [(410, Gone), (500, Failed), (429, Busy)], ids=["gone", "broken", "busy"]
)
def test_an_error_is_raised_as_the_answer_of_a_request_is(
    code: int, kind: type[Unavailable]
) -> None:
    """The server tells of it in the middle of a watch, with HTTP's status long sent."""
    event = {"type": "ERROR", "object": {"code": code, "message": "too old"}}
    with pytest.raises(kind, match="too old"):
        list(WatchLines(NODES, "h").feed(json.dumps(event).encode() + b"\n"))


@pytest.mark.parametrize(
    "text",
    [
        b"<html>\n",
        b"[]\n",
        b'{"type":"ADDED","object":{}}\n',
        b"7\n",
        b'{"type":"ERROR","object":"no"}\n',
    ],
)
def test_what_is_no_event_is_a_trouble_of_the_server(text: bytes) -> None:
    """A proxy's page in the middle of a watch ends that watch, and not the thread."""
    with pytest.raises(Unavailable, match="no event"):
        list(WatchLines(NODES, "h").feed(text))


def test_a_line_that_never_ends_is_not_kept_without_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever serves it is no API server."""
    monkeypatch.setattr(stream, "LINE_LIMIT_BYTES", 100)
    lines = WatchLines(NODES, "h")
    for _ in range(10):
        assert list(lines.feed(b"x" * 10)) == []
    with pytest.raises(Unavailable, match="more than 100 bytes"):
        list(lines.feed(b"x"))


def test_what_nobody_reads_is_not_kept() -> None:
    """Managed fields, and a node's images, are most of what the server sends."""
    text = line("ADDED", 2, status={"images": [1], "conditions": []})
    (told,) = WatchLines(NODES, "h").feed(text.replace(b'"name"', b'"managedFields": [1], "name"'))
    assert told.change is not None and told.change.item is not None
    assert told.change.item["status"] == {"conditions": []}
    assert "managedFields" not in told.change.item["metadata"]

"""Documents that somebody has nested without end: one object is wrong, and all others are read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.kube.api.document import CUT, DEPTH_LIMIT, document, levelled
from elasticd.kube.api.port import ELASTIC_JOBS
from elasticd.kube.api.stream import WatchLines, trimmed
from elasticd.kube.resource.elastic_job import elastic_job

# The ends of texts that hold what looks like an end of them.
SPEC = '{"script": "a\\"]}.py", "checkpoint": {"url": "/x\\\\", "options": %s}}'
METADATA = '{"name": "x", "namespace": "team", "uid": "u", "resourceVersion": "7"}'


def nested(levels: int) -> str:
    return '{"a": [' * (levels // 2) + "1" + "]}" * (levels // 2)


def an_object(levels: int) -> str:
    return f'{{"metadata": {METADATA}, "spec": {SPEC % nested(levels)}}}'


@pytest.mark.parametrize("levels", [20, 900, 2_000, 9_900])
def test_one_object_that_is_nested_without_end_spoils_no_listing(levels: int) -> None:
    """The API server takes ten thousand levels, Python's parser a thousand."""
    found = document(f'{{"items": [{an_object(levels)}, {an_object(2)}]}}'.encode())
    jobs = [elastic_job(trimmed(ELASTIC_JOBS, item)) for item in found["items"]]
    assert "spec.checkpoint.options is nested more than 8 levels deep" in jobs[0].wrong
    assert jobs[1].wrong == "" and jobs[1].spec is not None
    assert jobs[1].spec.script == 'a"]}.py' and jobs[1].spec.checkpoint is not None


@pytest.mark.parametrize("levels", [900, 9_900])
def test_such_an_object_ends_no_watch(levels: int) -> None:
    """Its line is an event as others are, and comparing it with one of before recurses no more."""
    line = f'{{"type": "ADDED", "object": {an_object(levels)}}}\n'.encode()
    first, second = WatchLines(ELASTIC_JOBS, "h").feed(line + line)
    assert first.change is not None and second.change is not None
    assert first.change.item == second.change.item
    assert CUT in json.dumps(first.change.item)


def test_what_is_no_json_is_none_however_deep() -> None:
    for text in (b"{", b"[" * 5_000, b'{"a": "' + b"[" * 5_000, b"]" * 5_000):
        with pytest.raises(ValueError):  # noqa: PT011 (any of the parser's)
            document(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_what_is_not_deep_stays_as_it_is(value: object) -> None:
    assert document(json.dumps(value).encode()) == value
    assert levelled(value, DEPTH_LIMIT) is value

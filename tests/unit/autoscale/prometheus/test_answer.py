"""What may come back from a Prometheus, and what is made of it: every trap by itself."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.prometheus.answer import QueryAnswer, QueryFailure, Sample, answered, number
from elasticd.autoscale.prometheus.query_value import reading
from elasticd.records.autoscale.held import HoldReason

AT = 1_700_000_000.123


def success(kind: str, result: Any, **more: Any) -> bytes:
    data = {"resultType": kind, "result": result}
    return json.dumps({"status": "success", "data": data, **more}).encode()


def vector(*texts: str) -> bytes:
    return success(
        "vector", [{"metric": {"n": str(n)}, "value": [AT, text]} for n, text in enumerate(texts)]
    )


def error(kind: str, words: str) -> bytes:
    return json.dumps({"status": "error", "errorType": kind, "error": words}).encode()


def read(
    body: bytes,
    status: int = 200,
    *,
    age_s: float | QueryFailure | None = 1.0,
    max_age_s: float = 60.0,
    back_s: float = 0.0,
) -> QueryReading:
    return reading(answered(status, body), age_s, max_age_s=max_age_s, back_s=back_s)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("-0", 0), ("12.5", 12.5), ("1e+06", 1e6), ("1e-320", 1e-320), ("1e30", 1e30)],
)
def test_a_number_is_read(text: str, value: float) -> None:
    """As a vector of one series, and as a scalar."""
    for body in (vector(text), success("scalar", [AT, text])):
        found = read(body)
        assert found == QueryReading(value=value, age_s=1.0)
        assert found.value is not None and math.copysign(1, found.value) == 1


@pytest.mark.parametrize(
    ("body", "why", "says"),
    [
        (vector(), HoldReason.EMPTY, "no series"),
        (vector("1", "2"), HoldReason.MANY_SERIES, '2 series, {n="0"} and {n="1"}'),
        (vector("NaN"), HoldReason.NOT_A_NUMBER, "NaN"),
        (vector("+Inf"), HoldReason.NOT_A_NUMBER, "Inf"),
        (vector("-Inf"), HoldReason.NOT_A_NUMBER, "Inf"),
        (vector("1e300"), HoldReason.NOT_A_NUMBER, "1e300"),
        (vector("1e999"), HoldReason.NOT_A_NUMBER, "1e999"),
        (vector("-0.5"), HoldReason.NEGATIVE, "-0.5"),
        (vector("1_000"), HoldReason.NOT_A_NUMBER, "1_000"),
        (vector("infinity"), HoldReason.NOT_A_NUMBER, "infinity"),
        (vector(" 1"), HoldReason.NOT_A_NUMBER, "1"),
        (vector("\u0661"), HoldReason.NOT_A_NUMBER, "\u0661"),
        (vector(""), HoldReason.NOT_A_NUMBER, "histogram"),
        (
            success("vector", [{"metric": {}, "histogram": [AT, {}]}]),
            HoldReason.NOT_A_NUMBER,
            "histog",
        ),
        (
            success("matrix", [{"metric": {}, "values": [[AT, "1"]]}]),
            HoldReason.NOT_A_NUMBER,
            "matrix",
        ),
        (success("string", [AT, "5"]), HoldReason.NOT_A_NUMBER, "string"),
        (
            success("vector", [], warnings=["a store is away"]),
            HoldReason.WARNING,
            "a store is away",
        ),
        (
            success("scalar", [AT, "1"], warnings=["partial"]),
            HoldReason.WARNING,
            "Prometheus warns: partial",
        ),
    ],
)
def test_an_answer_without_a_number_says_why(body: bytes, why: HoldReason, says: str) -> None:
    """And is never 0."""
    found = read(body)
    assert (found.value, found.why) == (None, why)
    assert says in found.detail


def test_empty_warnings_and_notes_are_no_warnings() -> None:
    """`infos` say that a counter's name is odd, which many are; they doubt no number."""
    body = success("scalar", [AT, "1"], warnings=[], infos=["metric might not be a counter"])
    assert read(body).value == 1


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (400, error("bad_data", "parse error"), HoldReason.REFUSED),
        (422, error("execution", "parse error"), HoldReason.REFUSED),
        (404, b"404 page not found", HoldReason.REFUSED),
        (408, error("timeout", "parse error"), HoldReason.UNREACHABLE),
        (429, b"slow down", HoldReason.UNREACHABLE),
        (422, error("canceled", "parse error"), HoldReason.UNREACHABLE),
        (500, error("internal", "parse error"), HoldReason.UNREACHABLE),
        (503, error("timeout", "parse error"), HoldReason.UNREACHABLE),
        (503, b"Service Unavailable", HoldReason.UNREACHABLE),
        (502, b"<html>bad gateway</html>", HoldReason.UNREACHABLE),
        (500, vector("5"), HoldReason.UNREACHABLE),
        (200, b"<html>log in</html>", HoldReason.UNREACHABLE),
        (200, b"", HoldReason.UNREACHABLE),
        (200, b"null", HoldReason.UNREACHABLE),
        (200, b"[]", HoldReason.UNREACHABLE),
        (200, b"{}", HoldReason.UNREACHABLE),
        (200, b'{"status":"success"}', HoldReason.UNREACHABLE),
        (200, b'{"status":"success","data":[]}', HoldReason.UNREACHABLE),
        (200, success("heap", []), HoldReason.UNREACHABLE),
        (200, success("vector", {}), HoldReason.UNREACHABLE),
        (200, success("vector", [{}]), HoldReason.UNREACHABLE),
        (200, success("vector", [{"metric": {}, "value": [AT]}]), HoldReason.UNREACHABLE),
        (200, success("vector", [{"metric": {}, "value": [AT, 5]}]), HoldReason.UNREACHABLE),
        (200, success("vector", [{"metric": {}, "value": ["x", "5"]}]), HoldReason.UNREACHABLE),
        (200, success("vector", [{"metric": [1], "value": [AT, "5"]}]), HoldReason.UNREACHABLE),
        (200, b"[" * 100_000, HoldReason.UNREACHABLE),
        (200, vector("5")[:-7], HoldReason.UNREACHABLE),
        (200, b"\xff\xfe", HoldReason.UNREACHABLE),
    ],
)
def test_what_is_no_answer_is_a_failure(status: int, body: bytes, why: HoldReason) -> None:
    """No refusal is taken for an outage, which passes by itself, nor the other way."""
    found = read(body, status)
    assert (found.value, found.why) == (None, why)
    if b"parse error" in body:
        assert found.detail == "Prometheus says: parse error"


def test_words_of_others_are_one_line_of_some_length() -> None:
    """They go to terminals and logs."""
    found = read(error("bad_data", "a\x1b[31m\nb\r\u2028" + "c" * 10_000), 400)
    assert found.detail.startswith("Prometheus says: a [31m b c") and len(found.detail) < 400
    page = read(b"<html>\x00\x1b]0;x\x07" + b"y" * 1000)
    assert page.detail.isprintable() and len(page.detail) < 400


def test_old_answer_is_stale() -> None:
    """At the limit it is not yet; the age is told."""
    assert read(vector("1"), age_s=60.0).value == 1
    found = read(vector("1"), age_s=61.0)
    assert (found.value, found.why, found.age_s) == (None, HoldReason.STALE, 61.0)
    assert "no sample for 61 s, and 60 s are allowed" in found.detail


def test_answer_that_rests_on_no_series_is_stale() -> None:
    """`sum(gone) or vector(0)` has a value, and a job must not shrink by it."""
    found = read(vector("0"), age_s=None)
    assert (found.value, found.why) == (None, HoldReason.STALE)


def test_answer_whose_age_was_not_told_has_the_reason_for_that() -> None:
    """Half an answer is none."""
    found = read(vector("1"), age_s=QueryFailure(why=HoldReason.UNREACHABLE, detail="No answer."))
    assert (found.value, found.why) == (None, HoldReason.UNREACHABLE)


def test_answer_of_a_clock_that_was_put_back_is_stale() -> None:
    """It is a replay of what was scraped before."""
    found = read(vector("1"), back_s=600.0)
    assert (found.value, found.why) == (None, HoldReason.STALE)
    assert "600 s" in found.detail


@given(st.binary(max_size=200), st.integers(100, 599))
def test_no_bytes_are_a_number_by_chance_or_raise(body: bytes, status: int) -> None:
    assert isinstance(answered(status, body), QueryAnswer | QueryFailure)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["metric", "value", "values"]), inner)
    ),
)


@given(JSON)
def test_no_json_raises(result: Any) -> None:
    """Whatever stands where a result should."""
    for kind in ("vector", "matrix", "scalar", "string"):
        found = answered(200, success(kind, result))
        assert isinstance(found, QueryAnswer | QueryFailure)


@given(st.floats())
def test_numbers_as_prometheus_writes_them_are_read(value: float) -> None:
    text = "+Inf" if value == math.inf else "-Inf" if value == -math.inf else repr(value)
    found = number(text.replace("nan", "NaN"))
    assert found == value or (found is not None and math.isnan(found) and math.isnan(value))


def test_sample_knows_its_labels_and_the_answer_its_clock() -> None:
    found = answered(200, vector("1"))
    assert found == QueryAnswer(
        kind="vector", samples=(Sample(labels={"n": "0"}, at_s=AT, text="1"),)
    )
    assert found.clock_s == AT
    assert QueryAnswer(kind="vector").clock_s is None

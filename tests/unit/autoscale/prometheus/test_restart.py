"""A Prometheus that was restarted between two evaluations: its averages have a gap."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from elasticd.autoscale.metrics_source import Query
from elasticd.autoscale.prometheus.client import PrometheusClient
from elasticd.autoscale.prometheus.restart import started_unix_s
from elasticd.autoscale.prometheus.settings import PrometheusSettings
from elasticd.records.autoscale.held import HoldReason
from tests.fixtures.scripted_prometheus import ScriptedPrometheus, scripted_prometheus

X, HOUR = (Query(job="j", name="m", text=text) for text in ("x", "hour()"))


@pytest.fixture
def script() -> Iterator[ScriptedPrometheus]:
    with scripted_prometheus() as script:
        script.values, script.scalars = {"x": ["5"]}, {"hour()": "7"}
        yield script


def started(script: ScriptedPrometheus, ago_s: float) -> str:
    return datetime.fromtimestamp(script.now_s - ago_s, UTC).isoformat().replace("+00:00", "Z")


def test_restart_since_the_last_evaluation_is_a_gap_once(script: ScriptedPrometheus) -> None:
    """By its own clock, which is wrong by years here; what needs no series goes on."""
    script.started = started(script, 1e6)
    with closing(PrometheusClient(PrometheusSettings(url=script.url))) as client:
        for _ in range(2):
            assert client.read([X])[X].value == 5.0
        script.started = started(script, 0.0)
        found = client.read([X, HOUR])
        assert (found[X].value, found[X].why) == (None, HoldReason.UNREACHABLE)
        assert found[X].detail == "Prometheus was started 0 s ago: there is a gap."
        assert found[HOUR].value == 7.0
        script.now_s += 3600
        assert client.read([X])[X].value == 5.0


def test_one_that_was_just_started_has_no_window_for_who_never_asked_before(
    script: ScriptedPrometheus,
) -> None:
    """As when a machine comes back with both, or a leader takes over: what was seen before nobody
    knows. From then on it is the memory's to wait for one whole window."""
    day = replace(X, window_s=86_400.0)
    script.started = started(script, 3600.0)
    with closing(PrometheusClient(PrometheusSettings(url=script.url))) as client:
        found = client.read([X, day, HOUR])
        assert (found[X].value, found[HOUR].value) == (5.0, 7.0)
        assert (found[day].value, found[day].why) == (None, HoldReason.UNREACHABLE)
        assert found[day].detail == "Prometheus was started 3600 s ago: there is a gap."
        assert client.read([day])[day].value == 5.0


def test_what_set_asks_is_what_it_says_now(script: ScriptedPrometheus) -> None:
    script.started = started(script, 0.0)
    with closing(PrometheusClient(PrometheusSettings(url=script.url))) as client:
        assert client.check(X).value == 5.0


def test_two_behind_one_address_are_no_restart(script: ScriptedPrometheus) -> None:
    """They were started at other times, both before we asked."""
    with closing(PrometheusClient(PrometheusSettings(url=script.url))) as client:
        for ago_s in (1e6, 3600.0, 1e6):
            script.started = started(script, ago_s)
            assert client.read([X])[X].value == 5.0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"data":{}}',
        b'{"data":{"startTime":5}}',
        b'{"data":{"startTime":"x"}}',
        b'{"data":{"startTime":"2026-01-01T00:00:00"}}',
    ],
)
def test_what_says_nothing_of_its_start_is_taken_as_it_is(body: bytes) -> None:
    """Thanos and others have no such answer."""
    assert started_unix_s(body) is None


def test_start_is_read_with_its_nanoseconds() -> None:
    body = b'{"data":{"startTime":"1970-01-02T00:00:01.123456789Z"}}'
    assert started_unix_s(body) == pytest.approx(86401.123456)

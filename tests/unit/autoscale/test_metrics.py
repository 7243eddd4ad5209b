"""What the autoscaler says of itself, as Prometheus reads it."""

import http.client
from collections.abc import Iterator
from contextlib import closing

import pytest

from elasticd.autoscale.metrics import AutoscalerCounts
from elasticd.errors import EnvironmentProblem
from elasticd.leader.http_server import MetricsServer
from elasticd.records.autoscale.decision import Rule
from elasticd.records.autoscale.held import MISSING_INPUT, HoldReason
from elasticd.telemetry.metrics.catalog import CATALOG
from elasticd.telemetry.metrics.exposition import CONTENT_TYPE, parsed
from elasticd.telemetry.metrics.metric import Exporter
from tests.fixtures.patience import patience_s

PREFIX = "elasticd_autoscaler_"


def values(counts: AutoscalerCounts) -> dict[tuple[str, ...], float]:
    found = parsed(counts.exposition().decode())
    return {(name.removeprefix(PREFIX), *labels): value for name, labels, value in found}


def test_every_series_is_there_at_0_from_the_beginning() -> None:
    """A counter that first appears with 1 has no increase: the first one would never be seen."""
    text = AutoscalerCounts().exposition().decode()
    assert all(f"# TYPE {m.name} " in text for m in CATALOG if m.exporter is Exporter.AUTOSCALER)
    found = values(AutoscalerCounts())
    assert found["leader",] == 0 and set(found.values()) == {0.0}
    assert {key[1] for key in found if key[0] == "held_total"} == {
        word.value for word in HoldReason
    }
    decisions = {key[1:] for key in found if key[0] == "decisions_total"}
    assert decisions == {(rule.value, way) for rule in Rule for way in ("up", "down")}


def test_what_happened_is_counted_under_its_words() -> None:
    """The direction is that of the sizes; what changes none is no decision."""
    counts = AutoscalerCounts()
    counts.leads(True)
    counts.decided(Rule.GOODPUT, 1, 3)
    counts.decided(Rule.GOODPUT, 3, 4)
    counts.decided(Rule.TAKE_BACK, 4, 3)
    counts.decided(Rule.IDLE, 3, 3)
    counts.held("stale")
    found = {key: value for key, value in values(counts).items() if value}
    assert found == {
        ("leader",): 1,
        ("decisions_total", "goodput", "up"): 2,
        ("decisions_total", "take_back", "down"): 1,
        ("held_total", "stale"): 1,
    }
    counts.leads(False)
    assert values(counts)["leader",] == 0


def test_word_of_no_list_makes_no_new_series() -> None:
    """Labels are closed lists: a sentence that got there by mistake is `other`."""
    counts = AutoscalerCounts()
    before = values(counts).keys()
    counts.held("prometheus at 10.0.0.1 is away")
    counts.held("")
    assert values(counts).keys() == before
    assert values(counts)["held_total", "other"] == 2


def test_blindness_is_of_inputs_alone() -> None:
    """Whoever pins a job, or waits for a window, has blinded nobody."""
    assert set(HoldReason) - set(MISSING_INPUT) == {
        *(
            HoldReason.GAP,
            HoldReason.NO_STEPS,
            HoldReason.NO_WINDOW,
            HoldReason.COOLDOWN,
            HoldReason.PROBE,
            HoldReason.PINNED,
        ),
        *(HoldReason.NOT_RUNNING, HoldReason.RESTART_MODE, HoldReason.OTHER),
    }


def test_evaluations_are_a_histogram() -> None:
    """On the bound counts as below it."""
    counts = AutoscalerCounts()
    for took_s in (0.05, 0.06, 99.0):
        counts.evaluated(took_s)
    text = counts.exposition().decode()
    name = f"{PREFIX}evaluation_seconds"
    assert f'{name}_bucket{{le="0.05"}} 1\n' in text
    assert f'{name}_bucket{{le="0.25"}} 2\n' in text
    assert f'{name}_bucket{{le="+Inf"}} 3\n{name}_sum 99.11\n{name}_count 3\n' in text


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with closing(MetricsServer("127.0.0.1", 0, AutoscalerCounts())) as server:
        yield server


def asked(server: MetricsServer, path: str) -> tuple[int, str, bytes]:
    with closing(
        http.client.HTTPConnection("127.0.0.1", server.port, timeout=patience_s(30.0))
    ) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()


def test_port_serves_metrics_and_health(server: MetricsServer) -> None:
    """And says what there is where there is nothing."""
    assert asked(server, "/metrics?x=1") == (200, CONTENT_TYPE, AutoscalerCounts().exposition())
    assert asked(server, "/healthz")[0] == 200
    status, _, body = asked(server, "/")
    assert status == 404 and b"/metrics" in body


def test_a_process_whose_work_stands_still_is_not_healthy() -> None:
    """Whoever keeps it running restarts it; its metrics are there all the same, and say that it
    does not lead, by which the alert is fired."""
    counts = AutoscalerCounts()
    counts.leads(True)
    with closing(MetricsServer("127.0.0.1", 0, counts, is_alive=lambda: False)) as server:
        assert asked(server, "/healthz")[0] == 503
        status, _, body = asked(server, "/metrics")
        assert status == 200 and b"\nelasticd_autoscaler_leader 0\n" in body


def test_port_that_is_taken_is_said_in_one_sentence(server: MetricsServer) -> None:
    """With the port, and what to do."""
    with pytest.raises(EnvironmentProblem, match=f"port {server.port} .*: give an address"):
        MetricsServer("127.0.0.1", server.port, AutoscalerCounts())


def test_readiness_is_another_question_than_health() -> None:
    """A server that is away makes a process unready, and is no reason to start it again."""
    why = ["etcd does not answer."]
    counts = AutoscalerCounts()
    with closing(MetricsServer("127.0.0.1", 0, counts, why_unready=lambda: why[0])) as server:
        assert asked(server, "/readyz")[::2] == (503, b"etcd does not answer.\n")
        assert asked(server, "/healthz")[0] == 200
        why[0] = ""
        assert asked(server, "/readyz")[0] == 200

"""Readings straight from agents: sums, rates, and nothing where one of them is silent."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http import HTTPStatus

import pytest

from elasticd.autoscale.direct import agents_source as module
from elasticd.autoscale.direct.agents_source import AgentsSource
from elasticd.autoscale.metrics_source import Query
from elasticd.errors import CallError, Unavailable
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.member import Node
from elasticd.telemetry.metrics.catalog import by_name
from elasticd.telemetry.metrics.exposition import Sample, exposition
from elasticd_agent.http_server.answer import HttpAnswer
from elasticd_agent.http_server.listener import HttpListener
from elasticd_agent.http_server.server import HttpServer
from tests.fixtures.patience import patience_s
from tests.fixtures.ports import free_port
from tests.unit.control.world_case import node


class Site:
    """Agents' servers on loopback, whose metrics a test sets."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.nodes: list[Node] = []
        self.samples: dict[str, list[Sample]] = {}
        self.bodies: dict[str, bytes] = {}
        self.status = HTTPStatus.OK
        self.now_s = 100.0

    def agent(self, name: str) -> None:
        def metrics(path: str, query: str) -> HttpAnswer | None:
            body = self.bodies.get(name) or exposition(self.samples.get(name, []))
            return HttpAnswer(body=body, status=self.status) if path == "/metrics" else None

        server = HttpServer(HttpListener("127.0.0.1"), (metrics,))
        self._stack.callback(server.close)
        self.nodes.append(node(name, server.port))

    def put(self, name: str, metric: str, value: float, *labels: str) -> None:
        """Replace what one agent says of one series."""
        kept = [
            s for s in self.samples.get(name, []) if (s.metric.name, s.labels) != (metric, labels)
        ]
        self.samples[name] = [*kept, Sample(by_name(metric), labels, value)]


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        site = Site(stack)
        for name in ("a", "b"):
            site.agent(name)
        yield site


@pytest.fixture
def source(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentsSource]:
    # An agent that gets no core for two seconds answers all the same.
    monkeypatch.setattr(module, "TIMEOUT_S", patience_s(30.0))
    with closing(AgentsSource(lambda: site.nodes, now_s=lambda: site.now_s)) as source:
        yield source


def query(text: str, job: str = "j") -> Query:
    return Query(job=job, name="m", text=text)


WORKERS, SLOTS, STEPS = (
    query(f"elasticd_{name}") for name in ("workers", "slots_used", "steps_total")
)


def test_gauges_of_a_job_and_of_nodes_and_rates_of_counters(
    site: Site, source: AgentsSource
) -> None:
    """In one scrape of each agent; series of other jobs and other names are none of ours."""
    for name, slots, steps in (("a", 3, 50), ("b", 4, 0)):
        site.put(name, "elasticd_slots_used", slots)
        site.put(name, "elasticd_steps_total", steps, "j")
        site.put(name, "elasticd_steps_total", 10**6, "other")
        site.put(name, "elasticd_step_seconds_total", 10**6, "j")
    site.put("a", "elasticd_workers", 7, "j")
    site.put("a", "elasticd_workers", 9, "other")
    asked = [WORKERS, SLOTS, STEPS]
    first = source.read(asked)
    assert [first[each].value for each in asked] == [7.0, 7.0, None]
    assert first[STEPS].why == HoldReason.EMPTY and "read once" in first[STEPS].detail
    site.put("a", "elasticd_steps_total", 80, "j")
    site.put("b", "elasticd_steps_total", 30, "j")
    site.now_s += 15
    assert source.read(asked)[STEPS].value == 4.0


def test_number_that_moves_between_nodes_is_not_counted_twice(
    site: Site, source: AgentsSource
) -> None:
    """Rank 0 goes from one to the other, and for a scrape both speak for the job."""
    for name in ("a", "b"):
        site.put(name, "elasticd_workers", 7, "j")
    assert source.read([WORKERS])[WORKERS].value == 7.0


def test_node_that_does_not_answer_leaves_no_sum(site: Site, source: AgentsSource) -> None:
    """It would look like less: the node is named."""
    site.put("a", "elasticd_slots_used", 3)
    site.nodes.append(node("gone", free_port()))
    found = source.read([SLOTS])[SLOTS]
    assert (found.value, found.why) == (None, HoldReason.UNREACHABLE)
    assert found.detail == "The agent of node gone does not answer."
    site.nodes.pop()
    site.status = HTTPStatus.SERVICE_UNAVAILABLE
    found = source.read([SLOTS])[SLOTS]
    assert (found.value, found.why) == (None, HoldReason.UNREACHABLE)
    assert "answers with HTTP 503" in found.detail


def test_rate_goes_on_after_a_scrape_that_failed(site: Site, source: AgentsSource) -> None:
    """What rose meanwhile has risen; the time counts as well."""
    site.put("a", "elasticd_steps_total", 0, "j")
    source.read([STEPS])
    site.status = HTTPStatus.SERVICE_UNAVAILABLE
    site.now_s += 10
    assert source.read([STEPS])[STEPS].value is None
    site.status = HTTPStatus.OK
    site.put("a", "elasticd_steps_total", 40, "j")
    site.now_s += 10
    assert source.read([STEPS])[STEPS].value == 2.0


def test_number_that_is_none_is_no_number(site: Site, source: AgentsSource) -> None:
    lag = query('elasticd_scalar{name="lag"}')
    assert source.read([lag])[lag].why == HoldReason.EMPTY
    for value, why in (
        (float("nan"), HoldReason.NOT_A_NUMBER),
        (float("inf"), HoldReason.NOT_A_NUMBER),
        (-1.0, HoldReason.NEGATIVE),
    ):
        site.put("a", "elasticd_scalar", value, "j", "lag")
        found = source.read([lag])[lag]
        assert (found.value, found.why) == (None, why)
    site.put("a", "elasticd_scalar", 0.5, "j", "lag")
    assert source.read([lag])[lag].value == 0.5


def test_promql_is_refused_by_itself(site: Site, source: AgentsSource) -> None:
    """The other queries of the evaluation are answered; `set` hears of it at once."""
    promql = query("sum(elasticd_workers)")
    site.put("a", "elasticd_workers", 7, "j")
    found = source.read([promql, WORKERS])
    assert (found[promql].why, found[WORKERS].value) == (HoldReason.REFUSED, 7.0)
    with pytest.raises(CallError, match="is PromQL"):
        source.check(promql)
    assert source.check(WORKERS).value == 7.0


def test_agent_of_another_version_is_not_guessed_at(site: Site, source: AgentsSource) -> None:
    site.bodies["b"] = b'elasticd_workers{job_name="j",zone="z"} 5\n'
    found = source.read([WORKERS])[WORKERS]
    assert (found.value, found.why) == (None, HoldReason.UNREACHABLE)
    assert "another version" in found.detail


def test_etcd_that_is_away_and_a_cluster_without_agents_have_no_numbers() -> None:
    def away() -> list[Node]:
        raise Unavailable("etcd does not answer.")

    with closing(AgentsSource(away)) as source:
        assert source.read([SLOTS])[SLOTS].why == HoldReason.UNREACHABLE
    with closing(AgentsSource(list)) as source:
        assert source.read([SLOTS])[SLOTS].why == HoldReason.EMPTY
        assert source.read([]) == {}


def test_counter_that_nobody_asks_for_any_more_is_forgotten(
    site: Site, source: AgentsSource
) -> None:
    """Of a policy that changed; asked again, it begins anew."""
    site.put("a", "elasticd_steps_total", 0, "j")
    for asked in ([STEPS], [SLOTS], [STEPS]):
        site.now_s += 15
        found = source.read(asked)
    assert found[STEPS].value is None


def test_connection_that_was_kept_and_ended_is_replaced(site: Site, source: AgentsSource) -> None:
    """An agent ends those that have asked for nothing for long; it is there all the same."""
    site.put("a", "elasticd_slots_used", 3)
    source.read([SLOTS])
    for connection in source._fetch._connections.values():
        assert connection.sock is not None
        connection.sock.shutdown(socket.SHUT_RDWR)
    assert source.read([SLOTS])[SLOTS].value == 3.0

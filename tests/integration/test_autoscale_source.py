"""What the autoscaler reads from a real Prometheus: PromQL's own meaning, and the traps in it.

Prometheus scrapes a target of ours every second, and the metrics of an autoscaler whose jobs are
records in memory.
"""

import math
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
import trustme

from elasticd.autoscale.decide import decide
from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.metrics_source import Query
from elasticd.autoscale.prometheus.client import PrometheusClient
from elasticd.autoscale.prometheus.restart import PATH, started_unix_s
from elasticd.autoscale.prometheus.session import Call
from elasticd.autoscale.prometheus.settings import PrometheusSettings
from elasticd.errors import CallError
from elasticd.leader.http_server import MetricsServer
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.policy import Behavior, MetricKind, TargetMetric, TargetRule
from elasticd.store.private_etcd.embedded import bound_to_us
from tests.fixtures.alertmanager import Alertmanager, alertmanager_on
from tests.fixtures.autoscaler_scene import POLICY, Cluster, Leader
from tests.fixtures.cluster import until
from tests.fixtures.exporter import Exporter, exporter
from tests.fixtures.http_server import tls_files
from tests.fixtures.ports import free_port
from tests.fixtures.prometheus import Prometheus, program, prometheus_on
from tests.fixtures.promql_forms import FORMS

OPEN_SESAME = "$2b$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy"  # bcrypt
T = TypeVar("T")
STEADY = [
    'load{job_name="a"} 5',
    'load{job_name="b"} 7',
    "nan NaN",
    "inf_ +Inf",
    "below -1",
    "huge 1e300",
    "steps_total 100",
]


@pytest.fixture(scope="module")
def target() -> Iterator[Exporter]:
    with exporter("target") as target:
        target.lines = STEADY
        yield target


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    with alertmanager_on(tmp_path_factory.mktemp("alertmanager")) as alertmanager:
        yield alertmanager


@pytest.fixture(scope="module")
def prometheus(
    tmp_path_factory: pytest.TempPathFactory,
    target: Exporter,
    alertmanager: Alertmanager,
) -> Iterator[Prometheus]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with prometheus_on(folder, target.sd_url, alertmanager=alertmanager.address) as prometheus:
        until(lambda: bool(prometheus.value("steps_total")), lambda: prometheus.value("up"))
        yield prometheus


@pytest.fixture
def client(prometheus: Prometheus) -> Iterator[PrometheusClient]:
    with closing(PrometheusClient(PrometheusSettings(url=prometheus.url))) as client:
        yield client


def query(text: str, max_age_s: float = 60.0) -> Query:
    return Query(job="j", name="m", text=text, max_age_s=max_age_s)


def read(client: PrometheusClient, text: str, max_age_s: float = 60.0) -> QueryReading:
    asked = query(text, max_age_s)
    return client.read([asked])[asked]


def undisturbed(prometheus: Prometheus, look: Callable[[], T]) -> T:
    """Return what is seen while no scrape comes too late, which would end the series for a second.

    That happens on a busy machine, and is looked for afterwards.
    """
    missed = 'min_over_time(up{instance="target"}[10s]) < 1'
    seen: list[T] = []

    def is_whole() -> bool:
        seen[:] = [look()]
        return not prometheus.value(missed)

    until(is_whole, lambda: ("scrapes come too late all the time", seen))
    return seen[0]


def test_every_form_of_promql_is_read_apart_and_together(
    client: PrometheusClient, prometheus: Prometheus
) -> None:
    """No query for an age is refused; in a union each means what it means by itself."""
    values = {
        "sum(load)": 12.0,
        'load{job_name="a"}': 5.0,
        'max(load{job_name=~"a|b"} # of both\n)': 7.0,
        "scalar(sum(load)) + 1": 13.0,
        "sum by (job_name) (load > 6)": 7.0,
        "count(load or steps_total)": 3.0,
        'avg_over_time(load{job_name="a"}[1m])': 5.0,
        "max_over_time(sum(load)[30s:1s])": 12.0,
        "vector(3)": 3.0,
        "new_name or sum(load)": 12.0,
    }
    held = {
        "load": HoldReason.MANY_SERIES,
        "none": HoldReason.EMPTY,
        "sum(none) or vector(0)": HoldReason.STALE,
        "load[1m]": HoldReason.NOT_A_NUMBER,
        '"text"': HoldReason.NOT_A_NUMBER,
        "nan": HoldReason.NOT_A_NUMBER,
        'sum({__name__="nan"})': HoldReason.NOT_A_NUMBER,
        "inf_": HoldReason.NOT_A_NUMBER,
        "huge": HoldReason.NOT_A_NUMBER,
        "below": HoldReason.NEGATIVE,
        "sum(": HoldReason.REFUSED,
        "load * on(nothing) load": HoldReason.REFUSED,
    }
    queries = [query(text) for text in (*values, *held)]
    whole_second = "max_over_time(sum(load)[30s:1s])"
    until(lambda: read(client, whole_second).value == 12.0, lambda: read(client, whole_second))
    for _ in range(3):  # Apart at first, and then in unions.
        found = undisturbed(prometheus, lambda: client.read(queries))
        assert {each.text: found[each].value for each in queries[: len(values)]} == values
        assert {each.text: found[each].why for each in queries[len(values) :]} == held
    forms = [query(text) for text in FORMS if "my.metric" not in text]
    for _ in range(2):
        readings = client.read(forms)
        refused = {each.text: readings[each] for each in forms if readings[each].why == "refused"}
        assert not refused


def test_series_that_stopped_is_stale_at_once_and_a_new_one_is_not(
    client: PrometheusClient, target: Exporter
) -> None:
    """`rate` goes on to answer for a minute, and `last_over_time` for as long as it is asked."""
    rates = ("rate(steps_total[1m])", "last_over_time(steps_total[1m])")

    def are_there() -> bool:
        return all(read(client, text).value is not None for text in rates)

    until(are_there, lambda: [read(client, text) for text in rates])
    target.lines = [line for line in STEADY if "steps" not in line]
    try:
        for text in rates:
            until(lambda: read(client, text).value is None, lambda: read(client, text))  # noqa: B023
            found = read(client, text)
            assert (found.why, found.detail) == (
                HoldReason.STALE,
                "No series that the query names has a sample now: its value is made up.",
            )
    finally:
        target.lines = STEADY
    until(are_there, lambda: [read(client, text) for text in rates])


def test_samples_with_times_of_their_own_are_as_old_as_they_say(
    client: PrometheusClient, prometheus: Prometheus, target: Exporter
) -> None:
    """Prometheus answers for five minutes with the time of the question, and knows no end of it."""
    now_s = time.time()
    target.lines = [
        *STEADY,
        f"pushed 5 {(now_s - 100) * 1000:.0f}",
        f"pushed_long_ago 5 {(now_s - 600) * 1000:.0f}",
    ]
    try:
        until(lambda: read(client, "pushed", 3600.0).value == 5.0, lambda: read(client, "pushed"))
        found = read(client, "pushed")
        assert (found.value, found.why) == (None, HoldReason.STALE)
        assert 100 <= found.age_s < 200
        # Of two series the older one counts.
        both = undisturbed(prometheus, lambda: read(client, "sum(pushed) + sum(load)"))
        assert both.why == HoldReason.STALE
        assert undisturbed(prometheus, lambda: read(client, "sum(load)")).value == 12.0
        # Beyond the look-back of an instant query.
        assert read(client, "pushed_long_ago", 900.0).why == HoldReason.EMPTY
        late = "last_over_time(pushed_long_ago[15m])"
        until(lambda: read(client, late, 900.0).value == 5.0, lambda: read(client, late))
        assert 600 <= read(client, late, 900.0).age_s < 700
        # What is newer than whole minutes is exact.
        until(lambda: 0 < read(client, "sum(load)", 900.0).age_s < 5, client.url.upper)
        assert read(client, late).why == HoldReason.STALE
    finally:
        target.lines = STEADY


def test_check_has_prometheus_own_words(client: PrometheusClient, prometheus: Prometheus) -> None:
    """For `set`, before a policy is written."""
    with pytest.raises(CallError, match=r"1:5: parse error: unclosed left parenthesis"):
        client.check(query("sum("))
    with pytest.raises(CallError, match="unknown function"):
        client.check(query("summ(load)"))
    with pytest.raises(CallError, match="is a matrix"):
        client.check(query("load[1m]"))
    asked = query("sum(load)")
    assert undisturbed(prometheus, lambda: client.check(asked)).value == 12.0
    assert client.check(query("none")).why == HoldReason.EMPTY


def test_past_has_what_was_scraped(client: PrometheusClient, prometheus: Prometheus) -> None:
    """Its newest point is of now; before the first scrape there is none."""
    points = undisturbed(prometheus, lambda: client.past("sum(load)", 3600.0, 1.0))
    assert points and all(point.value == 12.0 for point in points)
    assert points[-1].ago_s <= 1.0 and points[0].ago_s < 3600.0
    # One for each second, but for those in which a scrape came too late.
    span_s = points[0].ago_s - points[-1].ago_s
    assert math.isclose(span_s, round(span_s), abs_tol=0.01)
    missed = len(client.past('sum(up{instance="target"} < 1)', 3600.0, 1.0))
    assert len(points) - 1 <= round(span_s) <= len(points) + missed
    with pytest.raises(CallError, match="several series"):
        client.past("load", 60.0, 1.0)


def test_prometheus_says_since_when_it_runs(
    client: PrometheusClient, prometheus: Prometheus
) -> None:
    """By that a restart between two evaluations is seen; this one has run since the first test, so
    that whoever asks it for the first time trusts no window of a day."""
    day = replace(query("sum(load)"), window_s=86_400.0)
    first = client.read([day])[day]
    assert (first.value, first.why) == (None, HoldReason.UNREACHABLE)
    assert re.fullmatch(r"Prometheus was started \d+ s ago: there is a gap\.", first.detail)
    assert undisturbed(prometheus, lambda: client.read([day]))[day].value == 12.0
    body = client._session.get(PATH, Call(time.monotonic() + 60.0))
    began_s = started_unix_s(body or b"")
    assert began_s is not None and time.time() - 3600.0 < began_s < time.time()


def test_prometheus_with_a_certificate_a_password_and_a_prefix_is_asked(tmp_path: Path) -> None:
    """As many run it: nobody else is told anything."""
    authority = trustme.CA()
    served = tls_files(tmp_path / "served", authority, "127.0.0.1")
    ours = tls_files(tmp_path / "ours", authority, "autoscaler")
    (tmp_path / "prometheus.yml").write_text("{}")
    (tmp_path / "web.yml").write_text(
        f"tls_server_config: {{cert_file: {served.cert_file}, key_file: {served.key_file}, "
        f"client_ca_file: {served.ca_file}, client_auth_type: RequireAndVerifyClientCert}}\n"
        f"basic_auth_users: {{ada: '{OPEN_SESAME}'}}\n"
    )
    (tmp_path / "password").write_text("open sesame\n")
    port = free_port()
    command = [
        program("prometheus"),
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--web.config.file={tmp_path / 'web.yml'}",
        "--web.route-prefix=/metrics-of/us",
        "--log.level=error",
    ]
    known = PrometheusSettings(
        url=f"https://127.0.0.1:{port}/metrics-of/us/",
        username="ada",
        password_file=str(tmp_path / "password"),
        ca_file=ours.ca_file,
        cert_file=ours.cert_file,
        key_file=ours.key_file,
    )
    process = subprocess.Popen(bound_to_us(command), stdin=subprocess.DEVNULL)
    try:

        def said(**other: str) -> QueryReading:
            with closing(PrometheusClient(replace(known, **other))) as client:  # type: ignore[arg-type]
                return read(client, "vector(1)")

        until(lambda: said().value == 1.0, said)
        assert said(cert_file="", key_file="").why == HoldReason.UNREACHABLE
        assert said(url=f"https://127.0.0.1:{port}").why == HoldReason.REFUSED
        (tmp_path / "password").write_text("open wheat\n")
        refused = said()
        assert refused.why == HoldReason.REFUSED and "HTTP 401" in refused.detail
    finally:
        process.kill()
        process.wait()


def test_blind_autoscaler_changes_nothing_and_is_told_of(
    client: PrometheusClient, target: Exporter, alertmanager: Alertmanager
) -> None:
    """A metric that asks for four nodes stops: the size stays, and the alert says why."""
    wish = TargetMetric(name="load", query="sum(load)", target=3.0, kind=MetricKind.LOAD)
    rule = TargetRule(metrics=(wish,), down=Behavior())
    policy = replace(POLICY, target=rule, window_s=1.0, cooldown_s=0.0)
    cluster = Cluster()
    cluster.node("a")
    job = cluster.job().submit(policy)
    job.run("a")
    told = {"alertname": "ElasticdAutoscalerBlind", "why": "empty"}
    leader = Leader(cluster, decide, source=client)  # type: ignore[arg-type]
    leader.counts.leads(True)
    with closing(MetricsServer("127.0.0.1", 0, leader.counts)) as server:
        target.targets.append(("autoscaler", f"127.0.0.1:{server.port}"))

        def is_sized() -> bool:
            leader.evaluate()
            return job.wanted == 4

        def is_told() -> bool:
            """By its reason: on a busy machine Prometheus may have been silent before."""
            leader.evaluate()
            return any(told.items() <= each.items() for each in list(alertmanager.labels))

        try:
            until(is_sized, lambda: job.memory)
            target.lines = []
            until(is_told, lambda: (alertmanager.labels, job.memory))
        finally:
            target.lines = STEADY
            leader.kill()
    memory = job.memory
    assert memory is not None and (memory.held, job.wanted) == (HoldReason.EMPTY, 4)
    assert "ElasticdAutoscalerBlind" in alertmanager.arrived

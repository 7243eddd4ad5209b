"""The client against something that answers badly in every way: in time, and with a reason."""

import http.server
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.metrics_source import Query
from elasticd.autoscale.prometheus import evaluation
from elasticd.autoscale.prometheus.answer import QueryAnswer, QueryFailure
from elasticd.autoscale.prometheus.client import PrometheusClient
from elasticd.autoscale.prometheus.evaluation import WORKERS
from elasticd.autoscale.prometheus.session import Call
from elasticd.autoscale.prometheus.settings import PrometheusSettings
from elasticd.errors import CallError, Unavailable
from elasticd.records.autoscale.held import HoldReason
from tests.fixtures.patience import patience_s
from tests.fixtures.ports import free_port
from tests.fixtures.scripted_prometheus import ScriptedPrometheus, scripted_prometheus, vector_of
from tests.fixtures.store import wait_until

SHORT_S = 0.5
LONG_S = 60.0


@pytest.fixture
def script() -> Iterator[ScriptedPrometheus]:
    with scripted_prometheus() as script:
        yield script


@contextmanager
def client_of(url: str, timeout_s: float = LONG_S, **given: str) -> Iterator[PrometheusClient]:
    settings = PrometheusSettings(url=url, timeout_s=timeout_s, **given)
    with closing(PrometheusClient(settings)) as client:
        yield client


def query(text: str, job: str = "j", max_age_s: float = 60.0) -> Query:
    return Query(job=job, name="m", text=text, max_age_s=max_age_s)


def why(client: PrometheusClient, text: str = "x") -> tuple[str, str]:
    """Ask for a number that must not be there."""
    found = client.read([query(text)])[query(text)]
    assert found.value is None
    return found.why, found.detail


def test_queries_of_all_jobs_are_answered(script: ScriptedPrometheus) -> None:
    """Each with its own number, or with its own reason."""
    script.values = {"x": ["5"], "two": ["1", "2"], "old": ["3"]}
    script.values["time() - min(timestamp(old))"] = ["90"]
    script.values["time() - min(timestamp(gone))"] = []
    script.scalars = {"scalar(x) + 2": "7", "hour()": "14"}
    script.values["gone or vector(0)"] = ["0"]
    script.refused = {"bad("}
    asked = ("x", "two", "old", "gone or vector(0)", *script.scalars, "bad(", "none")
    queries = [query(text) for text in asked]
    with client_of(script.url) as client:
        found = {key.text: reading for key, reading in client.read(queries).items()}
    assert {key: found[key].value for key in ("x", "scalar(x) + 2", "hour()")} == {
        "x": 5.0,
        "scalar(x) + 2": 7.0,
        "hour()": 14.0,
    }
    whys = {key: reading.why for key, reading in found.items() if reading.value is None}
    assert whys == {
        "two": HoldReason.MANY_SERIES,
        "old": HoldReason.STALE,
        "gone or vector(0)": HoldReason.STALE,
        "bad(": HoldReason.REFUSED,
        "none": HoldReason.EMPTY,
    }
    assert found["x"].age_s == 1.0


def test_same_text_of_two_jobs_is_asked_once_and_names_no_time_of_ours(
    script: ScriptedPrometheus,
) -> None:
    """By POST, with how long we wait; our clock is never told."""
    script.values = {"x": ["5"]}
    asked = [query("x", "a"), query("x", "b")]
    with client_of(f"{script.url}/some/prefix/") as client:
        assert [reading.value for reading in client.read(asked).values()] == [5.0, 5.0]
    assert sorted(script.expressions) == ["time() - min(timestamp(x))", "x"]
    assert {seen.path for seen in script.seen} == {"/some/prefix/api/v1/query"}
    assert {tuple(sorted(seen.fields)) for seen in script.seen} == {("query", "timeout")}
    assert 0 < float(script.seen[0].fields["timeout"]) <= LONG_S


def test_a_hundred_jobs_are_asked_in_a_few_requests_over_kept_connections(
    script: ScriptedPrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second time on, when it is known which of them are vectors."""
    monkeypatch.setattr(evaluation, "PATIENCE_S", patience_s(20.0))  # No part is asked singly.
    texts = [f'x{{job="{n}"}}' for n in range(100)]
    script.values = {text: [str(n)] for n, text in enumerate(texts)}
    with client_of(script.url) as client:
        for number in range(3):
            before = len(script.seen)
            found = client.read([query(text) for text in texts])
            assert [found[query(text)].value for text in texts] == list(range(100))
            assert len(script.seen) - before == (103 if number == 0 else 5)
    assert script.connections <= WORKERS + 1, "one asks since when Prometheus has run"


def test_query_that_spoils_a_union_harms_no_other_one(
    script: ScriptedPrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused, with a warning, and a scalar all of a sudden: each part is asked again by itself."""
    monkeypatch.setattr(evaluation, "PATIENCE_S", patience_s(20.0))  # No part is asked singly.
    script.values = {f"x{n}": ["5"] for n in range(5)}
    queries = [query(text) for text in script.values]
    with client_of(script.url) as client:
        client.read(queries)
        for spoil, expected in (
            (script.refused.add, HoldReason.REFUSED),
            (script.warned.add, HoldReason.WARNING),
        ):
            spoil("x3")
            for _ in range(2):
                found = client.read(queries)
                assert [found[each].value for each in queries] == [5.0, 5.0, 5.0, None, 5.0]
                assert found[queries[3]].why == expected
            script.refused.clear()
        assert any("x4" in each and "x2" in each for each in script.expressions[-6:])


def test_one_slow_query_costs_no_other_one_its_answer(script: ScriptedPrometheus) -> None:
    """Not even as part of a union that it was fast enough for before."""
    script.values = {f"x{n}": ["5"] for n in range(12)}
    queries = [query(text) for text in script.values]
    with client_of(script.url, timeout_s=patience_s(5.0)) as client:
        client.read(queries)
        script.slow = {"x3"}
        found = client.read(queries)
        assert [n for n in range(12) if found[queries[n]].value is None] == [3]
        assert found[queries[3]].why == HoldReason.UNREACHABLE


@pytest.mark.parametrize("count", [1, 12])
def test_readings_wait_for_no_query_that_hangs(script: ScriptedPrometheus, count: int) -> None:
    """Nor for more of them than there are threads: the others come first, the time is a minute."""
    script.slow = {f"slow{n}" for n in range(count)}
    script.values = {"x": ["5"], "y": ["6"]}
    queries = [query(text) for text in (*sorted(script.slow), *script.values)]
    with client_of(script.url) as client:
        found: dict[str, float | None] = {}
        with closing(client.readings(queries)) as arrivals:
            while not {"x", "y"} <= found.keys():
                found |= {each.text: reading.value for each, reading in next(arrivals).items()}
        assert found == {"x": 5.0, "y": 6.0}
        assert client._known.slow == set(), "nobody waited for it long enough to know"


def test_parts_of_a_union_wait_for_no_other_part(script: ScriptedPrometheus) -> None:
    """One that was fast until now hangs: the others are asked by themselves in the meantime."""
    script.values = {f"x{n}": ["5"] for n in range(12)}
    queries = [query(text) for text in script.values]
    with client_of(script.url) as client:
        client.read(queries)
        script.slow = {"x3"}
        found: dict[Query, QueryReading] = {}
        with closing(client.readings(queries)) as arrivals:
            while len(found) < 11:
                found |= next(arrivals)
        assert queries[3] not in found
        assert {reading.value for reading in found.values()} == {5.0}


def test_slow_ones_come_last_the_next_time(script: ScriptedPrometheus) -> None:
    """More of them than there are threads: the others have their answers before."""
    slow = {f"slow{n}" for n in range(9)}
    script.values = {"x": ["5"]} | {text: ["5"] for text in slow}
    script.slow = slow
    queries = [query(text) for text in (*sorted(slow), "x")]
    with client_of(script.url, timeout_s=SHORT_S) as client:
        first = client.read(queries)
        assert [each for each in first.values() if each.value is not None] == []
        # They hold all threads again, but only once it has been asked.
        wait_until(lambda: client.read(queries)[query("x")].value == 5.0)


def raw(content: bytes) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    """Send these bytes, and hang up."""

    def fault(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.wfile.write(content)
        handler.close_connection = True

    return fault


def head(status: str, length: int, more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{more}\r\n".encode()


WHOLE = vector_of("5")


@pytest.mark.parametrize(
    ("content", "expected", "says"),
    [
        (head("200 OK", len(WHOLE)) + WHOLE[:-3], HoldReason.UNREACHABLE, "broke off"),
        (head("200 OK", len(WHOLE) - 3) + WHOLE[:-3], HoldReason.UNREACHABLE, "not as Prometheus"),
        (b"", HoldReason.UNREACHABLE, "broke off"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", HoldReason.UNREACHABLE, "does not answer"),
        (head("200 OK", 6) + b"<html>", HoldReason.UNREACHABLE, "<html>"),
        (head("204 No Content", 0), HoldReason.UNREACHABLE, "HTTP 204"),
        (head("500 Oops", 2) + b"{}", HoldReason.UNREACHABLE, "HTTP 500"),
        (head("404 Not Found", 2) + b"no", HoldReason.REFUSED, "HTTP 404"),
        (head("401 Unauthorized", 2) + b"no", HoldReason.REFUSED, "HTTP 401"),
        (head("403 Forbidden", 2) + b"no", HoldReason.REFUSED, "does not take what it was shown"),
        (
            head("302 Found", 0, "Location: https://u:p@else.example/login?token=t\r\n"),
            HoldReason.REFUSED,
            "redirects to https://else.example/login: give",
        ),
        (head("307 Again", 0, "Location: /x\r\n"), HoldReason.REFUSED, "redirects to /x"),
        (head("308 Again", 0), HoldReason.REFUSED, "redirects to nowhere"),
        (
            head("200 OK", len(WHOLE), "Content-Encoding: gzip\r\n") + WHOLE,
            HoldReason.UNREACHABLE,
            "packs its answers",
        ),
        (head("200 OK", 10 << 20) + b" " * (5 << 20), HoldReason.MANY_SERIES, "more than 4 MiB"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}",
            HoldReason.UNREACHABLE,
            "broke off",
        ),
    ],
)
def test_answer_that_is_none_has_a_reason(
    script: ScriptedPrometheus, content: bytes, expected: HoldReason, says: str
) -> None:
    """Cut off, too long, of somebody else, or leading elsewhere: no number, and no exception."""
    script.fault = raw(content)
    with client_of(script.url) as client:
        told, detail = why(client)
        assert told == expected and says in detail
        script.fault, script.values = None, {"x": ["5"]}
        assert client.read([query("x")])[query("x")].value == 5.0


def test_redirect_is_followed_nowhere(script: ScriptedPrometheus, tmp_path: Path) -> None:
    """The other host would see the token."""
    (tmp_path / "token").write_text("s3cret\n")
    with scripted_prometheus() as other:
        location = f"Location: {other.url}/api/v1/query\r\n"
        script.fault = raw(head("307 Temporary Redirect", 0, location))
        with client_of(script.url, bearer_token_file=str(tmp_path / "token")) as client:
            assert why(client)[0] == HoldReason.REFUSED
        assert other.seen == []


@pytest.mark.parametrize("drip", [b"", b"H", head("200 OK", 1000) + b"{"])
def test_server_that_never_ends_is_left_in_time(script: ScriptedPrometheus, drip: bytes) -> None:
    """Silent from the first byte, within the head, and within the body, each byte in good time."""

    def fault(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.wfile.write(drip)
        handler.wfile.flush()
        while drip and not script.is_over.wait(SHORT_S / 10):
            handler.wfile.write(b"x")
            handler.wfile.flush()
        script.is_over.wait()

    script.fault = fault
    with client_of(script.url, timeout_s=SHORT_S) as client:
        began_s = time.monotonic()
        told, detail = why(client)
        assert told == HoldReason.UNREACHABLE and "in time" in detail
        assert time.monotonic() - began_s < LONG_S
        for thread in client._known.threads:
            thread.join(LONG_S)  # Broken off, although the server goes on.
            assert not thread.is_alive()


def test_nobody_at_the_address_is_unreachable() -> None:
    """With the address, and in the words of the machine."""
    url = f"http://127.0.0.1:{free_port()}"
    with client_of(url) as client:
        told, detail = why(client)
    assert told == HoldReason.UNREACHABLE
    assert detail == f"{url} does not answer: Connection refused."


def test_name_that_nobody_knows_is_unreachable() -> None:
    with client_of("http://no-such-host.invalid:9090") as client:
        told, detail = why(client)
    assert (
        told == HoldReason.UNREACHABLE and "no-such-host.invalid" in detail and "0x" not in detail
    )


def test_kept_connection_that_was_ended_is_replaced(script: ScriptedPrometheus) -> None:
    """A Prometheus that restarted has ended all of them."""
    script.values = {"x": ["5"]}
    with client_of(script.url) as client:
        client.read([query("x")])
        with scripted_prometheus():
            for connection in list(client._session._pool.pool.queue):  # type: ignore[union-attr]
                if connection is not None and connection.sock is not None:
                    connection.sock.shutdown(2)
        assert client.read([query("x")])[query("x")].value == 5.0


def test_clock_of_prometheus_that_went_back_is_seen(script: ScriptedPrometheus) -> None:
    """Wrong by years from ours is fine; ten minutes behind itself is not."""
    script.values = {"x": ["5"]}
    with client_of(script.url) as client:
        assert client.read([query("x")])[query("x")].value == 5.0
        script.now_s -= 600
        told, detail = why(client)
        assert told == HoldReason.STALE and "went back by 600 s" in detail
        script.now_s += 615
        assert client.read([query("x")])[query("x")].value == 5.0


def test_bug_of_ours_holds_one_query_and_says_nothing_of_secrets(
    script: ScriptedPrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread dies of it, and nobody waits for the end of the time."""
    script.values = {"x": ["5"], "y": ["6"]}
    with client_of(script.url) as client:
        session = client._session
        ask = session.ask

        def broken(path: str, fields: Mapping[str, str], call: Call) -> QueryAnswer | QueryFailure:
            if fields["query"] == "x":
                raise AttributeError("Bearer hunter2")
            return ask(path, fields, call)

        monkeypatch.setattr(session, "ask", broken)
        found = client.read([query("x"), query("y")])
        assert found[query("y")].value == 6.0
        assert found[query("x")].why == HoldReason.UNREACHABLE
        assert found[query("x")].detail == "This is a bug of elasticd: AttributeError."


def test_machine_without_threads_has_no_numbers(
    script: ScriptedPrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no exception either, that would end the autoscaler."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with client_of(script.url, timeout_s=SHORT_S) as client:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        assert why(client)[0] == HoldReason.UNREACHABLE


def test_no_queries_ask_nobody() -> None:
    with client_of("http://127.0.0.1:1") as client:
        assert client.read([]) == {}


# --- check and past ---------------------------------------------------------------------------


def test_check_shows_prometheus_own_words(script: ScriptedPrometheus) -> None:
    script.refused = {"bad("}
    with client_of(script.url) as client:
        with pytest.raises(CallError, match=r"m: bad\( is refused. Prometheus says: invalid para"):
            client.check(query("bad("))
        assert client.check(query("none")).why == HoldReason.EMPTY
        script.values = {"x": ["5"]}
        assert client.check(query("x")).value == 5.0


def test_check_tells_what_can_never_be_a_number_and_what_does_not_answer(
    script: ScriptedPrometheus,
) -> None:
    body = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'
    script.fault = raw(head("200 OK", len(body)) + body)
    with client_of(script.url) as client:
        with pytest.raises(CallError, match="is a matrix, not one number"):
            client.check(query("x[5m]"))
        script.fault = raw(b"")
        with pytest.raises(Unavailable, match="m cannot be checked"):
            client.check(query("x"))


def test_past_is_asked_by_prometheus_own_clock(script: ScriptedPrometheus) -> None:
    """Points that are no finite number are gaps."""
    script.scalars = {"time()": str(script.now_s)}
    body = (
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":'
        b'[[999940,"1"],[999955,"NaN"],[999970,"+Inf"],[1000000,"3"]]}]}}'
    )

    def fault(handler: http.server.BaseHTTPRequestHandler) -> None:
        if "range" in handler.path:
            raw(head("200 OK", len(body)) + body)(handler)
        else:
            clock = b'{"status":"success","data":{"resultType":"scalar","result":[1000000,"1"]}}'
            raw(head("200 OK", len(clock)) + clock)(handler)

    script.fault = fault
    with client_of(script.url) as client:
        points = client.past("x", 60.0, 15.0)
        assert [(point.ago_s, point.value) for point in points] == [(60.0, 1.0), (0.0, 3.0)]
        fields = script.seen[-1].fields
        assert (fields["start"], fields["end"], fields["step"]) == (
            "999940.000",
            "1000000.000",
            "15.000",
        )
        client.past("x", 60.0, 15.0, 600.0)
        fields = script.seen[-1].fields
        assert (fields["start"], fields["end"]) == ("999340.000", "999400.000")
        with pytest.raises(CallError, match="more points"):
            client.past("x", 1e9, 1.0)
        script.fault = raw(b"")
        with pytest.raises(Unavailable):
            client.past("x", 60.0, 15.0)

"""What a supervisor hears: whether the agent lives, and whether it can take part."""

from http import HTTPStatus

from elasticd_agent.http_server.listener import HttpListener
from elasticd_agent.http_server.probes import BUSY_LIMIT_S, Probes
from elasticd_agent.http_server.server import HttpServer
from tests.fixtures.http_server import ask


def test_agent_that_waits_or_works_lives() -> None:
    """Up to the limit; the body is what `elasticd status` has always read."""
    for busy_s in (0.0, BUSY_LIMIT_S):
        answer = Probes(busy_s=lambda at=busy_s: at)("/healthz", "")  # type: ignore[misc]
        assert answer is not None
        assert (answer.status, answer.body) == (HTTPStatus.OK, b"ok\n")


def test_agent_whose_owner_stands_still_does_not_live() -> None:
    """A disk that hangs: it is told long before the lease goes."""
    assert BUSY_LIMIT_S == 5.0
    answer = Probes(busy_s=lambda: BUSY_LIMIT_S + 2, trouble=lambda: "full")("/healthz", "")
    assert answer is not None
    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert b"at one thing for 7 s" in answer.body


def test_what_etcd_refuses_is_told_and_ends_nobody() -> None:
    """A supervisor that restarted the agent for it would end its workers."""
    answer = Probes(trouble=lambda: "etcd is full.")("/healthz", "")
    assert answer is not None
    assert answer.status == HTTPStatus.OK
    assert answer.body.startswith(b"ok\n") and b"etcd is full." in answer.body


def test_node_without_a_lease_is_not_ready() -> None:
    """Before it is registered, and while etcd is away; it lives all the same."""
    has_lease = [False]
    server = HttpServer(HttpListener("127.0.0.1"), (Probes(is_ready=lambda: has_lease[0]),))
    try:
        assert ask(server.port, "/readyz")[0] == 503
        assert ask(server.port, "/healthz")[0] == 200
        has_lease[0] = True
        assert ask(server.port, "/readyz")[:2] == (200, b"ok\n")
    finally:
        server.close()


def test_node_that_waits_for_the_state_of_a_job_is_not_ready() -> None:
    """It says why, and lives."""
    probes = Probes(why_not_ready=lambda: "Job 'a' is awaited.")
    ready, health = probes("/readyz", ""), probes("/healthz", "")
    assert ready is not None and health is not None
    assert (ready.status, ready.body) == (
        HTTPStatus.SERVICE_UNAVAILABLE,
        b"Job 'a' is awaited.\n",
    )
    assert health.status == HTTPStatus.OK


def test_anything_else_is_not_there_for_who_has_no_certificate() -> None:
    """The plain port answers two questions, and nothing of the logs or the metrics."""
    server = HttpServer(HttpListener("127.0.0.1"), (Probes(),))
    try:
        for path in ("/", "/metrics", "/sd", "/v1/logs/job/1/0/out", "/healthz/", "/readyz/x"):
            assert ask(server.port, path)[0] == 404, path
    finally:
        server.close()

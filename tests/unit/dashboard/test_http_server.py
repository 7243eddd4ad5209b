"""What a browser is served, and what not."""

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import pytest

from elasticd.dashboard import http_server as module
from elasticd.dashboard.action import ActionRequest, ScaleRequest, StopRequest, UndrainRequest
from elasticd.dashboard.collector import Collector
from elasticd.dashboard.http_server import DashboardServer
from elasticd.errors import EnvironmentProblem, NotFound
from elasticd.records.account.late import LateNode
from elasticd.records.ids import NodeId
from elasticd.records.reason import Phase, Reason
from elasticd.store.memory import MemoryStore
from tests.fixtures.cluster import until
from tests.fixtures.open_files import more_files
from tests.fixtures.patience import patience_s
from tests.unit.dashboard.records_case import (
    BEGAN_S,
    JOB,
    SAY,
    be_late,
    change_world,
    filled,
    opened,
)

TOKEN = "a-token-of-some-length"
PATIENCE_S = patience_s(30.0)
PAGES = 200
Page = tuple[http.client.HTTPConnection, http.client.HTTPResponse]


@contextmanager
def served(
    store: MemoryStore, token: str = "", act: Callable[[ActionRequest], str] | None = None
) -> Iterator[DashboardServer]:
    collector = Collector(lambda: opened(store), lambda: (), SAY)
    try:
        assert collector.newer_than(0, PATIENCE_S) is not None, "nothing was read"
        server = DashboardServer("127.0.0.1", 0, collector, token, act)
        try:
            yield server
        finally:
            server.close()
    finally:
        collector.close()


def get(server: DashboardServer, path: str, **headers: str) -> tuple[int, Any, bytes]:
    port = int(server.url.rstrip("/").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    try:
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_state_has_the_lists_and_the_job() -> None:
    """All that the page shows, as JSON."""
    with served(filled()) as server:
        status, _, body = get(server, f"/api/state?job={JOB}")
        told = json.loads(body)
        assert status == 200
        assert [row["job"] for row in told["jobs"]] == [JOB]
        assert [row["node"] for row in told["nodes"]] == ["node-0", "node-1"]
        assert [change["generation"] for change in told["changes"]] == [1, 2, 3]
        assert told["changes"][1]["members"] == ["node-0"]
        assert told["changes"][1]["culprit"]["where"] == "/x/train.py:12"
        assert json.loads(get(server, "/api/state?job=other")[2])["job"] is None


def test_late_node_is_told_with_its_job_and_its_node() -> None:
    """As long as the job goes on; then it was late."""
    store = filled()
    late = LateNode(node=NodeId("node-1"), ratio=0.34, cost_nodes=0.8, since_unix_s=BEGAN_S)
    be_late(store, replace(late, until_unix_s=BEGAN_S + 9.0), late)
    with served(store) as server:
        told = json.loads(get(server, f"/api/state?job={JOB}")[2])
        assert [(each["node"], each["is_now"]) for each in told["job"]["late"]] == [
            ("node-1", False),
            ("node-1", True),
        ]
        assert told["job"]["late"][1]["sentence"] == "node-1 is late by 0.34"
        assert [node["late"] for node in told["nodes"]] == [None, 0.34]
    store = filled(Phase.SUCCEEDED)
    be_late(store, late)
    with served(store) as server:
        told = json.loads(get(server, f"/api/state?job={JOB}")[2])
        assert told["job"]["late"][0]["sentence"] == "node-1 was late by 0.34"
        assert [node["late"] for node in told["nodes"]] == [None, None]


def test_page_and_nothing_else_is_served() -> None:
    """With a policy; other paths and names are refused in a sentence."""
    with served(filled()) as server:
        status, headers, body = get(server, "/")
        assert status == 200 and b"<title>elasticd</title>" in body
        assert "script-src 'sha256-" in headers["Content-Security-Policy"]
        assert get(server, "/etc/passwd")[0] == 404
        assert get(server, "/api/state?job=%00&job=" + "x" * 9_000)[0] == 200
        assert get(server, "/api/state", Host="evil.example:80")[0] == 403
        assert get(server, "/api/state", Host="localhost:80")[0] == 200
        assert get(server, "x://[")[0] == 400


def test_events_tell_what_changes_while_it_is_looked_at() -> None:
    """First all, then a new generation, alone."""
    store = filled()
    with served(store) as server:
        port = int(server.url.rstrip("/").rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request("GET", f"/api/events?job={JOB}")
        lines = connection.getresponse()
        first = _next(lines)
        assert [change["generation"] for change in first["changes"]] == [1, 2, 3]
        change_world(store, 4, Reason.NODE_LOST, ("node-0",), 120.0)
        told: dict[str, Any] = {}
        while "changes" not in told:
            told = _next(lines)
        assert [change["generation"] for change in told["changes"]] == [4]
        assert told["generations"] == [1, 2, 3, 4]
        connection.close()


def test_two_hundred_pages_are_told_though_half_of_them_hang_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is told what changes; those that have gone leave their places to others."""
    monkeypatch.setattr(module, "QUIET_S", 0.1)
    store = filled()
    with more_files(), served(store) as server:
        pages = [_page(server) for _ in range(PAGES)]
        firsts = [_next(lines) for _, lines in pages]
        assert all(len(first["changes"]) == 3 for first in firsts)
        for connection, lines in pages[::2]:
            lines.close()
            connection.close()
        change_world(store, 4, Reason.NODE_LOST, ("node-0",), 120.0)
        assert {_next_change(lines) for _, lines in pages[1::2]} == {4}
        # With those that have gone they would be more than there is room for.
        others: list[Page] = []
        until(lambda: _are_open(server, others, PAGES // 2), lambda: len(others))
        assert all(len(_next(lines)["changes"]) == 4 for _, lines in others)
        for connection, _ in (*pages[1::2], *others):
            connection.close()


def _are_open(server: DashboardServer, pages: list[Page], count: int) -> bool:
    """Open pages up to so many, as long as there is room."""
    while len(pages) < count:
        connection, lines = _page(server)
        if lines.status == HTTPStatus.SERVICE_UNAVAILABLE:
            connection.close()
            return False
        pages.append((connection, lines))
    return True


def _page(server: DashboardServer) -> Page:
    port = int(server.url.rstrip("/").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", f"/api/events?job={JOB}")
    return connection, connection.getresponse()


def _next_change(lines: http.client.HTTPResponse) -> int:
    told: dict[str, Any] = {}
    while "changes" not in told:
        told = _next(lines)
    (change,) = told["changes"]
    return int(change["generation"])


def _next(lines: http.client.HTTPResponse) -> Any:
    while True:
        line = lines.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: "):
            return json.loads(line.removeprefix(b"data: "))


def test_with_a_token_data_wants_it() -> None:
    """The page itself has no secret: it asks for the token."""
    with served(filled(), token=TOKEN) as server:
        assert get(server, "/", Host="gpu-1:80")[0] == 200
        assert get(server, "/api/state")[0] == 401
        assert get(server, "/api/events", Authorization="Bearer other")[0] == 401
        assert get(server, "/api/state", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_port_that_is_taken_and_address_that_is_not_here_are_told() -> None:
    """In a sentence that says what to give instead."""
    with served(filled()) as server:
        port = int(server.url.rstrip("/").rpartition(":")[2])
        for host, number in (("127.0.0.1", port), ("192.0.2.1", 0), ("no.such.host.invalid", 0)):
            with pytest.raises(EnvironmentProblem, match="--host, and a free port with --port"):
                DashboardServer(host, number, server._collector)


def test_action_is_carried_out_for_who_has_the_token() -> None:
    """And what is wrong with it is told, also by the one that carries it out."""
    acted: list[ActionRequest] = []

    def act(action: ActionRequest) -> str:
        acted.append(action)
        if isinstance(action, StopRequest):
            raise NotFound("There is no job 'x'.")
        if isinstance(action, UndrainRequest):
            raise ValueError("ouch")
        return "job j is wanted on 3 nodes"

    body = b'{"action": "scale", "job": "j", "nodes": 3}'
    with served(filled(), token=TOKEN, act=act) as server:
        assert json.loads(get(server, "/api/state", **BEARER)[2])["can_act"] is True
        assert post(server, body) == (200, {"message": "job j is wanted on 3 nodes"})
        assert acted == [ScaleRequest(job="j", nodes=3)]
        status, told = post(server, b'{"action": "rm"}')
        assert status == 400 and "no action 'rm'" in told["message"]
        assert post(server, b'{"action": "stop", "job": "x"}') == (
            404,
            {"message": "There is no job 'x'."},
        )
        assert post(server, b'{"action": "undrain", "node": "a"}') == (
            500,
            {"message": "This is a bug of elasticd: ValueError: ouch"},
        )
        del acted[:]
        assert post(server, body, path="/api/other")[0] == 404
        assert post(server, body, Authorization="Bearer other")[0] == 401
        assert post(server, body, path=f"/api/actions?token={TOKEN}", Authorization="")[0] == 401
        assert post(server, body, Origin="http://evil.example")[0] == 403
        assert post(server, b" " * 5000)[0] == 413
        assert get(server, "/api/actions", **BEARER)[0] == 404
    assert acted == []


def test_nothing_can_be_changed_unless_that_was_allowed() -> None:
    """With the token neither; the page is told, and shows no buttons."""
    with served(filled(), token=TOKEN) as server:
        assert json.loads(get(server, "/api/state", **BEARER)[2])["can_act"] is False
        status, told = post(server, b'{"action": "stop", "job": "j"}')
        assert status == 403 and "--allow-actions" in told["message"]
    with served(filled(), act=lambda action: "done") as server:
        assert post(server, b'{"action": "stop", "job": "j"}')[0] == 403


BEARER = {"Authorization": f"Bearer {TOKEN}"}


def post(
    server: DashboardServer, body: bytes, path: str = "/api/actions", **headers: str
) -> tuple[int, Any]:
    """Return the status and what was told."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=PATIENCE_S)
    given = {"Content-Type": "application/json", **BEARER, **headers}
    connection.request("POST", path, body=body, headers=given)
    answer = connection.getresponse()
    try:
        told = answer.read().decode()
        return answer.status, json.loads(told) if told.startswith("{") else {"message": told}
    finally:
        connection.close()


def test_archive_is_read_once_and_said_to_be_one() -> None:
    """A run that is over does not change."""
    store = filled()
    collector = Collector(lambda: opened(store, is_archive=True), lambda: (), SAY)
    try:
        board = collector.newer_than(0, PATIENCE_S)
        assert board is not None
        assert board.jobs[0]["is_archive"] is True and len(board.pages[JOB].changes) == 3
    finally:
        collector.close()

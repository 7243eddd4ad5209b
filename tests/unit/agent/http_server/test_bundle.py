"""What an agent gives for a bundle: a closed list, without secrets, by the rules of the logs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from elasticd.bundle.agent_client import AgentClient
from elasticd.control.logs.output import HttpFetch
from elasticd.records.ids import JobName
from elasticd_agent.http_server.bundle import BundleFiles
from elasticd_agent.http_server.listener import HttpListener
from elasticd_agent.http_server.server import HttpServer
from tests.fixtures.http_server import ask, tls_files
from tests.unit.control.world_case import node

JOB = JobName("j")
LINES = ["one", "two canary-etcd", "three canary-env"]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / JOB / "gen-1"
    folder.mkdir(parents=True)
    (folder / "rank-0.out").write_text("canary-env is what WANDB printed\n")
    (folder / "model.pt").write_text("private")
    (tmp_path / "runs" / "private").write_text("private")
    return tmp_path / "runs"


def route(runs: Path) -> BundleFiles:
    return BundleFiles(
        runs,
        {JobName("elsewhere"): runs.parent / "other"},
        log_lines=lambda: LINES,
        password="canary-etcd",
        environ={"WANDB_API_KEY": "canary-env"},
    )


@pytest.fixture
def server(runs: Path) -> Iterator[HttpServer]:
    opened = HttpServer(HttpListener("127.0.0.1"), (route(runs),))
    yield opened
    opened.close()


def test_files_are_listed_and_given_without_what_the_node_knows_to_be_secret(
    server: HttpServer,
) -> None:
    """Who asks does not know this node's environment."""
    client = AgentClient(node("a", server.port), JOB, None)
    found = client.list()
    assert found is not None and [file.name for file in found] == ["gen-1/rank-0.out"]
    assert client.end("gen-1/rank-0.out", 1 << 20) == b"***WANDB_API_KEY*** is what WANDB printed\n"
    assert client.log() == b"one\ntwo ***etcd-password***\nthree ***WANDB_API_KEY***\n"
    assert json.loads(client.versions() or b"")["elasticd"]
    assert client.metrics() is None  # This server has none.
    assert not client.is_silent
    client.close()


def test_a_job_with_a_run_folder_of_its_own_is_found_there(server: HttpServer, runs: Path) -> None:
    place = runs.parent / "other" / "elsewhere" / "gen-1"
    place.mkdir(parents=True)
    (place / "rank-3.err").write_text("x")
    client = AgentClient(node("a", server.port), JobName("elsewhere"), None)
    assert [file.name for file in client.list() or []] == ["gen-1/rank-3.err"]
    client.close()


@pytest.mark.parametrize(
    "path",
    [
        "jobs/j/gen-1/model.pt",
        "jobs/j/../private",
        "jobs/j/gen-1/../../private",
        "jobs/../private",
        "jobs/..%2fprivate",
        "jobs/j/%2e%2e/private",
        "jobs/j/gen-1/rank-9.out",
        "jobs/j/",
        "jobs/",
        "jobs",
        "",
        "agent.log/x",
        "etcd-password",
    ],
)
def test_anything_else_is_not_there(server: HttpServer, path: str) -> None:
    """Nothing of the run folder but the forms of the list, and nothing beside it."""
    status, body, _ = ask(server.port, f"/v1/bundle/{path}")
    assert (status, b"private" in body) == (404, False)


def test_a_limit_that_is_none_is_that_of_the_file(server: HttpServer) -> None:
    """Whatever is asked for, an answer is bounded."""
    for text in ("x", "-5", "99999999999999", ""):
        status, body, _ = ask(server.port, f"/v1/bundle/jobs/j/gen-1/rank-0.out?bytes={text}")
        assert (status, body.endswith(b"printed\n")) == (200, True)


def test_with_certificates_only_that_authoritys_clients_are_served(
    runs: Path, tmp_path: Path
) -> None:
    """As with the logs; a stranger is silence to us."""
    authority = trustme.CA()
    server = HttpServer(
        HttpListener("127.0.0.1", tls_files(tmp_path / "n", authority, "node")), (route(runs),)
    )
    there = node("a", server.port)
    try:
        known = AgentClient(there, JOB, tls_files(tmp_path / "user", authority, "user"))
        assert known.list()
        for settings in (None, tls_files(tmp_path / "stranger", trustme.CA(), "user")):
            stranger = AgentClient(there, JOB, settings)
            assert stranger.list() is None and stranger.is_silent
    finally:
        server.close()


def test_nobody_is_asked_twice_who_did_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person waits for one time-out, whatever the number of questions."""
    client = AgentClient(node("a", 1), JOB, None)
    assert client.log() is None and client.is_silent
    asked: list[object] = []

    def answer(*args: object) -> None:
        asked.append(args)

    monkeypatch.setattr(HttpFetch, "answer", answer)
    assert client.list() is None and client.metrics() is None
    assert asked == []


def test_an_older_agent_gives_nothing_and_that_is_an_answer() -> None:
    """It is not silent: its metrics are still asked for."""
    server = HttpServer(HttpListener("127.0.0.1"), ())
    client = AgentClient(node("a", server.port), JOB, None)
    try:
        assert client.list() is None and not client.is_silent
    finally:
        client.close()
        server.close()

"""The HTTP server and the logs: what it gives, and all that it does not."""

import http.client
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from elasticd.control.logs.console import OUT
from elasticd.control.logs.output import HttpFetch, LogName
from elasticd.errors import EnvironmentProblem
from elasticd.records.ids import Generation, JobName, Rank
from elasticd_agent.http_server.answer import HttpAnswer
from elasticd_agent.http_server.listener import HttpListener
from elasticd_agent.http_server.logs import ANSWER_LIMIT_BYTES
from elasticd_agent.http_server.server import HttpServer
from tests.fixtures.http_server import ask, log_server, tls_files
from tests.fixtures.patience import patience_s
from tests.fixtures.ports import free_port
from tests.unit.control.world_case import node

LOG = "/v1/logs/job/3/0/out"


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "job" / "gen-3"
    folder.mkdir(parents=True)
    (folder / "rank-0.out").write_text("hello")
    (tmp_path / "runs" / "secret").write_text("secret")
    (tmp_path / "secret").write_text("secret")
    return tmp_path / "runs"


@pytest.fixture
def server(run_folder: Path) -> Iterator[HttpServer]:
    opened = log_server(run_folder)
    yield opened
    opened.close()


def get(server: HttpServer, path: str) -> tuple[int, bytes, str | None]:
    status, body, headers = ask(server.port, path)
    return status, body, headers.get("X-Elasticd-Size")


def test_a_log_is_given_from_an_offset_with_its_size(server: HttpServer) -> None:
    """An offset behind the end is no error: the file may grow."""
    assert get(server, LOG) == (200, b"hello", "5")
    assert get(server, f"{LOG}?offset=3") == (200, b"lo", "5")
    assert get(server, f"{LOG}?offset=99") == (200, b"", "5")


def test_times_of_a_log_are_given_too(server: HttpServer, run_folder: Path) -> None:
    """What the agent noted beside both streams."""
    (run_folder / "job" / "gen-3" / "rank-0.times").write_text("1000 5 0\n")
    assert get(server, LOG.replace("out", "times")) == (200, b"1000 5 0\n", "9")


def test_an_answer_is_bounded(server: HttpServer, run_folder: Path) -> None:
    """A log of 100 GB must not become memory."""
    (run_folder / "job" / "gen-3" / "rank-0.out").write_bytes(b"x" * (ANSWER_LIMIT_BYTES + 1))
    status, body, size = get(server, LOG)
    assert (status, len(body), size) == (200, ANSWER_LIMIT_BYTES, str(ANSWER_LIMIT_BYTES + 1))


@pytest.mark.parametrize(
    "path",
    [
        "/v1/logs/job/3/1/out",
        "/v1/logs/../3/0/out",
        "/v1/logs/..%2f/3/0/out",
        "/v1/logs/job/../0/out",
        "/v1/logs/job/3/../out",
        "/v1/logs/job/3/0/../../../secret",
        "/v1/logs/job/3/0/txt",
        "/v1/logs/job/-3/0/out",
        "/v1/logs/job/3/0/out/",
        "/v1/logs/job/3/0/out?offset=-1",
        "/v1/logs/job/3/0/out?offset=x",
        "/v1/logs/job/3/9999999999999999999999/out",
        "/secret",
        "/",
        "//etc/passwd",
    ],
)
def test_anything_else_is_not_there(server: HttpServer, path: str) -> None:
    """No way out of the run folder, and nothing in it but logs."""
    status, body, _ = get(server, path)
    assert (status, b"secret" in body) == (404, False)


def test_a_link_out_of_the_run_folder_is_not_followed(server: HttpServer, run_folder: Path) -> None:
    """A worker may have put it there."""
    (run_folder / "job" / "gen-3" / "rank-5.out").symlink_to(run_folder.parent / "secret")
    assert get(server, "/v1/logs/job/3/5/out")[0] == 404


def test_what_is_no_file_is_not_waited_for(server: HttpServer, run_folder: Path) -> None:
    """A worker may have put it there: a pipe that nobody writes to would take a thread for ever."""
    os.mkfifo(run_folder / "job" / "gen-3" / "rank-6.out")
    (run_folder / "job" / "gen-3" / "rank-7.out").mkdir()
    assert [get(server, f"/v1/logs/job/3/{rank}/out")[0] for rank in (6, 7)] == [404, 404]


def test_only_get_is_answered(server: HttpServer) -> None:
    """There is nothing to write."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=patience_s(30.0))
    connection.request("POST", LOG, body=b"x")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")
    connection.close()


def test_a_closed_server_listens_no_more(run_folder: Path) -> None:
    """Nothing is left holding a port."""
    server = log_server(run_folder)
    server.close()
    with pytest.raises(OSError, match="refused"):
        get(server, "/healthz")


def test_an_address_of_another_machine_is_refused_with_what_to_do(run_folder: Path) -> None:
    """A wrong --local-addr."""
    with pytest.raises(EnvironmentProblem, match="--local-addr"):
        log_server(run_folder, address="203.0.113.1")


def test_with_certificates_only_that_authoritys_clients_are_served(
    run_folder: Path, tmp_path: Path
) -> None:
    """The same that guards etcd; a stranger and a client without TLS get nothing."""
    authority = trustme.CA()
    server = log_server(run_folder, tls_files(tmp_path / "node", authority, "node-1"))
    there = node("a", server.port)
    name = LogName(job=JobName("job"), generation=Generation(3), rank=Rank(0), stream=OUT)
    try:
        assert (
            HttpFetch(tls_files(tmp_path / "user", authority, "user"))(there, name, 0) == b"hello"
        )
        assert (
            HttpFetch(tls_files(tmp_path / "stranger", trustme.CA(), "user"))(there, name, 0)
            is None
        )
        with pytest.raises((OSError, http.client.HTTPException)):
            get(server, LOG)
        trusting = ssl.create_default_context(cafile=str(tmp_path / "node" / "ca"))
        trusting.check_hostname = False
        nameless = HttpFetch()
        nameless._context = trusting  # trusts the server, has no certificate of its own
        assert nameless(there, name, 0) is None
    finally:
        server.close()


def test_health_tells_what_etcd_refuses_to_take(run_folder: Path) -> None:
    """And stays well: a supervisor that restarted the agent for it would end its workers."""
    told = [""]
    server = log_server(run_folder, trouble=lambda: told[0])
    fetch = HttpFetch()
    try:
        assert get(server, "/healthz")[:2] == (200, b"ok\n")
        assert fetch.trouble(node("a", server.port)) == ""
        told[0] = "etcd at http://e is full."
        assert get(server, "/healthz")[0] == 200
        assert fetch.trouble(node("a", server.port)) == told[0]
        assert fetch.trouble(node("a")) == ""
    finally:
        fetch.close()
        server.close()


def test_logs_of_a_job_with_a_folder_of_its_own_are_given(run_folder: Path, tmp_path: Path) -> None:
    """`elasticd run --log-dir` with daemons: each node writes there, and reads from there."""
    own = tmp_path / "own" / "job" / "gen-3"
    own.mkdir(parents=True)
    (own / "rank-0.out").write_text("from there")
    (own / "rank-1.out").symlink_to(run_folder / "job" / "gen-3" / "rank-0.out")
    folders: dict[JobName, Path] = {}
    server = log_server(run_folder, folders=folders)
    assert get(server, LOG)[1] == b"hello"
    folders[JobName("job")] = tmp_path / "own"
    assert get(server, LOG)[1] == b"from there"
    assert get(server, "/v1/logs/job/3/1/out")[0] == 404
    server.close()


def test_port_is_the_one_that_was_chosen_also_at_once_after_a_restart(run_folder: Path) -> None:
    """`--http-port`: Prometheus and firewalls know it."""
    first = log_server(run_folder, port=(port := free_port()))
    assert first.port == port
    with socket.create_connection(("127.0.0.1", port), timeout=patience_s(30.0)) as client:
        client.sendall(f"GET {LOG} HTTP/1.0\r\n\r\n".encode())
        while client.recv(65536):
            pass  # The server hangs up first: its kernel remembers the connection for a minute.
    first.close()
    second = HttpServer(HttpListener("127.0.0.1", port=port), ())
    assert (second.port, ask(port, "/")[0]) == (port, 404)
    second.close()


@pytest.mark.parametrize("flag", ["--http-port", "--probe-port"])
def test_port_that_is_taken_is_refused_with_what_to_do(run_folder: Path, flag: str) -> None:
    """By another program, or by an agent that is still there."""
    there = log_server(run_folder)
    with pytest.raises(EnvironmentProblem, match=f"Port {there.port} .* choose another {flag}"):
        HttpListener("127.0.0.1", port=there.port, flag=flag)
    there.close()


def test_certificate_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    """And not as if the address were wrong."""
    settings = tls_files(tmp_path / "node", trustme.CA(), "node-1")
    (tmp_path / "node" / "key").unlink()
    with pytest.raises(EnvironmentProblem, match="certificates"):
        HttpListener("127.0.0.1", settings)


def test_answer_goes_out_in_one_piece(server: HttpServer, run_folder: Path) -> None:
    """Head and body apart cost 40 ms on a connection that is kept, as Nagle's algorithm waits."""
    (run_folder / "job" / "gen-3" / "rank-0.out").write_bytes(b"x" * 30_000)
    with socket.create_connection(("127.0.0.1", server.port), timeout=patience_s(30.0)) as client:
        for _ in range(3):
            client.sendall(f"GET {LOG} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert client.recv(1 << 20).endswith(b"\r\n\r\n" + b"x" * 30_000)


def test_bug_in_a_route_is_answered(run_folder: Path) -> None:
    """Not with a connection that breaks off: that looks like the network. Others go on."""

    def broken(path: str, query: str) -> HttpAnswer | None:
        raise ValueError(path)

    server = HttpServer(HttpListener("127.0.0.1"), (broken,))
    assert [ask(server.port, "/x")[0] for _ in range(2)] == [500, 500]
    server.close()

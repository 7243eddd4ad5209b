"""The log server: what it gives, and all that it does not."""

import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from elasticd.control.console import OUT
from elasticd.control.output import HttpFetch, LogName
from elasticd.errors import EnvironmentProblem
from elasticd.records.ids import Generation, JobName, Rank
from elasticd.store.api import StoreSettings
from elasticd_agent.http import ANSWER_LIMIT_BYTES, LogServer
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
def server(run_folder: Path) -> Iterator[LogServer]:
    opened = LogServer("127.0.0.1", run_folder)
    yield opened
    opened.close()


def get(server: LogServer, path: str) -> tuple[int, bytes, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5.0)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.getheader("X-Elasticd-Size")
    connection.close()
    return found


def test_a_log_is_given_from_an_offset_with_its_size(server: LogServer) -> None:
    """An offset behind the end is no error: the file may grow."""
    assert get(server, LOG) == (200, b"hello", "5")
    assert get(server, f"{LOG}?offset=3") == (200, b"lo", "5")
    assert get(server, f"{LOG}?offset=99") == (200, b"", "5")


def test_an_answer_is_bounded(server: LogServer, run_folder: Path) -> None:
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
def test_anything_else_is_not_there(server: LogServer, path: str) -> None:
    """No way out of the run folder, and nothing in it but logs."""
    status, body, _ = get(server, path)
    assert (status, b"secret" in body) == (404, False)


def test_a_link_out_of_the_run_folder_is_not_followed(server: LogServer, run_folder: Path) -> None:
    """A worker may have put it there."""
    (run_folder / "job" / "gen-3" / "rank-5.out").symlink_to(run_folder.parent / "secret")
    assert get(server, "/v1/logs/job/3/5/out")[0] == 404


def test_only_get_is_answered(server: LogServer) -> None:
    """There is nothing to write."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5.0)
    connection.request("POST", LOG, body=b"x")
    assert connection.getresponse().status == 501
    connection.close()


def test_health_is_ok(server: LogServer) -> None:
    """For a probe."""
    assert get(server, "/healthz")[:2] == (200, b"ok\n")


def test_a_closed_server_listens_no_more(run_folder: Path) -> None:
    """Nothing is left holding a port."""
    server = LogServer("127.0.0.1", run_folder)
    server.close()
    with pytest.raises(OSError, match="refused"):
        get(server, "/healthz")


def test_an_address_of_another_machine_is_refused_with_what_to_do(run_folder: Path) -> None:
    """A wrong --local-addr."""
    with pytest.raises(EnvironmentProblem, match="--local-addr"):
        LogServer("203.0.113.1", run_folder)


def tls(folder: Path, authority: trustme.CA, name: str) -> StoreSettings:
    folder.mkdir()
    authority.cert_pem.write_to_path(str(folder / "ca"))
    certificate = authority.issue_cert(name)
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert"))
    certificate.private_key_pem.write_to_path(str(folder / "key"))
    return StoreSettings(
        endpoints=("https://h:1",),
        ca_file=str(folder / "ca"),
        cert_file=str(folder / "cert"),
        key_file=str(folder / "key"),
    )


def test_with_certificates_only_that_authoritys_clients_are_served(
    run_folder: Path, tmp_path: Path
) -> None:
    """The same that guards etcd; a stranger and a client without TLS get nothing."""
    authority = trustme.CA()
    server = LogServer("127.0.0.1", run_folder, tls(tmp_path / "node", authority, "node-1"))
    there = node("a", server.port)
    name = LogName(job=JobName("job"), generation=Generation(3), rank=Rank(0), stream=OUT)
    try:
        assert HttpFetch(tls(tmp_path / "user", authority, "user"))(there, name, 0) == b"hello"
        assert HttpFetch(tls(tmp_path / "stranger", trustme.CA(), "user"))(there, name, 0) is None
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
    server = LogServer("127.0.0.1", run_folder, trouble=lambda: told[0])
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
    server = LogServer("127.0.0.1", run_folder, folders=folders)
    assert get(server, LOG)[1] == b"hello"
    folders[JobName("job")] = tmp_path / "own"
    assert get(server, LOG)[1] == b"from there"
    assert get(server, "/v1/logs/job/3/1/out")[0] == 404
    server.close()

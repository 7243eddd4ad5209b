"""Daemons that begin before their etcd, as in a cluster that is started as a whole."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.fixtures.api_server import ApiServer
from tests.fixtures.cluster import ELASTICD, PATIENCE_S, Call, until
from tests.fixtures.etcd import PROGRAMS, EtcdMember, single_flags
from tests.fixtures.ports import free_port
from tests.fixtures.process_mark import ProcessMark
from tests.unit.cli.daemons.test_operator import KUBECONFIG

COMMANDS = ("operator", "autoscale run")
LOST, BACK = '"event": "etcd.lost"', '"event": "etcd.back"'


def asked(port: int, path: str) -> tuple[int, str]:
    """Return what the port of probes answers; 0 while nobody listens."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
            return int(answer.status), answer.read().decode()
    except HTTPError as exc:
        return exc.code, exc.read().decode()
    except OSError:
        return 0, ""


@contextmanager
def running(command: str, folder: Path, etcd: str, port: int) -> Iterator[Call]:
    with ExitStack() as stack:
        words = [*ELASTICD, *command.split(), "--etcd", etcd, "--log-json"]
        words += ["--listen", f"127.0.0.1:{port}"]
        if command == "operator":
            server = stack.enter_context(ApiServer())
            (folder / "kubeconfig").write_text(KUBECONFIG.format(url=server.url))
            words += ["--kubeconfig", str(folder / "kubeconfig")]
        call = Call(words, folder, ProcessMark().environ())
        stack.callback(call.process.wait)
        stack.callback(call.process.kill)
        yield call


@pytest.mark.parametrize("command", COMMANDS)
def test_a_daemon_that_begins_before_its_etcd_waits_for_it(command: str, tmp_path: Path) -> None:
    """It says so once, its probes tell waiting from hanging, and it works once etcd is there."""
    url, port = f"http://127.0.0.1:{free_port()}", free_port()
    etcd = EtcdMember(PROGRAMS["etcd-3.5"], tmp_path / "etcd", url=url, flags=single_flags())
    with running(command, tmp_path, url, port) as call:
        until(lambda: f"No etcd answers at {url}" in asked(port, "/readyz")[1], lambda: call.err)
        assert asked(port, "/readyz")[0] == 503
        assert asked(port, "/healthz") == (200, "ok\n")
        try:
            etcd.start()
            until(lambda: asked(port, "/readyz") == (200, "ok\n"), lambda: call.err)
            until(lambda: "leader.elected" in call.err, lambda: call.err)
            call.send(signal.SIGTERM)
            ended = call.wait()
        finally:
            etcd.kill()
    assert ended.code == 0, ended.err
    before, _, _ = ended.err.partition(BACK)
    assert before.count(LOST) == 1 and before != ended.err, ended.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_daemon_that_waits_for_its_etcd_ends_when_it_is_told_to(
    command: str, tmp_path: Path
) -> None:
    """At once, with 0: it has nothing to give back."""
    url, port = f"http://127.0.0.1:{free_port()}", free_port()
    with running(command, tmp_path, url, port) as call:
        until(lambda: LOST in call.err, lambda: call.err)
        call.send(signal.SIGTERM)
        ended = call.wait()
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("command", COMMANDS)
def test_an_etcd_that_refuses_a_daemon_ends_it(
    command: str, tmp_path: Path, auth_etcd: EtcdMember
) -> None:
    """In one sentence: waiting would not make a password right."""
    with running(command, tmp_path, auth_etcd.url, free_port()) as call:
        ended = call.wait()
    assert ended.code == 2, ended.err
    said = [line for line in ended.err.splitlines() if line.startswith("elasticd: ")]
    assert len(said) == 1 and "wants a user and a password" in said[0]


def test_a_dashboard_that_begins_before_its_etcd_says_so_on_its_page(tmp_path: Path) -> None:
    """And on stderr, for whoever mistyped the address."""
    url, port = f"http://127.0.0.1:{free_port()}", free_port()
    words = [*ELASTICD, "dashboard", "--etcd", url, "--port", str(port)]
    call = Call(words, tmp_path, ProcessMark().environ())
    try:
        until(lambda: asked(port, "/")[0] == 200, lambda: call.err)
        until(lambda: f"No etcd answers at {url}" in call.err, lambda: call.err)
    finally:
        call.process.kill()
        call.process.wait()

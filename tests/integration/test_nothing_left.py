"""However a run ends: no process, no port, no file outside of the run folder."""

import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.cluster import SCRIPTS, Call, cluster_on, until
from tests.fixtures.local_run import LocalRun
from tests.fixtures.pool import is_alive
from tests.fixtures.ports import free_port


@pytest.fixture
def place(tmp_path: Path) -> Iterator[LocalRun]:
    place = LocalRun(tmp_path / "here")
    yield place
    place.mark.wait_none_left()
    assert [path.name for path in place.folder.iterdir()] == ["elasticd-runs"]
    # An empty folder for its caches is what `import torch._dynamo` makes; DDP imports it too.
    assert [path for path in place.temporary.rglob("*") if path.is_file()] == []


def brood(place: LocalRun, end: str, *flags: str, agents: int = 1) -> tuple[Call, Path]:
    """Start workers with daemons of their own that hold ports; returns where these are told."""
    ports = place.runs / "ports"
    ports.mkdir(parents=True)
    script = str(SCRIPTS / "brood.py")
    flags += ("--local-agents", str(agents), "--nnodes", str(agents))
    # One of the kernel's choice might be another process's by the time of the look.
    numbers = [str(free_port()) for _ in range(agents)]
    call = place.call("--job", "brood", *flags, script, str(ports), end, *numbers)
    until(
        lambda: len(list(ports.glob("port-*"))) == agents or call.process.poll(), lambda: call.err
    )
    return call, ports


def check_ports_are_free(ports: Path) -> None:
    """And the daemons that held them are gone."""
    found = [path.read_text().split() for path in ports.glob("port-*")]
    assert found
    for pid, port in found:
        assert not is_alive(int(pid))
        # Whoever inherited it may not have asked for its end yet.
        until(lambda p=pid: not Path("/proc", p).exists(), lambda p=pid: f"{p} is a zombie")  # type: ignore[misc]
        socket.create_server(("127.0.0.1", int(port))).close()


def test_job_that_succeeded_leaves_nothing(place: LocalRun) -> None:
    """Its daemons had sessions of their own and would have gone on."""
    call, ports = brood(place, "exit", agents=2)
    ended = call.wait()
    assert ended.code == 0, ended.err
    check_ports_are_free(ports)
    # One, but on a machine that stands still for seconds: then a node is lost, which is said.
    generations = re.search(r"generations: (\d+),", ended.err)
    assert generations, ended.err
    assert generations[1] == "1" or "lost" in ended.err, ended.err
    assert sorted(path.name for path in (place.runs / "brood").iterdir()) == [
        "agents",
        "etcd",
        *(f"gen-{number}" for number in range(1, int(generations[1]) + 1)),
        "incidents.jsonl",
        "lock",
        "records.json",
        "uid",
    ], ended.err


def test_ctrl_c_ends_the_job_after_its_grace(place: LocalRun) -> None:
    """Workers that ignore SIGTERM are killed when the grace is over; the exit code says SIGINT."""
    call, ports = brood(place, "stay", "--shutdown-timeout", "1")
    call.send(signal.SIGINT)
    ended = call.wait()
    assert ended.code == 128 + signal.SIGINT
    assert "SIGINT: stopping the job gracefully" in ended.err
    assert "job stopped" in ended.err
    check_ports_are_free(ports)


def test_second_ctrl_c_ends_it_now(place: LocalRun) -> None:
    """The grace would be longer than the patience of this test."""
    call, ports = brood(place, "stay", "--shutdown-timeout", "600")
    call.send(signal.SIGINT)
    until(lambda: "stopping the job gracefully" in call.err, lambda: call.err)
    call.send(signal.SIGINT)
    assert call.wait().code == 128 + signal.SIGINT
    check_ports_are_free(ports)


def test_name_of_a_run_in_progress_is_refused(place: LocalRun) -> None:
    """In the same run folder; the run in progress goes on until SIGTERM ends it."""
    call, ports = brood(place, "stay", "--shutdown-timeout", "1")
    refused = place.run("--job", "brood", str(SCRIPTS / "brood.py"), str(ports), "exit")
    assert refused.code == 2
    assert "The job name 'brood' is in use by a run in progress" in refused.sentence
    assert call.process.poll() is None
    call.send(signal.SIGTERM)
    assert call.wait().code == 128 + signal.SIGTERM
    check_ports_are_free(ports)


def test_kill_of_the_caller_ends_everything(place: LocalRun) -> None:
    """It can tidy up nothing; the kernel and the pool see to the processes."""
    call, ports = brood(place, "stay", "--shutdown-timeout", "1")
    call.send(signal.SIGKILL)
    call.wait()
    place.mark.wait_none_left()
    check_ports_are_free(ports)


def test_kill_of_an_agent_ends_its_workers(tmp_path: Path) -> None:
    """Daemons in sessions of their own included: nothing runs ownerless."""
    with cluster_on(tmp_path / "cluster") as cluster:
        daemon = cluster.daemon("a")
        ports = cluster.folder / "ports"
        ports.mkdir()
        script = str(SCRIPTS / "brood.py")
        said = (script, str(ports), "stay", str(free_port()))
        cluster.run("run", "--detach", "--job", "brood", *said)
        until(lambda: list(ports.glob("port-*")), lambda: daemon.log)
        daemon.kill()
        daemon.wait_gone()
        check_ports_are_free(ports)

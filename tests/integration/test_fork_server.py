"""Pools are forked from a process that has imported torch once, and from none that differs."""

import os
import resource
import select
import signal
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import pytest

from elasticd.channel.fork_server import ForkOrder
from elasticd.channel.pool import FromPool, PoolReady
from elasticd.control.local_run.fork_server import LocalForkServer
from elasticd.records.reason import Phase
from elasticd_agent.pool.fork_server.surroundings import surroundings
from elasticd_agent.pool.process.process_table import children_of, look_up
from elasticd_agent.workers import fork_server_connection
from elasticd_agent.workers.fork_server_client import ForkedPool, ForkServerClient
from elasticd_agent.workers.pool_client import PoolNotStarted, WarmPool
from tests.fixtures.cluster import Cluster, cluster_on, until
from tests.fixtures.local_run import LocalRun
from tests.fixtures.pool import (
    PATIENCE_S,
    ChildrenOfTest,
    PoolDriver,
    fork_server,
    is_alive,
    own_fork_server,
    read_number,
    running_pool,
    wait_until,
)

__all__ = ["fork_server"]

DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    open("n.tmp", "w").write(f"{os.getpid()}\\n")
    os.rename("n.tmp", "n")
    time.sleep(1000)
os.wait()
time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that gets no core for some seconds is none that stands still."""
    monkeypatch.setattr(fork_server_connection, "ANSWER_LIMIT_S", PATIENCE_S)


@pytest.fixture
def shared_path() -> Iterator[str]:
    server = LocalForkServer()
    yield server.start(os.environ, Path(os.devnull))
    server.close()


def shared_client(path: str) -> ForkServerClient:
    return ForkServerClient(children=ChildrenOfTest(), env={}, log_path=Path(os.devnull), path=path)


def parent_of(pid: int) -> int:
    process = look_up(pid)
    assert process is not None
    return process.parent


def ask(client: ForkServerClient, *, env: Mapping[str, str] | None = None) -> ForkedPool | None:
    """Ask for a pool of which nobody holds the other end, so that it ends at once."""
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    order = ForkOrder(
        job="asked",
        env=dict(os.environ if env is None else env),
        surroundings=surroundings(),
        folder="/",
    )
    try:
        pool = client.fork(order, write_fd, 2, lambda: True)
    finally:
        os.close(write_fd)
    if pool is not None:
        pool.wait(PATIENCE_S)
    return pool


def test_pools_of_two_jobs_have_one_parent_that_has_imported_torch(
    fork_server: ForkServerClient,
) -> None:
    with (
        running_pool(forked_from=fork_server) as first,
        running_pool(forked_from=fork_server) as second,
    ):
        assert first.process.pid != second.process.pid
        assert parent_of(first.process.pid) == parent_of(second.process.pid) != os.getpid()


def test_environment_of_a_pool_is_its_own_also_for_others_to_see(
    fork_server: ForkServerClient, tmp_path: Path
) -> None:
    env = {**os.environ, "OF_THE_JOB": "seen"}
    with running_pool(forked_from=fork_server, env=env) as driver:
        shown = Path(f"/proc/{driver.process.pid}/environ").read_bytes().split(b"\0")
        assert b"OF_THE_JOB=seen" in shown
        title = Path(f"/proc/{driver.process.pid}/cmdline").read_bytes().rstrip(b"\0")
        assert title == b"elasticd: pool of driven"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_LOGS", "+dynamo"),
        ("PYTHONPATH", "/other"),
        ("OMP_PROC_BIND", "true"),
    ],
)
def test_job_with_another_value_of_what_was_read_gets_no_fork(
    fork_server: ForkServerClient, name: str, value: str
) -> None:
    """It would have the server's for good."""
    assert ask(fork_server, env={**os.environ, name: value}) is None
    assert ask(fork_server) is not None


@pytest.mark.parametrize(
    "name", ["NCCL_DEBUG", "CUDA_VISIBLE_DEVICES", "MY_OWN", "OMP_NUM_THREADS"]
)
def test_job_with_another_value_of_what_workers_read_gets_a_fork(
    fork_server: ForkServerClient, name: str
) -> None:
    assert ask(fork_server, env={**os.environ, name: "3"}) is not None


def test_agent_in_other_surroundings_gets_no_fork(
    fork_server: ForkServerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert ask(fork_server) is not None
    own = {**surroundings(), "niceness": str(before + 1)}
    monkeypatch.setattr("tests.integration.test_fork_server.surroundings", lambda: own)
    assert ask(fork_server) is None


def test_packages_that_are_installed_later_are_seen(tmp_path: Path) -> None:
    """A server that is older than what is installed forks nothing, and another takes its place."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    env = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{packages}"}
    with own_fork_server(env) as client:
        assert ask(client, env=env) is not None
        (packages / "new_package").mkdir()
        assert ask(client, env=env) is None
        assert ask(client, env=env) is not None


def test_pool_outlives_its_server_and_the_next_has_another(tmp_path: Path) -> None:
    """The server guards nothing, so its end costs no worker."""
    with own_fork_server() as client, running_pool(forked_from=client) as driver:
        server = parent_of(driver.process.pid)
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: not is_alive(server), because="the server lives")
        (tmp_path / "s.py").write_text("raise SystemExit(7)\n")
        assert driver.run("s.py", folder=tmp_path).code == 7
        assert ask(client) is None  # It finds out that there is nobody.
        with running_pool(forked_from=client) as other:
            assert parent_of(other.process.pid) not in (server, os.getpid())


def test_server_that_stands_still_is_done_without_and_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its pools live on."""
    with own_fork_server() as client, running_pool(forked_from=client) as driver:
        server = parent_of(driver.process.pid)
        os.kill(server, signal.SIGSTOP)
        monkeypatch.setattr(fork_server_connection, "ANSWER_LIMIT_S", 0.2)
        assert ask(client) is None
        wait_until(lambda: not is_alive(server), because="the server lives")
        assert is_alive(driver.process.pid)


def test_end_of_a_pool_whose_server_stands_still_waits_for_its_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the pool has left is the server's until then, and the agent's to end afterwards."""
    with own_fork_server() as client:
        driver = PoolDriver(forked_from=client)
        driver.wait_for(PoolReady)
        server = parent_of(driver.process.pid)
        os.kill(server, signal.SIGSTOP)
        monkeypatch.setattr(fork_server_connection, "ANSWER_LIMIT_S", 0.2)
        driver.process.kill()
        driver.process.wait(PATIENCE_S)
        assert not is_alive(server)
        driver.socket.close()


def test_server_that_was_changed_forks_nothing() -> None:
    with own_fork_server() as client, running_pool(forked_from=client) as driver:
        server = parent_of(driver.process.pid)
        soft, hard = resource.prlimit(server, resource.RLIMIT_MSGQUEUE)
        resource.prlimit(server, resource.RLIMIT_MSGQUEUE, (soft - 1, hard))
        assert ask(client) is None


def test_end_of_a_program_is_heard_while_a_server_holds_its_connection(
    shared_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server that stands still has the pool's end in what it has not read."""
    client = shared_client(shared_path)
    with running_pool(forked_from=client) as driver:
        server = parent_of(driver.process.pid)
        heard: Queue[FromPool | PoolNotStarted | None] = Queue()
        monkeypatch.setattr(fork_server_connection, "ANSWER_LIMIT_S", 0.2)
        os.kill(server, signal.SIGSTOP)
        try:
            pool = WarmPool(
                python="",
                env=os.environ,
                cwd=str(tmp_path),
                preload=(),
                needs_torch=False,
                on_message=heard.put,
                log_path=str(tmp_path / "pool.log"),
                children=ChildrenOfTest(),
                fork_server=client,
            )
            assert isinstance(heard.get(timeout=PATIENCE_S), PoolReady)
            assert pool.process is not None
            pool.process.kill()
            assert heard.get(timeout=PATIENCE_S) is None
        finally:
            os.kill(server, signal.SIGCONT)


def test_server_that_wakes_late_leaves_no_second_pool(
    shared_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds an order that was given up long ago: the agent has a pool on that connection."""
    late = shared_client(shared_path)
    with running_pool(forked_from=late) as driver:
        server = parent_of(driver.process.pid)
        ours, theirs = socket.socketpair()
        os.kill(server, signal.SIGSTOP)
        monkeypatch.setattr(fork_server_connection, "ANSWER_LIMIT_S", 0.2)
        with ours, theirs:
            order = ForkOrder(job="late", env=os.environ, surroundings=surroundings(), folder="/")
            assert late.fork(order, theirs.fileno(), 2, lambda: True) is None
            monkeypatch.setattr(fork_server_connection, "ANSWER_LIMIT_S", PATIENCE_S)
            os.kill(server, signal.SIGCONT)
            # Its answer to another comes after all that it had to do before.
            assert ask(shared_client(shared_path)) is not None
            wait_until(
                lambda: children_of(server) == [driver.process.pid],
                because=f"pools: {children_of(server)} beside {driver.process.pid}",
            )
            assert not select.select([ours], [], [], 0)[0], "the late pool has spoken"


def test_server_that_never_becomes_ready_holds_up_nobody_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server_connection, "READY_LIMIT_S", 0.2)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        client = shared_client(str(tmp_path / "s"))
        with ThreadPoolExecutor() as threads:
            asked = [threads.submit(ask, client) for _ in range(2)]
            assert [each.result() for each in asked] == [None, None]
        silent.accept()[0].close()
        assert ask(client) is None
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_agent_that_ends_does_not_wait_for_imports_that_hang(tmp_path: Path) -> None:
    """Nor does it leave them behind."""
    (tmp_path / "torch.py").write_text(
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(tmp_path / 'n')!r}, 'w').write(f'{{os.getpid()}}\\n')\n"
        "time.sleep(1000)\n"
    )
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    with own_fork_server(env) as client, ThreadPoolExecutor() as threads:
        asked = threads.submit(ask, client, env=env)
        server = read_number(tmp_path / "n")
        client.close()
        assert asked.result() is None
        assert not is_alive(server)


def test_server_whose_imports_start_a_process_is_unfit(tmp_path: Path) -> None:
    """It would be taken for what a pool has left behind."""
    code = "import subprocess\nhelper = subprocess.Popen(['cat'], stdin=subprocess.PIPE)\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    with own_fork_server(env) as client:
        assert ask(client, env=env) is None


def test_nothing_is_left_of_a_killed_pool_when_its_end_is_known(
    fork_server: ForkServerClient, tmp_path: Path
) -> None:
    """Also what has left the session of its worker: the server inherits it."""
    driver = PoolDriver(forked_from=fork_server)
    driver.wait_for(PoolReady)
    (tmp_path / "s.py").write_text(DAEMON)
    driver.start("s.py", folder=tmp_path)
    daemon = read_number(tmp_path / "n")
    driver.process.kill()
    driver.process.wait(PATIENCE_S)
    assert not is_alive(daemon)
    driver.socket.close()


def test_server_ends_with_its_owner() -> None:
    client = ForkServerClient(
        children=(children := ChildrenOfTest()), env=os.environ, log_path=Path(os.devnull)
    )
    assert ask(client) is not None
    (server,) = children.pids & set(children_of(os.getpid()))
    client.close()
    wait_until(lambda: not is_alive(server), because="the server lives")


def test_server_without_torch_says_so_and_pools_are_programs(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('broken')\n")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    with own_fork_server(env) as client:
        assert ask(client, env=env) is None


def test_agents_of_one_machine_share_a_server(shared_path: str) -> None:
    clients = [shared_client(shared_path) for _ in range(2)]
    with (
        running_pool(forked_from=clients[0]) as first,
        running_pool(forked_from=clients[1]) as second,
    ):
        assert parent_of(first.process.pid) == parent_of(second.process.pid)
        clients[0].close()
        assert ask(clients[1]) is not None


def test_path_of_no_server_is_done_without(tmp_path: Path) -> None:
    assert ask(shared_client(str(tmp_path / "none"))) is None


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_on(tmp_path) as running:
        running.fork_server_environ = {}
        yield running


def test_second_job_of_a_daemon_is_forked_from_the_server_of_the_first(cluster: Cluster) -> None:
    """The server is the agent's, and goes with it, however that ends."""
    daemon = cluster.daemon("n")
    servers = []
    for name in ("first", "second"):
        job = cluster.submit(name)
        generation = job.wait_steady(1)
        servers.append(parent_of(daemon.pool))
        assert "elasticd_agent.pool.fork_server" in daemon.processes[servers[-1]]
        assert parent_of(servers[-1]) == daemon.pid
        if name == "first":
            assert job.finish().phase is Phase.SUCCEEDED
            until(lambda: len(daemon.processes) == 2, lambda: f"left: {daemon.processes}")
    assert servers[0] == servers[1]
    os.kill(servers[0], signal.SIGSTOP)  # The kernel ends it all the same.
    daemon.kill()
    daemon.wait_gone()
    daemon.start()
    job.wait_step(size=1, after=generation)
    assert parent_of(daemon.pool) != servers[0]
    assert job.finish().phase is Phase.SUCCEEDED
    assert daemon.end() == 0
    daemon.wait_gone()


def test_run_on_this_machine_takes_the_server_that_is_named(tmp_path: Path) -> None:
    """It starts none itself, and its workers are forked all the same."""
    (tmp_path / "script.py").write_text("import sys\nprint('torch._dynamo' in sys.modules)\n")
    place = LocalRun(tmp_path, shares_server=True)
    ended = place.run("--job", "job", "script.py")
    assert ended.code == 0 and "True" in ended.out, ended.err
    assert list(place.runs.rglob("fork-server.log")) == []
    (log,) = place.runs.rglob("agents/local-0.log")
    said = log.read_text()
    assert "pool.not_forked" not in said and "fork_server.given_up" not in said

"""The agent's hold of a keeper's process: started, started again, let go; no secret in sight."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from elasticd.errors import Unavailable
from elasticd.keeper.client import Client
from elasticd.keeper.wire import message as ms
from elasticd.records.checkpoint import CheckpointSpec, Every
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import EntryKind, JobSpec
from elasticd_agent.side_processes import keeper_process
from elasticd_agent.side_processes.keeper_process import KeeperProcess
from tests.fixtures.cluster import until
from tests.fixtures.patience import patience_s
from tests.fixtures.pool import ChildrenOfTest

LIMIT_S = patience_s(20.0)
SECRET = "canary-7be1"


def spec_of(url: str, **options: object) -> JobSpec:
    wanted = CheckpointSpec(
        url=url, owner="owner", options=options, every=Every(steps=7), mirror_bytes_per_s=2_500_000
    )
    return JobSpec(
        name=JobName("job"), uid="uid", entry_kind=EntryKind.SCRIPT, entry="t.py",
        checkpoint=wanted, env={"NAMED": "yes"},
    )  # fmt: skip


@pytest.fixture
def children() -> ChildrenOfTest:
    return ChildrenOfTest()


Make = Callable[[JobSpec], KeeperProcess]


def keeper_of(spec: JobSpec, folder: Path, children: ChildrenOfTest) -> KeeperProcess:
    return KeeperProcess(spec, NodeId("node"), folder, children, environ=os.environ)


@pytest.fixture
def make(
    tmp_path: Path, children: ChildrenOfTest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    """Start keepers; all of them have ended when the test has."""
    monkeypatch.setenv("ELASTICD_ETCD_PASSWORD", SECRET)
    monkeypatch.setenv("ELASTICD_ETCD", f"https://{SECRET}@host")
    made: list[KeeperProcess] = []

    def start(spec: JobSpec) -> KeeperProcess:
        made.append(keeper_of(spec, tmp_path / "run", children))
        made[-1].open()
        return made[-1]

    yield start
    for each in made:
        each.close()
    until(lambda: not children.pids, lambda: children.pids)


def answers(keeper: KeeperProcess) -> bool:
    """It listens and answers, by the name that workers are told."""
    client = Client(keeper.env["ELASTICD_KEEPER"], limit_s=LIMIT_S)
    try:
        client.ask(ms.GetStatus(), ms.Status, timeout_s=LIMIT_S)
    except Unavailable:
        return False
    client.close()
    return True


def shown(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_bytes().replace(b"\0", b"\n").decode()


def test_job_without_checkpoints_has_no_keeper(make: Make, children: ChildrenOfTest) -> None:
    """Neither a process nor anything that workers are told."""
    keeper = make(JobSpec(name=JobName("j"), uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py"))
    assert keeper.env == {}
    assert not children.pids
    keeper.close()


def test_secrets_are_where_they_are_needed_and_nowhere_else(
    make: Make, children: ChildrenOfTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What opens etcd is not the keeper's; its settings nobody sees in its command line; what
    opens the storage is in its own environment, and in nothing that the agent tells workers."""
    monkeypatch.setenv("STORE_KEY", "storage-canary")
    keeper = make(spec_of("memory://somewhere", key="env:STORE_KEY"))
    (pid,) = children.pids
    assert answers(keeper)
    environ, command = shown(pid, "environ"), shown(pid, "cmdline")
    assert SECRET not in environ and "ELASTICD_ETCD" not in environ
    assert "NAMED=yes" in environ and "STORE_KEY=storage-canary" in environ
    name = keeper.env["ELASTICD_KEEPER"]  # Of an abstract socket, which anybody can list.
    assert command.splitlines()[1:] == ["-m", "elasticd.keeper", name]
    told = str(keeper.env)
    assert "canary" not in told and "STORE_KEY" not in told
    assert keeper.env["ELASTICD_CHECKPOINT"] == "memory://somewhere"
    assert keeper.env["ELASTICD_CHECKPOINT_EVERY"] == "7steps"
    assert keeper.env["ELASTICD_MIRROR_BANDWIDTH"] == "2500000B/s"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or "canary" not in path.read_text(), path


def test_what_an_earlier_keeper_counted_is_not_shown_as_this_ones(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was perhaps another job's, of the same name; this one may take long to come up."""
    file = tmp_path / "run" / "agents" / "node.keeper.prom"
    file.parent.mkdir(parents=True)
    file.write_text('elasticd_checkpoint_durable_step{job_name="job"} 4711\n')
    monkeypatch.setattr(KeeperProcess, "_start", lambda keeper: None)
    monkeypatch.setattr(KeeperProcess, "_watch", lambda keeper, is_begun: None)
    assert make(spec_of("memory://somewhere")).metrics_path == file
    assert not file.exists()


def test_where_no_thread_can_be_started_no_keeper_is_left_unwatched(
    make: Make, children: ChildrenOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine has no process left; whoever tries again later has one."""
    started: list[bool] = []
    start = Thread.start

    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(KeeperProcess, "_start", lambda keeper: started.append(True))
    monkeypatch.setattr(Thread, "start", refuse)
    with pytest.raises(OSError, match="new thread"):
        make(spec_of("memory://somewhere"))
    assert not started and not children.pids
    monkeypatch.setattr(Thread, "start", start)
    make(spec_of("memory://somewhere"))
    assert started


def test_killed_keeper_is_started_again_under_its_name(
    make: Make, children: ChildrenOfTest, tmp_path: Path
) -> None:
    """Workers that ask again reach the new one."""
    keeper = make(spec_of(f"file://{tmp_path / 'saved'}"))
    assert answers(keeper)
    (first,) = children.pids
    os.kill(first, signal.SIGKILL)
    until(lambda: children.pids - {first}, lambda: children.pids)
    assert answers(keeper)
    (second,) = children.pids
    assert second != first


class Pauses(Event):
    """Remembers for how long it was waited on, and does not wait; ends after some."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.seen: list[float] = []
        self._limit = limit

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seen.append(timeout)
        return len(self.seen) >= self._limit


def test_keeper_that_cannot_live_is_started_with_growing_pauses(
    tmp_path: Path, children: ChildrenOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each twice as long, up to a limit; also where no process can be made."""
    pauses = Pauses(12)
    monkeypatch.setattr(keeper_process, "Event", lambda: pauses)
    popen: Any = subprocess.Popen
    started = []

    def failing(args: list[str], **options: Any) -> Any:
        started.append(args)
        if len(started) % 3 == 2:
            raise OSError(11, "no process can be made")
        return popen(["false"], **options)

    monkeypatch.setattr("elasticd_agent.side_processes.keeper_process.subprocess.Popen", failing)
    keeper_of(spec_of("file:///nowhere"), tmp_path, children).open()
    until(lambda: len(pauses.seen) >= 12, lambda: pauses.seen)
    assert pauses.seen[:4] == [0.2, 0.4, 0.8, 1.6]
    assert pauses.seen[-3:] == [30.0] * 3
    until(lambda: not children.pids, lambda: children.pids)


def test_pause_after_one_that_lived_long_is_the_first_again(
    tmp_path: Path, children: ChildrenOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fourth lives for a day; the third, for nearly long enough, is one of those that fail."""
    pauses = Pauses(7)
    monkeypatch.setattr(keeper_process, "Event", lambda: pauses)
    lives_s = iter([0.0, 1.0, keeper_process.WELL_S - 0.1, 86_400.0, 0.0, 0.0, 0.0])
    clock = [0.0]
    popen: Any = subprocess.Popen

    def living(args: list[str], **options: Any) -> Any:
        clock[0] += next(lives_s)
        return popen(["false"], **options)

    monkeypatch.setattr(keeper_process, "monotonic", lambda: clock[0])
    monkeypatch.setattr("elasticd_agent.side_processes.keeper_process.subprocess.Popen", living)
    keeper_of(spec_of("file:///nowhere"), tmp_path, children).open()
    until(lambda: len(pauses.seen) >= 7, lambda: pauses.seen)
    assert pauses.seen == [0.2, 0.4, 0.8, 0.2, 0.4, 0.8, 1.6]
    until(lambda: not children.pids, lambda: children.pids)


def test_closed_keeper_ends_by_itself_and_stays_so(
    make: Make, children: ChildrenOfTest, tmp_path: Path
) -> None:
    """With exit code 0, and no other takes its place; closing twice is no harm."""
    keeper = make(spec_of(f"file://{tmp_path / 'saved'}"))
    assert answers(keeper)
    process = keeper._process
    assert process is not None
    keeper.close()
    keeper.close()
    assert process.wait(LIMIT_S) == 0
    until(lambda: not children.pids, lambda: children.pids)
    with pytest.raises(Unavailable):
        Client(keeper.env["ELASTICD_KEEPER"], limit_s=0.0)


def test_keeper_that_is_started_while_it_is_closed_ends_too(
    tmp_path: Path, children: ChildrenOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one, after a kill, just when the job is over: nobody else would end it."""
    monkeypatch.setattr(keeper_process, "FIRST_PAUSE_S", 0.0)
    popen: Any = subprocess.Popen
    processes: list[subprocess.Popen[bytes]] = []
    is_starting, go_on = Event(), Event()

    def slow(args: list[str], **options: Any) -> Any:
        if processes:
            is_starting.set()
            assert go_on.wait(LIMIT_S)
        processes.append(popen(["cat"], **options))
        return processes[-1]

    monkeypatch.setattr("elasticd_agent.side_processes.keeper_process.subprocess.Popen", slow)
    keeper = keeper_of(spec_of("file:///nowhere"), tmp_path, children)
    keeper.open()
    processes[0].kill()
    assert is_starting.wait(LIMIT_S)
    keeper.close()  # It does not wait for the one that is being started.
    go_on.set()
    until(lambda: len(processes) == 2, lambda: processes)
    assert processes[1].wait(LIMIT_S) == 0, "the end of its input is its end"
    until(lambda: not children.pids, lambda: children.pids)


def test_end_of_the_agent_is_the_keepers_end(
    make: Make, children: ChildrenOfTest, tmp_path: Path
) -> None:
    """Nothing but the pipe holds it: whoever dies with it open closes it."""
    keeper = make(spec_of(f"file://{tmp_path / 'saved'}"))
    assert answers(keeper)
    (pid,) = children.pids
    assert keeper._process is not None and keeper._process.stdin is not None
    own = os.readlink(f"/proc/self/fd/{keeper._process.stdin.fileno()}")
    held = []
    for each in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # It was closed meanwhile: it writes its metrics.
            held.append(os.readlink(f"/proc/{pid}/fd/{each}"))
    assert held.count(own) == 1, "its reading end, and no writing end of its own"
    assert os.getsid(pid) == pid

"""The process that writes event files, as an agent starts it."""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import EntryKind, JobSpec
from elasticd.records.tensorboard import TensorBoardSpec
from elasticd.tensorboard.sender import Sender
from elasticd_agent.side_processes import writer_process as module
from elasticd_agent.side_processes.writer_process import WriterProcess
from tests.fixtures.cluster import until
from tests.fixtures.event_reader import shown
from tests.fixtures.open_files import open_files, wait_until_closed
from tests.fixtures.pool import ChildrenOfTest


@pytest.fixture
def children() -> Iterator[ChildrenOfTest]:
    made = ChildrenOfTest()
    yield made
    for pid in made.pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


Make = Callable[[str], WriterProcess]


@pytest.fixture
def make(tmp_path: Path, children: ChildrenOfTest) -> Iterator[Make]:
    made: list[WriterProcess] = []

    def process(url: str) -> WriterProcess:
        spec = JobSpec(
            name=JobName("job"),
            uid="0123456789abcdef",
            entry_kind=EntryKind.SCRIPT,
            entry="train.py",
            tensorboard=TensorBoardSpec(url=url, folder="job") if url else None,
            is_local=True,
        )
        logs = tmp_path / "logs"
        made.append(WriterProcess(spec, NodeId("node-a"), logs, children, environ=os.environ))
        return made[-1]

    yield process
    for each in made:
        each.close()


def steps(folder: Path) -> list[int]:
    if not folder.exists():
        return []
    return [step for step, _ in shown(folder).get("job/1", {}).get("loss", [])]


def give(sender: Sender, *numbers: int) -> None:
    for step in numbers:
        sender.scalars(step, 1.0, ("loss",), [float(step)])


def test_job_without_event_files_has_no_writer(make: Make, children: ChildrenOfTest) -> None:
    """Nor a socket, nor a variable."""
    process = make("")
    process.open()
    assert process.env == {}
    process.close()
    assert not children.pids


def test_first_connection_starts_it_and_its_end_is_a_flush(
    make: Make, children: ChildrenOfTest, tmp_path: Path
) -> None:
    """No process before that: only the node of rank 0 needs one. The log stays empty."""
    process = make(f"file://{tmp_path}/events")
    process.open()
    assert not children.pids
    sender = Sender(process.env["ELASTICD_EVENT_WRITER"])
    sender.begin(1, 0, is_writer=True)
    give(sender, *range(1, 101))
    sender.end()
    until(lambda: steps(tmp_path / "events") == list(range(1, 101)), str)
    (pid,) = children.pids
    sender.begin(2, 100, is_writer=True)
    give(sender, 101)
    sender.end()
    until(lambda: steps(tmp_path / "events") == list(range(1, 102)), str)
    assert children.pids == {pid}
    assert (tmp_path / "logs" / "agents" / "node-a.tensorboard.log").read_text() == ""


def test_killed_writer_is_started_again_and_nothing_is_lost(
    make: Make, children: ChildrenOfTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker still has what it sent."""
    monkeypatch.setattr("elasticd.tensorboard.sender.RETRY_S", 0.0)
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    process = make(f"file://{tmp_path}/events")
    process.open()
    sender = Sender(process.env["ELASTICD_EVENT_WRITER"])
    sender.begin(1, 0, is_writer=True)
    give(sender, *range(1, 11))
    until(lambda: len(children.pids) == 1, str)
    (pid,) = children.pids
    os.kill(pid, signal.SIGKILL)
    until(lambda: pid not in children.pids, str)
    give(sender, 11)
    until(lambda: (sender.poll(), len(children.pids) == 1)[1], str)
    sender.end()
    until(lambda: steps(tmp_path / "events") == list(range(1, 12)), str)


def test_job_that_ended_at_once_is_written_too(make: Make, tmp_path: Path) -> None:
    """It may be over before its writer was started."""
    process = make(f"file://{tmp_path}/events")
    process.open()
    sender = Sender(process.env["ELASTICD_EVENT_WRITER"])
    sender.begin(1, 0, is_writer=True)
    give(sender, 1, 2, 3)
    sender.end()
    process.close()
    until(lambda: steps(tmp_path / "events") == [1, 2, 3], str)


def test_writer_ends_with_its_job(make: Make, children: ChildrenOfTest, tmp_path: Path) -> None:
    """Or with its agent, whose end of the pipe the kernel closes; what it holds is written."""
    process = make(f"file://{tmp_path}/events")
    process.open()
    sender = Sender(process.env["ELASTICD_EVENT_WRITER"])
    sender.begin(1, 0, is_writer=True)
    give(sender, 1, 2, 3)
    until(lambda: bool(children.pids), str)
    sender.end()
    process.close()
    until(lambda: not children.pids, str)
    assert steps(tmp_path / "events") == [1, 2, 3]


def test_worker_is_told_of_a_url_that_cannot_be_written(make: Make, tmp_path: Path) -> None:
    """At once, in one sentence, which stands in the writer's log too."""
    (tmp_path / "file").write_text("no folder")
    process = make(f"file://{tmp_path}/file/events")
    process.open()
    sender = Sender(process.env["ELASTICD_EVENT_WRITER"])
    sender.begin(1, 0, is_writer=True)
    told = until(sender.poll, str)
    (sentence,) = told
    assert "event files cannot be written now" in sentence
    assert str(tmp_path / "file") in sentence
    sender.end()


def test_nothing_stays_open_in_the_agent(
    make: Make, children: ChildrenOfTest, tmp_path: Path
) -> None:
    """A sweep of a thousand jobs would take all of its descriptors; nor is a process forgotten."""
    before = open_files()
    process = make(f"file://{tmp_path}/events")
    process.open()
    sender = Sender(process.env["ELASTICD_EVENT_WRITER"])
    sender.begin(1, 0, is_writer=True)
    give(sender, 1)
    sender.end()
    process.close()
    until(lambda: steps(tmp_path / "events") == [1] and not children.pids, lambda: children.pids)
    wait_until_closed(before)


def test_agent_with_thousands_of_connections_hears_workers(
    make: Make, children: ChildrenOfTest, tmp_path: Path
) -> None:
    """The node of rank 0 of a large job has one to each of its peers."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2048), before[1]))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        process = make(f"file://{tmp_path}/events")
        process.open()
        sender = Sender(process.env["ELASTICD_EVENT_WRITER"])
        sender.begin(1, 0, is_writer=True)
        give(sender, 1)
        sender.end()
        until(lambda: steps(tmp_path / "events") == [1], lambda: children.pids)
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_where_no_thread_can_be_started_it_is_tried_again(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what a writer of an earlier job of the name counted is not shown as this one's."""

    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    file = tmp_path / "logs" / "agents" / "node-a.tensorboard.prom"
    file.parent.mkdir(parents=True)
    file.write_text("elasticd_tensorboard_files_total 4711\n")
    before = open_files()
    process = make(f"file://{tmp_path}/events")
    with monkeypatch.context() as without:
        without.setattr(Thread, "start", refuse)
        with pytest.raises(OSError, match="new thread"):
            process.open()
    assert not file.exists()
    wait_until_closed(before)
    process.open()
    assert process._listener is not None

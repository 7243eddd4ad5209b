"""Lines of ranks on the agent's own stdout."""

import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticd.records.ids import Generation, JobName, Rank
from elasticd_agent.output_monitor import stdout_copy as module
from elasticd_agent.output_monitor.followed_log import LOOK_BYTES
from elasticd_agent.output_monitor.output_monitor import OutputLimits, OutputMonitor
from elasticd_agent.output_monitor.stdout_copy import JobForwarding, StdoutCopy
from elasticd_agent.settings import ForwardedRanks
from elasticd_agent.worker_setup.worker_env import WorkerFiles, prepared_files, worker_files
from tests.fixtures.patience import patience_s

JOB = JobName("x")


def files_in(folder: Path, generation: int = 1, rank: int = 0) -> WorkerFiles:
    files = worker_files(folder, JOB, Generation(generation), Rank(rank))
    files.out.parent.mkdir(parents=True, exist_ok=True)
    return files


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Where it is read, and where it is written."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            assert end == ends[0], "a test may close the reader's alone"


@pytest.fixture
def stdout(pipe: tuple[int, int]) -> Callable[[], str]:
    os.set_blocking(pipe[0], False)

    def read() -> str:
        try:
            return os.read(pipe[0], 1 << 20).decode()
        except BlockingIOError:
            return ""

    return read


def by_hand(
    fd: int, monkeypatch: pytest.MonkeyPatch, ranks: ForwardedRanks = ForwardedRanks.RANK_0
) -> JobForwarding:
    """Make one whose thread leaves the looking to the test."""
    made = StdoutCopy(ranks, fd).of(JOB)
    assert made is not None
    monkeypatch.setattr(made, "_run", lambda: None)
    return made


def test_nothing_is_forwarded_unless_it_is_asked_for(pipe: tuple[int, int]) -> None:
    assert StdoutCopy(ForwardedRanks.NONE, pipe[1]).of(JOB) is None


def test_lines_of_rank_0_have_job_and_rank_before_them(
    tmp_path: Path,
    pipe: tuple[int, int],
    stdout: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of both streams; other ranks, and workers without one, are not shown."""
    job = by_hand(pipe[1], monkeypatch)
    files, other = files_in(tmp_path), files_in(tmp_path, rank=1)
    waiting = prepared_files(tmp_path, JOB, "w")
    waiting.out.parent.mkdir()
    for pid, each in enumerate((files, other, waiting)):
        job.follow(pid, each)
        each.out.write_text(f"step {pid}\n")
    files.err.write_text("careful\n")
    job.poll()
    assert stdout() == "[x rank0] step 0\n[x rank0] careful\n"


def test_a_process_that_began_in_its_world_and_enters_it_is_shown_once(
    tmp_path: Path,
    pipe: tuple[int, int],
    stdout: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its files are named at its start, and again when it enters."""
    job = by_hand(pipe[1], monkeypatch)
    files = files_in(tmp_path)
    job.follow(7, files)
    files.out.write_text("one\n")
    job.poll()
    job.follow(7, files_in(tmp_path))
    job.poll()
    with files.out.open("a") as file:
        file.write("two\n")
    job.poll()
    assert stdout() == "[x rank0] one\n[x rank0] two\n"


def test_all_ranks_are_shown_where_that_is_wanted(
    tmp_path: Path,
    pipe: tuple[int, int],
    stdout: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = by_hand(pipe[1], monkeypatch, ForwardedRanks.ALL)
    for rank in (0, 1):
        files = files_in(tmp_path, rank=rank)
        files.out.write_text("a\n")
        job.follow(rank, files)
    job.poll()
    assert stdout() == "[x rank0] a\n[x rank1] a\n"


def test_rank_0_comes_and_goes_with_the_worlds(
    tmp_path: Path,
    pipe: tuple[int, int],
    stdout: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a process still writes into the file of the world before is shown for a while."""
    at_s = 0.0
    monkeypatch.setattr(module, "now_s", lambda: at_s)
    job = by_hand(pipe[1], monkeypatch)
    worlds = [files_in(tmp_path, number, rank) for number, rank in ((1, 0), (2, 1), (3, 0))]
    job.follow(7, worlds[0])
    worlds[0].out.write_text("one\n")
    job.poll()
    job.follow(7, worlds[1])
    worlds[1].out.write_text("two\n")
    with worlds[0].out.open("a") as file:
        file.write("last of one")
    job.poll()
    assert stdout() == "[x rank0] one\n"
    at_s = 100.0
    job.poll()
    assert stdout() == "[x rank0] last of one\n"
    job.follow(7, worlds[2])
    worlds[2].out.write_text("three\n")
    job.poll()
    assert stdout() == "[x rank0] three\n"


def test_a_reader_that_stopped_holds_up_one_thread_and_nobody_else(
    tmp_path: Path, pipe: tuple[int, int], stdout: Callable[[], str]
) -> None:
    """The end of the agent waits a bounded time; the reader finds the newest lines and a gap."""
    target = StdoutCopy(ForwardedRanks.RANK_0, pipe[1])
    job = target.of(JOB)
    assert job is not None
    files = files_in(tmp_path)
    line = "x" * 99 + "\n"
    files.out.write_text(line * (LOOK_BYTES // 200))
    job.follow(1, files)
    wait(lambda: not os_has_room(pipe[1]))
    with files.out.open("a") as file:
        file.write(line * (3 * LOOK_BYTES // 100))
        file.write("newest\n")
    job.forget(1)
    target.close(timeout_s=0.0)
    assert job.is_running, "its thread waits for the reader"
    found = ""

    def is_read() -> bool:
        nonlocal found
        found += stdout()
        return not job.is_running

    wait(is_read)
    assert "newest" not in found, "it was closed before anybody read"


def test_a_reader_that_goes_on_is_given_the_newest_lines_and_the_gap(
    tmp_path: Path, pipe: tuple[int, int], stdout: Callable[[], str]
) -> None:
    target = StdoutCopy(ForwardedRanks.RANK_0, pipe[1])
    job = target.of(JOB)
    assert job is not None
    files = files_in(tmp_path)
    line = "x" * 99 + "\n"
    files.out.write_text(line * (LOOK_BYTES // 200))
    job.follow(1, files)
    wait(lambda: not os_has_room(pipe[1]))
    with files.out.open("a") as file:
        file.write(line * (3 * LOOK_BYTES // 100) + "newest\n")
    found = ""

    def is_there() -> bool:
        nonlocal found
        found += stdout()
        return "newest" in found

    wait(is_there)
    target.close(patience_s(10.0))
    assert not job.is_running
    assert "bytes are not shown here" in found
    assert all(each.startswith("[x rank0] ") for each in found.splitlines())


def test_a_reader_that_has_gone_ends_the_forwarding_and_nothing_else(
    tmp_path: Path, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = StdoutCopy(ForwardedRanks.RANK_0, pipe[1])
    job = target.of(JOB)
    assert job is not None
    monkeypatch.setattr(job, "_run", lambda: None)
    files = files_in(tmp_path)
    files.out.write_text("a\n")
    os.close(pipe[0])
    job.follow(1, files)
    job.poll()
    assert target.is_closed
    job.follow(2, files_in(tmp_path, 2))
    job.poll()


def test_a_full_disk_costs_lines_and_says_so_later(
    tmp_path: Path,
    pipe: tuple[int, int],
    stdout: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    target = StdoutCopy(ForwardedRanks.RANK_0, full)
    job = target.of(JOB)
    assert job is not None
    monkeypatch.setattr(job, "_run", lambda: None)
    files = files_in(tmp_path)
    files.out.write_text("a\n")
    job.follow(1, files)
    job.poll()
    assert not target.is_closed
    os.dup2(pipe[1], full)
    files.err.write_text("b\n")
    with files.out.open("a") as file:
        file.write("c\n")
    job.poll()
    os.close(full)
    told, *lines = stdout().splitlines()
    assert "12 bytes are not shown" in told and lines == ["[x rank0] c", "[x rank0] b"]


def test_the_watch_of_a_job_tells_of_its_processes(
    tmp_path: Path, pipe: tuple[int, int], stdout: Callable[[], str]
) -> None:
    """Who it watches is followed, and its end brings the lines that are there."""
    target = StdoutCopy(ForwardedRanks.RANK_0, pipe[1])
    monitor = OutputMonitor(OutputLimits(), lambda news: None, forwarding=target.of(JOB))
    files = files_in(tmp_path)
    monitor.watch(3, files)
    files.out.write_text("to the end")
    monitor.forget(3)
    monitor.close()
    target.close(patience_s(10.0))
    assert stdout() == "[x rank0] to the end\n"


def os_has_room(fd: int) -> bool:
    """Whether a write of a whole batch would not wait."""
    return bool(select.select((), (fd,), (), 0)[1])


def wait(what: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + patience_s(20.0)
    while not what():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)

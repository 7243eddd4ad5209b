"""The thread that looks at the files of a job's workers."""

import errno
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from elasticd.control.logs.console import ERR, OUT
from elasticd.control.logs.log_hole import find_gap
from elasticd.control.logs.log_times import LogTimes
from elasticd_agent.output_monitor import output_monitor as module
from elasticd_agent.output_monitor.disk_limit import HEAD_BYTES
from elasticd_agent.output_monitor.output_monitor import OutputLimits, OutputMonitor, _Watched
from elasticd_agent.output_monitor.silence import Heard, News, Silent
from elasticd_agent.worker_setup.worker_env import WorkerFiles


def files_in(folder: Path, name: str = "rank-0") -> WorkerFiles:
    return WorkerFiles(
        out=folder / f"{name}.out", err=folder / f"{name}.err", error=folder / f"{name}.json"
    )


@pytest.fixture
def told() -> list[News]:
    return []


@pytest.fixture
def monitor(told: list[News], monkeypatch: pytest.MonkeyPatch) -> OutputMonitor:
    """One whose thread leaves the looking to the test."""
    made = OutputMonitor(OutputLimits(silence_s=2.0), told.append)
    monkeypatch.setattr(made, "_run", lambda: None)
    return made


def test_both_streams_count_as_output(
    tmp_path: Path, monitor: OutputMonitor, told: list[News]
) -> None:
    """Files that are not there yet are empty."""
    files = files_in(tmp_path)
    monitor.watch(7, files)
    for second in range(5):
        monitor.poll(float(second))
        if second == 3:
            files.err.write_text("warning")
    assert [type(news) for news in told] == [Silent, Heard]
    assert all(news.pid == 7 for news in told)


def test_steps_that_a_script_tells_count_as_output(tmp_path: Path, told: list[News]) -> None:
    """By `elasticd.progress`, of one that prints nothing."""
    steps = iter((0, 1, 2, 3, 3, 3, 3))
    monitor = OutputMonitor(OutputLimits(silence_s=2.0), told.append, lambda pid: next(steps))
    monitor._watched = {7: _Watched(files_in(tmp_path))}
    for second in range(5):
        monitor.poll(float(second))
        assert told == []
    monitor.poll(5.0)
    assert told == [Silent(pid=7, since_s=2.0)]


def test_process_that_was_forgotten_is_not_told(
    tmp_path: Path, monitor: OutputMonitor, told: list[News]
) -> None:
    """Also if that came while its files were looked at."""
    monitor.watch(7, files_in(tmp_path))
    monitor.poll(0.0)
    monitor.forget(7)
    monitor.poll(5.0)
    assert told == []


def test_times_of_what_was_written_are_noted(tmp_path: Path, monitor: OutputMonitor) -> None:
    """Every two seconds in which something was, and where the process writes by then."""
    files, later = files_in(tmp_path), files_in(tmp_path, "rank-1")
    monitor.watch(7, files)
    for second in range(6):
        with files.out.open("a") as file:
            file.write("x" * 10)
        monitor.poll(float(second))
    monitor.poll(10.0)
    monitor.poll(12.0)
    noted = LogTimes.parse(files.times.read_bytes(), OUT)
    assert list(noted.sizes) == [10, 30, 50, 60]
    monitor.watch(7, later)
    later.err.write_text("oh")
    monitor.poll(13.0)
    assert list(LogTimes.parse(later.times.read_bytes(), ERR).sizes) == [2]


def test_last_words_are_noted_when_a_process_has_ended(
    tmp_path: Path, monitor: OutputMonitor
) -> None:
    """Or writes elsewhere; they mostly come at once with the end."""
    first, second = files_in(tmp_path), files_in(tmp_path, "rank-1")
    monitor.watch(7, first)
    ends: tuple[tuple[WorkerFiles, Callable[[], None]], ...] = (
        (first, lambda: monitor.watch(7, second)),
        (second, lambda: monitor.forget(7)),
    )
    for files, end in ends:
        files.out.write_text("x" * 10)
        monitor.poll(0.0)
        files.out.write_text("x" * 15)
        end()
        monitor.poll(0.5)
        assert list(LogTimes.parse(files.times.read_bytes(), OUT).sizes) == [10, 15]


def test_folder_that_cannot_be_written_costs_the_times_alone(
    tmp_path: Path, monitor: OutputMonitor, told: list[News]
) -> None:
    """A full disk, say."""
    monitor.watch(7, files_in(tmp_path / "gone"))
    for second in range(4):
        monitor.poll(float(second))
    assert [type(news) for news in told] == [Silent]


def test_log_stays_below_its_limit_and_whoever_writes_does_not_notice(tmp_path: Path) -> None:
    """Its first and its last lines stay, at the offsets that they had; all of them are there."""
    files = files_in(tmp_path)
    monitor = OutputMonitor(OutputLimits(room_bytes=1 << 20), lambda news: None)
    with files.out.open("ab", buffering=0) as file:
        for number in range(40):
            file.write(b"".join(b"line %06d\n" % (number * 10_000 + n) for n in range(10_000)))
            monitor._watched = {7: _Watched(files)}
            monitor.poll(float(number))
            assert files.out.stat().st_blocks * 512 < (1 << 20) * 1.3 + HEAD_BYTES + 120_000
    data = files.out.read_bytes()
    assert len(data) == 400_000 * 12, "offsets stay"
    assert data.startswith(b"line 000000\n") and data.endswith(b"line 399999\n")
    kept = data.rstrip(b"\0").rpartition(b"\0")[2]
    assert len(kept) >= 1 << 20
    numbers = [int(line.split()[1]) for line in kept.splitlines()[1:]]
    assert numbers == list(range(numbers[0], 400_000))
    gap = find_gap(lambda at, count: data[at : at + count], data[: 1 << 17], 0, len(data))
    assert gap is not None and HEAD_BYTES <= gap.begin < 2 * HEAD_BYTES
    assert data[gap.end] != 0


def test_file_system_that_cannot_do_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log grows, and the job goes on."""
    calls = []

    def refused(path: Path, limit_bytes: int) -> int:
        calls.append(path)
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(module, "keep_below", refused)
    files = files_in(tmp_path)
    files.out.write_bytes(b"x" * (2 << 20))
    monitor = OutputMonitor(OutputLimits(room_bytes=1 << 20), lambda news: None)
    monitor._watched = {7: _Watched(files)}
    monitor.poll(0.0)
    monitor.poll(1.0)
    assert calls == [files.out]


def test_where_no_thread_can_be_started_the_next_process_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine has no process left: that must not end the job's part here."""

    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    made = OutputMonitor(OutputLimits(), lambda news: None)
    with monkeypatch.context() as without:
        without.setattr(Thread, "start", refuse)
        made.watch(7, files_in(tmp_path))
    assert made._thread is None
    made.watch(8, files_in(tmp_path, "rank-1"))
    assert made._thread is not None and made._thread.is_alive()
    made.close()

"""`elasticd logs`: which part of the output, and with what before each line."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from elasticd.cli.jobs import log_reader
from elasticd.cli.main import main
from elasticd.cli.progress.screen import Screen
from elasticd.control.logs.log_times import times_line
from elasticd.control.logs.output import LogName
from elasticd.records.ids import Generation
from elasticd.records.job import JobStatus
from elasticd.records.reason import Phase
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, end, put, world


@pytest.fixture
def now_s() -> float:
    """Of the test: this file may have been imported a quarter of an hour before."""
    return time.time()


@pytest.fixture
def folder(store: MemoryStore, tmp_path: Path, now_s: float) -> Path:
    """Two generations of a job on two nodes; what stood there was noted."""
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.SUCCEEDED, generation=Generation(2)))
    put(store, KEYS.world(JOB), world(2, "a", "b"))
    for generation, ago_s in ((1, 7200.0), (2, 600.0)):
        place = tmp_path / JOB / f"gen-{generation}"
        place.mkdir(parents=True)
        for rank in range(2):
            lines = [f"{generation}.{rank}.{number}\n" for number in range(4)]
            (place / f"rank-{rank}.out").write_text("".join(lines))
            (place / f"rank-{rank}.err").write_text(f"err {generation}\n")
            times = times_line(now_s - ago_s, 12, 0) + times_line(now_s - ago_s + 300, 24, 6)
            (place / f"rank-{rank}.times").write_bytes(times)
    return tmp_path / JOB


def test_last_lines_are_those_of_all_generations(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of each stream so many, in the order in which they were written."""
    assert main(["logs", JOB, "--tail", "5"]) == 0
    shown = capfd.readouterr()
    assert shown.out == "1.0.3\n2.0.0\n2.0.1\n2.0.2\n2.0.3\n"
    assert shown.err == "err 1\nerr 2\n"
    assert main(["logs", JOB, "--tail", "1", "--rank", "1"]) == 0
    assert capfd.readouterr().out == "2.1.3\n"
    assert main(["logs", JOB, "--tail", "0"]) == 0
    assert capfd.readouterr().out == ""


def test_output_since_a_time_is_what_was_written_from_then_on(
    folder: Path, capfd: pytest.CaptureFixture[str], now_s: float
) -> None:
    """By the notes of the agents, here half of the second generation."""
    assert main(["logs", JOB, "--since", "9m"]) == 0
    assert capfd.readouterr().out == "2.0.2\n2.0.3\n"
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now_s - 9 * 60))
    assert main(["logs", JOB, "--since", when]) == 0
    assert capfd.readouterr().out == "2.0.2\n2.0.3\n"
    assert main(["logs", JOB, "--since", "9m ago"]) == 0
    assert capfd.readouterr().out == "2.0.2\n2.0.3\n"
    assert main(["logs", JOB, "--since", "1m"]) == 0
    assert capfd.readouterr().out == ""


def test_times_stand_before_the_lines(
    folder: Path, capfd: pytest.CaptureFixture[str], now_s: float
) -> None:
    """Those by which the line stood there."""
    assert main(["logs", JOB, "--timestamps", "--generation", "2"]) == 0
    stamps = [
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(int(now_s - ago_s)))
        for ago_s in (600, 600, 300, 300)
    ]
    lines = [f"{stamp} 2.0.{number}" for number, stamp in enumerate(stamps)]
    assert capfd.readouterr().out.splitlines() == lines


def test_ranks_of_a_node_are_shown_together(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By where they are now; a node that has none is refused with those that have."""
    assert main(["logs", JOB, "--node", "b", "--tail", "1"]) == 0
    assert capfd.readouterr().out == "2.1.3\n"
    assert main(["logs", JOB, "--node", "c"]) == 2
    assert f"Job '{JOB}' has no rank on a node 'c': it has a, b" in capfd.readouterr().err
    assert main(["logs", JOB, "--node", "b", "--rank", "1"]) == 2
    assert "leave one of them out" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--tail", "-1"), "-1 is below 0"),
        (("--tail", "many"), "'many' is not a whole number"),
        (("--since", "yesterday"), "'yesterday' is no time: write 90s, 10m, 2h or 1d, which is so"),
        (("--since", "ago"), "'ago' is no time"),
        (("--rank", "9"), "no output of rank 9 of job 'j' here or on a node that answers: its new"),
        (("--generation", "3"), "has no generation 3: its newest is 2; `elasticd why"),
        (("--generation", "2", "--rank", "9"), "no output of rank 9 in generation 2 of job"),
        (("--node", "../x"), "node"),
        (("-f", "--json"), "--json is for output that exists already"),
        (("-f", "--generation", "1"), "--generation is for output that exists already"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    flags: tuple[str, ...], words: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before anything is read."""
    assert main(["logs", JOB, *flags]) == 2
    said = capfd.readouterr().err
    assert words in said and said.count("\n") == 1


def test_following_begins_with_what_is_wanted_and_goes_on_with_everything(
    store: MemoryStore,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    now_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time of a line that is just written is that of now."""
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.RUNNING, generation=Generation(2)))

    def goes_on() -> None:
        with (folder / "gen-2" / "rank-1.out").open("a") as file:
            file.write("last\n")
        end(store)

    shown = Screen.output

    def show(screen: Screen, stream: int, data: bytes) -> None:
        shown(screen, stream, data)
        if b"2.1.3" in data:
            goes_on()

    monkeypatch.setattr(Screen, "output", show)
    assert main(["logs", JOB, "-f", "--tail", "1", "--node", "b", "--timestamps"]) == 0
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert [line[2] for line in lines] == ["2.1.3", "last"]
    day, at, _ = lines[1]
    assert time.mktime(time.strptime(f"{day} {at}", "%Y-%m-%d %H:%M:%S")) >= int(now_s)


def test_following_ends_with_the_reader_of_the_pipe(
    store: MemoryStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `elasticd logs -f JOB | head -1`: nobody reads the rest, however long the job lasts."""
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.RUNNING, generation=Generation(2)))
    reading, writing = os.pipe()
    os.close(reading)
    job_end = threading.Timer(20.0, end, (store,))
    job_end.start()
    try:
        with os.fdopen(writing, "w") as pipe, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", pipe)
            assert main(["logs", JOB, "-f"]) == 128 + signal.SIGPIPE
    finally:
        job_end.cancel()


def test_what_was_dropped_is_passed_over_and_said(
    store: MemoryStore, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A hole reads as zeros, which nobody wants in a terminal."""
    log = folder / "gen-2" / "rank-0.out"
    log.write_bytes(b"first\n" + b"x" * (8186) + bytes(1 << 22) + b"last\n")
    assert main(["logs", JOB, "--generation", "2"]) == 0
    shown = capfd.readouterr().out
    assert "\0" not in shown and shown.startswith("first\n") and shown.endswith("last\n")
    assert "[elasticd] 4194304 bytes of output were dropped here: --log-max\n" in shown


def test_job_may_have_more_generations_than_a_process_may_have_open_files(
    store: MemoryStore,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each failure makes one, so a run of weeks has hundreds; a shell allows 1,024 files."""
    count = 60
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.SUCCEEDED, generation=Generation(count)))
    for generation in range(1, count + 1):
        place = tmp_path / JOB / f"gen-{generation}"
        place.mkdir(parents=True)
        for suffix in ("out", "err"):
            (place / f"rank-0.{suffix}").write_text(f"{generation}\n")
    wanted = "".join(f"{generation}\n" for generation in range(1, count + 1))
    open_files: list[int] = []
    printed = log_reader._print

    def counted(name: LogName, data: bytes, *, is_json: bool) -> None:
        open_files.append(open_below(tmp_path))
        printed(name, data, is_json=is_json)

    monkeypatch.setattr(log_reader, "_print", counted)
    for more in ([], ["--tail", "1000"]):
        assert main(["logs", JOB, *more]) == 0
        shown = capfd.readouterr()
        assert (shown.out, shown.err) == (wanted, wanted)
    assert len(open_files) == 4 * count and max(open_files) <= 1


def open_below(folder: Path) -> int:
    """Return how many files of this folder the process has open.

    Not a limit on its descriptors: threads that other tests have left take some of them, at times.
    """
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # It was closed meanwhile.
            count += os.readlink(f"/proc/self/fd/{descriptor}").startswith(f"{folder}/")
    return count

"""Stacks of workers: who is asked, who is looked at, and that nobody waits for it."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from elasticd.channel.worker import Dump, ToWorker
from elasticd.records.ids import Generation, JobName, NodeId, Rank
from elasticd_agent.liveness import stack_dump
from elasticd_agent.liveness.stack_dump import StackCollector, SuspectWorker, stacks_path
from tests.fixtures.cluster import until
from tests.fixtures.open_files import open_files, wait_until_closed
from tests.fixtures.patience import patience_s

WAIT_S = patience_s(30.0)
GONE = 2**22 + 1
"""Above every process number that Linux gives."""
BUDGET_S = stack_dump.BUDGET_S
SPY_S = 0.45
"""How long py-spy has, out of that budget."""


@pytest.fixture(autouse=True)
def _no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine take its time: the timer is the last resort, and has a test of its own.

    It would call `done` from another thread, at any moment that this one stands still.
    """
    monkeypatch.setattr(stack_dump, "BUDGET_S", WAIT_S)
    monkeypatch.setattr(stack_dump, "_MARGIN_S", WAIT_S - SPY_S)


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return stacks_path(tmp_path, JobName("digits"), Generation(7), NodeId("n1"))


def collector(*answers: int, py_spy: str = "") -> StackCollector:
    """One whose workers answer at once, if they are among these."""

    def tell(pid: int, message: ToWorker) -> None:
        assert message == Dump()
        if pid in answers:
            made.take_answer(pid, f"here stands {pid}\x1b[2J\n\tin a line\ud800")

    made = StackCollector(tell, search_path=os.defpath, py_spy=py_spy)
    return made


def collected(made: StackCollector, path: Path, *workers: SuspectWorker) -> str:
    """Collect and return what was written; `done` came before, and once."""
    done = Queue[bool]()
    made.collect(path, workers, lambda: done.put(path.exists()))
    was_there = done.get(timeout=WAIT_S)
    assert not was_there
    deadline_s = time.monotonic() + WAIT_S
    while made._running and time.monotonic() < deadline_s:
        time.sleep(0.005)
    assert done.empty()
    return path.read_text()


def standing(pid: int, rank: int = 0, *, is_frozen: bool = False, note: str = "") -> SuspectWorker:
    return SuspectWorker(pid=pid, rank=Rank(rank), is_frozen=is_frozen, note=note)


def fake_spy(folder: Path, script: str) -> str:
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_file_is_named_for_generation_and_node(path: Path, tmp_path: Path) -> None:
    """Where a person and the incident look for it."""
    assert path == tmp_path / "digits" / "incidents" / "gen-7.n1.stacks.txt"


def test_those_that_answer_are_asked(path: Path) -> None:
    """Each in a section with its rank, without what would steer a terminal."""
    text = collected(collector(11, 12), path, standing(11), standing(12, 3, note="stalled"))
    assert "=== rank 0, pid 11 ===\nhere stands 11" in text
    assert "=== rank 3, pid 12: stalled ===\nhere stands 12" in text
    assert "\x1b" not in text
    assert "\n\tin a line" in text


def test_ranks_are_asked_before_they_can_be_told_anything_else(path: Path) -> None:
    """Else they would have left where they waited by the time that they answer."""
    askers: list[threading.Thread] = []
    asking = StackCollector(
        lambda pid, message: askers.append(threading.current_thread()),
        search_path=os.defpath,
        py_spy="",
    )
    done = threading.Event()
    asking.collect(path, [standing(11), standing(12, is_frozen=True)], done.set)
    assert askers == [threading.current_thread()]
    assert done.wait(2 * WAIT_S)


def test_frozen_one_is_not_asked_but_looked_at(path: Path, sleeper: int) -> None:
    """Its threads, as the kernel sees them."""
    text = collected(collector(sleeper), path, standing(sleeper, is_frozen=True))
    assert f"pid {sleeper}, frozen ===\n" in text
    assert f"thread {sleeper} (sleep): state " in text
    assert "here stands" not in text


def test_one_that_does_not_answer_is_looked_at(path: Path, sleeper: int) -> None:
    """And does not cost the others their sections."""
    text = collected(collector(11), path, standing(sleeper), standing(11, 1))
    assert "It did not answer.\n" in text
    assert f"thread {sleeper} (sleep): state " in text
    assert "here stands 11" in text


def test_one_that_is_gone_is_said_to_be(path: Path) -> None:
    """It may end while it is looked for."""
    text = collected(collector(), path, standing(GONE, is_frozen=True))
    assert "The process is gone." in text


def test_second_collection_keeps_the_first(path: Path) -> None:
    """A generation may have more than one hung worker."""
    made = collector(11)
    made.collect(path, [standing(11, note="first")], lambda: None)
    while made._running:
        time.sleep(0.005)
    made.collect(path, [standing(11, note="second")], lambda: None)
    while made._running:
        time.sleep(0.005)
    text = path.read_text()
    assert text.index("first") < text.index("second")


def test_late_answer_is_dropped(path: Path) -> None:
    """Nobody waits for it, and nothing is kept."""
    made = collector(11)
    collected(made, path, standing(11))
    made.take_answer(11, "late")
    made.take_answer(99, "never asked")
    assert not made._said
    assert not made._wanted


def test_py_spy_adds_what_it_finds(
    path: Path, sleeper: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the kernel's view, and without stopping the process."""
    monkeypatch.setattr(stack_dump, "_MARGIN_S", 0.0)  # A shell must begin in what is left.
    spy = fake_spy(tmp_path, 'echo "spied with $*"')
    text = collected(collector(py_spy=spy), path, standing(sleeper, is_frozen=True))
    assert f"spied with dump --nonblocking --pid {sleeper}" in text
    assert text.index("spied") < text.index(": state ")


@pytest.mark.parametrize("script", ["echo no permission; exit 1", "exec sleep 1000", "kill -9 $$"])
def test_py_spy_that_fails_leaves_the_kernels_view(
    path: Path, sleeper: int, tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it may not look, hangs, or dies; nothing of it is left."""
    spies: list[int] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **more: Any) -> None:
            super().__init__(command, **more)
            if command[0] == spy:
                spies.append(self.pid)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    spy = fake_spy(tmp_path, script)
    text = collected(collector(py_spy=spy), path, standing(sleeper, is_frozen=True))
    assert "py-spy: " in text
    assert ": state " in text
    deadline_s = time.monotonic() + WAIT_S
    (pid,) = spies
    while (left := Path(f"/proc/{pid}").exists()) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not left


def test_py_spy_that_cannot_be_started_is_no_harm(path: Path, sleeper: int, tmp_path: Path) -> None:
    """Its file is gone, or no program."""
    made = collector(py_spy=str(tmp_path / "nothing"))
    assert ": state " in collected(made, path, standing(sleeper, is_frozen=True))


def test_recovery_does_not_wait_for_what_hangs(
    path: Path, sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if reading /proc never returns, `done` is called."""
    hold = Queue[str]()
    monkeypatch.setattr(stack_dump, "_kernel_view", lambda pid: hold.get(timeout=WAIT_S))
    monkeypatch.setattr(stack_dump, "BUDGET_S", BUDGET_S)
    done = Queue[bool]()
    made = collector()
    made.collect(path, [standing(sleeper, is_frozen=True)], lambda: done.put(True))
    assert done.get(timeout=WAIT_S / 2)
    assert not path.exists()
    hold.put("at last")
    while made._running:
        time.sleep(0.005)
    assert "at last" in path.read_text()
    assert done.empty()


def test_more_collections_than_allowed_are_answered_at_once(
    path: Path, sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill is never held up by the stacks of others."""
    hold = Queue[str]()
    monkeypatch.setattr(stack_dump, "_kernel_view", lambda pid: hold.get(timeout=WAIT_S))
    done = Queue[int]()
    made = collector()
    for _ in range(stack_dump.COLLECTIONS_LIMIT):
        made.collect(path, [standing(sleeper, is_frozen=True)], lambda: None)
    made.collect(path, [standing(sleeper, is_frozen=True)], lambda: done.put(1))
    assert done.get_nowait() == 1
    for _ in range(stack_dump.COLLECTIONS_LIMIT):
        hold.put("")
    while made._running:
        time.sleep(0.005)


def test_folder_that_cannot_be_written_is_no_harm(tmp_path: Path) -> None:
    """The disk is full or not ours: recovery comes first."""
    (tmp_path / "digits").write_text("a file in the way")
    path = stacks_path(tmp_path, JobName("digits"), Generation(7), NodeId("n1"))
    done = Queue[bool]()
    made = collector(11)
    made.collect(path, [standing(11)], lambda: done.put(True))
    assert done.get(timeout=WAIT_S)
    while made._running:
        time.sleep(0.005)


def test_descriptors_are_given_back(path: Path, sleeper: int, tmp_path: Path) -> None:
    """However often it happens."""
    made = collector(py_spy=fake_spy(tmp_path, "echo x"))
    before = open_files()
    for _ in range(20):
        made.collect(path, [standing(sleeper, is_frozen=True)], lambda: None)
        while made._running:
            time.sleep(0.005)
    wait_until_closed(before)


def test_interpreters_own_py_spy_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the interpreter first, then on PATH; none is no error."""
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        fake_spy(folder, "")
    monkeypatch.setattr(sys, "executable", str(own / "python"))

    def found() -> str:
        return StackCollector(lambda pid, message: None, search_path=str(other)).py_spy

    assert found() == str(own / "py-spy")
    (own / "py-spy").unlink()
    assert found() == str(other / "py-spy")
    (other / "py-spy").unlink()
    assert found() == ""


@pytest.mark.parametrize("refused", ["stacks", "Timer"])
def test_recovery_goes_on_where_no_thread_is_left(
    path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """The worker that hangs would else never be killed, or the whole job be given up here."""
    made, start = collector(1), threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if refused in (thread.name, type(thread).__name__):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(stack_dump.COLLECTIONS_LIMIT + 1):
        done = threading.Event()
        made.collect(path, (standing(1),), done.set)
        assert done.wait(WAIT_S)
        until(lambda: not made._running, lambda: made._running)
    monkeypatch.setattr(threading.Thread, "start", start)
    assert "here stands 1" in collected(made, path.with_name("later"), standing(1))

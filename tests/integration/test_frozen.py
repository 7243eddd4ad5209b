"""Real processes that stand still, or seem to: who is called frozen."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Queue

import pytest

from elasticd.records.ids import Generation, JobName, NodeId, Rank
from elasticd_agent.liveness import stack_dump
from elasticd_agent.liveness.proc_sample import read_sample
from elasticd_agent.liveness.stack_dump import SuspectWorker, stacks_path
from elasticd_agent.liveness.stopped_start import StoppedStarts
from tests.fixtures.patience import patience_s
from tests.fixtures.stopped import stopped
from tests.fixtures.watched_node import WatchedNode

WAIT_S = patience_s(60.0)


@pytest.fixture
def node() -> Iterator[WatchedNode]:
    node = WatchedNode()
    yield node
    node.close()


def test_stopped_process_is_frozen(node: WatchedNode) -> None:
    """SIGSTOP, of one of two."""
    pid, other = node.start("wait"), node.start("wait")
    time.sleep(1.0)
    os.kill(pid, signal.SIGSTOP)
    verdict = node.frozen()
    assert verdict.pid == pid
    assert "stopped" in verdict.why
    node.assert_none_frozen(2.0)
    assert other != pid


@pytest.mark.parametrize("others", [0, 1])
def test_process_that_is_stopped_before_it_calls_run_is_frozen(
    node: WatchedNode, others: int
) -> None:
    """Whether or not other workers send heartbeats; one that only takes its time is not."""
    limit_s = 3.0
    node.monitor._starts = StoppedStarts(limit_s=limit_s, pause_s=0.2)
    for _ in range(others):
        node.start("wait")
    slow, pid = node.prepare(), node.prepare()
    began_s = time.monotonic()
    node.assert_none_frozen(1.0)
    os.kill(pid, signal.SIGSTOP)
    verdict = node.frozen()
    assert (verdict.pid, verdict.has_run) == (pid, False)
    assert "before it called elasticd.run" in verdict.why
    assert time.monotonic() - began_s >= 1.0 + limit_s - 0.2
    node.assert_none_frozen(2 * limit_s)
    assert slow != pid


def test_heartbeats_are_judged_at_once_while_another_worker_starts(node: WatchedNode) -> None:
    """The looks at a start are seldom; they do not make those at heartbeats seldom."""
    node.monitor._starts = StoppedStarts(limit_s=1000.0, pause_s=500.0)
    node.prepare()
    time.sleep(0.5)
    pid = node.start("wait")
    os.kill(pid, signal.SIGSTOP)
    assert node.frozen().pid == pid


def test_process_that_sleeps_with_the_gil_is_frozen(node: WatchedNode) -> None:
    """In a C call that does not let it go, while the others want it."""
    pid = node.start("gil")
    verdict = node.frozen()
    assert verdict.pid == pid
    assert "GIL" in verdict.why


def test_process_that_computes_with_the_gil_is_not_frozen(node: WatchedNode) -> None:
    """Its beats stop all the same."""
    pid = node.start("compute")
    node.assert_none_frozen(4.0)
    deadline_s = time.monotonic() + WAIT_S
    while (sample := read_sample(pid)) is None or sample.cpu_s <= 0.5:
        assert time.monotonic() < deadline_s, sample
        node.assert_none_frozen(0.5)


@pytest.mark.parametrize("way", ["wait", "spin", "compute"])
def test_starved_process_is_not_frozen(node: WatchedNode, way: str) -> None:
    """It runs only when nobody else wants to, on a machine with four times the work it can do."""
    pid = node.start(way)
    for task in os.listdir(f"/proc/{pid}/task"):
        with suppress(ProcessLookupError):  # A thread that ended meanwhile.
            os.sched_setscheduler(int(task), os.SCHED_IDLE, os.sched_param(0))
    for _ in range(4 * (os.cpu_count() or 1)):
        node.load()
    node.assert_none_frozen(6.0)


def test_stopped_process_is_frozen_under_load_too(node: WatchedNode) -> None:
    """A busy machine delays the verdict, and does not prevent it."""
    pid = node.start("wait")
    for _ in range(4 * (os.cpu_count() or 1)):
        node.load()
    time.sleep(0.5)
    os.kill(pid, signal.SIGSTOP)
    assert node.frozen().pid == pid


def test_stopped_agent_accuses_nobody() -> None:
    """It wakes up with an old clock in hand; all that its workers said lies unread (P9)."""
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fixtures.watched_node"],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "ready\n"
        agent.send_signal(signal.SIGSTOP)
        time.sleep(3.0)
        agent.send_signal(signal.SIGCONT)
        time.sleep(2.0)
        assert agent.communicate(timeout=WAIT_S)[0] == "verdicts 0 workers 3\n"


def test_stacks_tell_where_each_stands(
    node: WatchedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a stopped one, of one that holds the GIL, of one that answers, with a core to do so."""
    monkeypatch.setattr(stack_dump, "ANSWER_S", WAIT_S / 2)
    monkeypatch.setattr(stack_dump, "BUDGET_S", WAIT_S)
    workers = [node.start(way) for way in ("wait", "gil", "wait")]
    assert node.frozen().pid == workers[1]
    path = stacks_path(tmp_path, JobName("j"), Generation(3), NodeId("n1"))
    done = Queue[float]()
    standings = [
        SuspectWorker(pid=pid, rank=Rank(rank), is_frozen=rank < 2)
        for rank, pid in enumerate(workers)
    ]
    # A signal takes effect when its process is scheduled, not when it is sent.
    with stopped(workers[0]):
        node.monitor.write_stacks(path, standings, lambda: done.put(time.monotonic()))
        done.get(timeout=WAIT_S)
        deadline_s = time.monotonic() + WAIT_S
        # The file is there before all of it is written.
        while not (path.exists() and path.read_text().count("=== rank ") == 3):
            assert time.monotonic() < deadline_s, path
            time.sleep(0.01)
    text = path.read_text()
    sections = dict(zip(("stopped", "gil", "alive"), text.split("=== rank ")[1:], strict=True))
    assert "state T" in sections["stopped"]
    assert "state S" in sections["gil"]
    assert "stand_here" in sections["alive"]
    if node.monitor._stacks.py_spy:
        assert "py-spy" in sections["gil"] or "stand_here" in sections["gil"]

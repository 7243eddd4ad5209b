"""What /proc says of real processes of ours."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from elasticd_agent.pool.process import process_table
from elasticd_agent.pool.process.mark import MARK
from elasticd_agent.pool.process.subtree import Subtree
from tests.fixtures.patience import patience_s


def _is_asleep(pid: int) -> bool:
    found = process_table.look_up(pid)
    return found is not None and found.state == "S"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, with a mark and a name that is hard to read."""
    process = subprocess.Popen(
        ["sleep", "1000"], start_new_session=True, env={**os.environ, MARK: "w) 1 (x"}
    )
    # Popen returns in the middle of the exec: the kernel shows the new environment a moment later,
    # and the program sleeps after another one.
    deadline_s = time.monotonic() + patience_s(20.0)
    while not (process_table.mark_of(process.pid) and _is_asleep(process.pid)):
        assert time.monotonic() < deadline_s
        time.sleep(0.001)
    yield process
    process.kill()
    process.wait()


def test_process_is_found_with_parent_session_and_mark(sleeper: subprocess.Popen[bytes]) -> None:
    """The facts by which an orphan is attributed."""
    found = process_table.look_up(sleeper.pid)
    assert found is not None
    assert (found.parent, found.session) == (os.getpid(), sleeper.pid)
    assert process_table.mark_of(sleeper.pid) == "w) 1 (x"
    # A thread that ends meanwhile may hide some: asked again, as the callers do.
    assert any(sleeper.pid in process_table.children_of(os.getpid()) for _ in range(10))


def test_children_are_found_by_scan_too(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For kernels that do not list children."""
    monkeypatch.setattr(os, "listdir", lambda path, real=os.listdir: _hidden(real, path))
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    assert sleeper.pid in process_table.children_of(os.getpid())


def _hidden(real: object, path: str) -> list[str]:
    if path.endswith("/task"):
        raise FileNotFoundError
    assert callable(real)
    return list(real(path))


def test_killed_process_is_gone_though_nobody_reaped_it(sleeper: subprocess.Popen[bytes]) -> None:
    """A zombie holds nothing; another process under the same pid is another."""
    subtree = Subtree()
    subtree.kill(sleeper.pid)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert subtree.is_gone()
    assert not process_table.is_running(os.getpid(), started=1)


def test_subtree_dies_with_a_child_in_its_own_session() -> None:
    """From the top down, by kinship, not by group."""
    # One write each: two processes that print share the pipe, and a line may be torn.
    script = (
        "import os, time\nif os.fork() == 0: os.setsid()\nos.write(1, b'%d\\n' % os.getpid())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script + "time.sleep(1000)"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    pids = [int(process.stdout.readline()) for _ in range(2)]
    child = process_table.look_up(next(pid for pid in pids if pid != process.pid))
    assert child is not None
    subtree = Subtree()
    subtree.kill(process.pid)
    process.wait()
    while process_table.is_running(child.pid, child.started):
        pass
    assert subtree.is_gone()


def test_another_process_under_the_same_pid_is_left_alone(
    sleeper: subprocess.Popen[bytes],
) -> None:
    """Whoever is not the parent may come when the pid is given anew."""
    found = process_table.look_up(sleeper.pid)
    assert found is not None
    Subtree().kill(sleeper.pid, found.started - 1)
    still = process_table.look_up(sleeper.pid)
    assert still is not None and still.state == "S" and sleeper.poll() is None
    Subtree().kill(sleeper.pid, found.started)
    assert sleeper.wait() == -9


def test_absent_process_is_nothing() -> None:
    """It may have ended since we heard of it."""
    assert process_table.look_up(2**22 + 1) is None
    assert process_table.children_of(2**22 + 1) == []
    assert process_table.mark_of(2**22 + 1) == ""


def test_memory_of_a_process_that_lives_is_not_being_freed(
    sleeper: subprocess.Popen[bytes],
) -> None:
    """Nor is that of one whose memory is gone and that nobody has reaped."""
    assert not process_table.is_being_freed(sleeper.pid)
    assert not process_table.is_being_freed(os.getpid()), "running, and not at its end"
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert process_table.killed_by(sleeper.pid) == 9
    assert not process_table.is_being_freed(sleeper.pid)

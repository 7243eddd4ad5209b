"""What runs inside a pod, with real processes: it finds workers, and undoes its own stop."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chaos.cluster import in_pod
from chaos.cluster.observation import Worker, workers
from elasticd.telemetry.process_title import worker_title
from elasticd_agent.pool.process.mark import MARK
from tests.fixtures.patience import patience_s

ASLEEP = [sys.executable, "-c", "import sys, time; print(flush=True); time.sleep(600)"]


def ran(*words: str, source: str = "") -> dict[str, Any]:
    """Run the text of the program as a pod does: without this project, by words alone."""
    command = [sys.executable, "-I", "-c", source or inspect.getsource(in_pod), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s(60.0))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def worker() -> Iterator["subprocess.Popen[str]"]:
    """A process with the mark that elasticd gives to its workers."""
    env = {**os.environ, "ELASTICD_WORKER": "w-1", "ELASTICD_JOB": "default.x", "RANK": "2"}
    with subprocess.Popen(ASLEEP, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def seen(process: "subprocess.Popen[str]") -> Worker | None:
    found = workers(ran("look")["workers"])
    return next((one for one in found if one.pid == process.pid), None)


def stopped_and_continued(pid: int) -> set[int]:
    """Wait until a child of ours goes on after a stop; return the signals seen to have stopped it.

    The kernel names a stop only while it lasts, which may be over before anybody asks; that a
    process goes on it tells of those alone that had stopped.
    """
    stops: set[int] = set()
    until_s = time.monotonic() + patience_s(10.0)
    while time.monotonic() < until_s:
        found, status = os.waitpid(pid, os.WUNTRACED | os.WCONTINUED | os.WNOHANG)
        if found and os.WIFCONTINUED(status):
            return stops
        if found:
            stops.add(os.WSTOPSIG(status))
        else:
            time.sleep(0.02)
    raise AssertionError(f"the process did not go on; it was stopped by {stops}")


def test_a_worker_is_found_with_its_job_and_rank(worker: "subprocess.Popen[str]") -> None:
    found = seen(worker)
    assert found is not None and (found.job, found.rank) == ("default.x", 2)


@pytest.mark.parametrize("mark", ["", "_" * 200])
def test_a_process_without_a_name_is_no_worker(mark: str) -> None:
    """The pool from which workers are forked has room for one, and none."""
    env = {**os.environ, "ELASTICD_WORKER": mark, "ELASTICD_JOB": "default.x"}
    with subprocess.Popen(ASLEEP, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = seen(process)
        process.kill()
    assert found is None


def test_what_a_worker_has_started_is_no_worker() -> None:
    """As a loader of data: it has the worker's mark as well, and the worker is its parent."""
    env = {**os.environ, "ELASTICD_WORKER": "w-1", "ELASTICD_JOB": "default.x"}
    starts = f"import subprocess; print(flush=True); subprocess.run({ASLEEP!r})"
    command = [sys.executable, "-c", starts]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()  # The child's own line.
        listed = workers(ran("look")["workers"])
        (child,) = map(int, _children(process.pid))
        os.kill(child, signal.SIGKILL)
    assert process.pid in {one.pid for one in listed}
    assert child not in {one.pid for one in listed}


def test_a_title_says_job_and_rank_of_a_worker_that_was_forked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its environment, as /proc shows it, is that of the pool."""
    me = os.getpid()
    files = {"environ": b"ELASTICD_WORKER=w-7\0", "cmdline": b"elasticd: default.y rank 3\0\0"}
    real = in_pod.read
    monkeypatch.setattr(os, "listdir", lambda _: [str(me)])
    monkeypatch.setattr(in_pod, "read", lambda pid, name: files.get(name) or real(pid, name))
    (found,) = workers(in_pod.look()["workers"])
    assert (found.job, found.rank) == ("default.y", 3)
    files["cmdline"] = b"elasticd: default.y waits for a world\0"
    (found,) = workers(in_pod.look()["workers"])
    assert (found.job, found.rank) == ("default.y", None)


@pytest.mark.parametrize("rank", [3, None])
def test_marks_and_titles_are_those_that_elasticd_writes(rank: int | None) -> None:
    """The program inside the pod imports nothing of it, so it repeats them."""
    assert f"{MARK}=".encode() == in_pod.MARK
    title, _ = worker_title("default.x", rank)
    found = in_pod.TITLE.match(title.encode())
    assert found is not None and found[1] == b"default.x"
    assert found[2] == (b"3" if rank is not None else None)


def test_that_very_process_is_killed_and_no_other(worker: "subprocess.Popen[str]") -> None:
    """One that has its process number now is another process."""
    found = seen(worker)
    assert found is not None
    assert ran("kill", str(found.pid), str(found.ticks + 1)) == {"done": False}
    assert worker.poll() is None
    assert ran("kill", str(found.pid), str(found.ticks)) == {"done": True}
    assert worker.wait(patience_s(30.0)) == -signal.SIGKILL


def test_what_is_no_worker_is_not_killed() -> None:
    """Not even if somebody names it."""
    with subprocess.Popen(ASLEEP, stdout=subprocess.PIPE, text=True) as process:
        now = in_pod.stat(process.pid)
        assert now is not None
        assert ran("kill", str(process.pid), str(now[2])) == {"done": False}
        assert process.poll() is None
        process.kill()


def test_a_stopped_worker_goes_on_though_nobody_asks_for_it(
    worker: "subprocess.Popen[str]",
) -> None:
    """What stopped it has ended by then: so it goes on, too, if the Job of chaos has died."""
    found = seen(worker)
    assert found is not None
    assert ran("stop", str(found.pid), str(found.ticks), "0.3") == {"done": True}
    assert stopped_and_continued(worker.pid) <= {signal.SIGSTOP}


def test_no_stop_is_longer_than_the_longest(worker: "subprocess.Popen[str]") -> None:
    """Whatever it is told: a worker that stands still for ever would have to be undone."""
    found = seen(worker)
    assert found is not None and in_pod.LONGEST_S <= 60.0
    source = inspect.getsource(in_pod).replace("LONGEST_S = 60.0", "LONGEST_S = 0.2")
    assert ran("stop", str(found.pid), str(found.ticks), "1e9", source=source) == {"done": True}
    assert stopped_and_continued(worker.pid) <= {signal.SIGSTOP}


def _children(pid: int) -> list[str]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()

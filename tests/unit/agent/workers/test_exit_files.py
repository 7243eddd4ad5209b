"""What failed workers left behind is read beside the owner, and not for ever."""

import json
import os
from pathlib import Path
from threading import Thread

import pytest

from elasticd.channel.pool import Exited, Raised, Started
from elasticd.records.ids import Generation, Nonce, Slot
from elasticd_agent.liveness.kill_notice import Killed
from elasticd_agent.pod.memory import OomKills
from elasticd_agent.worker_setup.worker_env import WorkerFiles
from elasticd_agent.workers import exit_files
from elasticd_agent.workers.exit_files import ExitFiles
from elasticd_agent.workers.worker_process import WorkerProcess
from tests.fixtures.cluster import until
from tests.fixtures.patience import patience_s

NAME = "1.0.1"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that gets no core for two seconds reads no disk that hangs."""
    monkeypatch.setattr(exit_files, "READ_LIMIT_S", patience_s(30.0))


TRACEBACK = 'Traceback (most recent call last):\n  File "/x/t.py", line 3, in f\nKeyError: 7\n'


def process_in(folder: Path, generation: int = 1) -> WorkerProcess:
    files = WorkerFiles(out=folder / "out", err=folder / "err", error=folder / "error.json")
    return WorkerProcess(
        slot=Slot(0), nonce=Nonce(1), files=files, generation=Generation(generation)
    )


def test_worker_that_died_is_told_of_by_its_log(tmp_path: Path) -> None:
    """The pool knows an exit code alone."""
    (tmp_path / "err").write_text(TRACEBACK)
    told = ExitFiles({NAME: process_in(tmp_path)}).of(Exited(worker=NAME, code=1))
    assert told[NAME].exception == "KeyError: 7"


def test_worker_killed_for_want_of_memory_says_so(tmp_path: Path) -> None:
    """Below what its log ends with: an old traceback there is not why it was killed."""
    (tmp_path / "err").write_text(TRACEBACK)
    count = 0
    found = ExitFiles({NAME: process_in(tmp_path)}, OomKills(lambda: count, lambda: None))
    before = found.of(Exited(worker=NAME, code=-9))[NAME]
    assert before.exception == "KeyError: 7"
    found.forget(NAME)
    count += 1
    told = found.of(Exited(worker=NAME, code=-9))[NAME]
    assert told.exception.startswith("Out of memory: the kernel killed this process")
    assert told.traceback.endswith(f"KeyError: 7\n{told.exception}") and told.where == ""


def test_kill_for_want_of_memory_is_claimed_once(tmp_path: Path) -> None:
    """It is told when the kernel kills the worker, and again when that is reaped."""
    count = 0
    processes = {NAME: process_in(tmp_path), "1.1.1": process_in(tmp_path)}
    found = ExitFiles(processes, OomKills(lambda: count, lambda: None))
    count += 1
    told = found.of(Killed(worker=NAME, code=-9))[NAME]
    assert told.exception.startswith("Out of memory")
    assert found.of(Exited(worker="1.1.1", code=-9))["1.1.1"].exception == ""
    assert found.of(Exited(worker=NAME, code=-9))[NAME] == told


def test_end_that_the_pool_tells_first_is_the_same_in_the_notice_of_its_kill(
    tmp_path: Path,
) -> None:
    """The claim is made once, and whoever is heard first has it."""
    count = 0
    processes = {NAME: process_in(tmp_path)}
    found = ExitFiles(processes, OomKills(lambda: count, lambda: None))
    count += 1
    told = found.of(Exited(worker=NAME, code=-9))[NAME]
    assert found.of(Killed(worker=NAME, code=-9))[NAME] == told
    assert told.exception.startswith("Out of memory")
    del processes[NAME]
    found.forget(NAME)
    found.of(Killed(worker=NAME, code=-9))
    assert not found._ends, "what comes late is not kept"


def test_what_it_raised_is_remembered_until_it_has_ended(tmp_path: Path) -> None:
    """Both are failures of one worker: the second must not know less."""
    found = ExitFiles({NAME: process_in(tmp_path)})
    raised = Raised(
        worker=NAME,
        code=1,
        exception="ValueError: x",
        where="t.py:1",
        traceback="",
        has_group=False,
    )
    assert found.of(raised)[NAME].exception == "ValueError: x"
    assert found.of(Exited(worker=NAME, code=1))[NAME].exception == "ValueError: x"


def test_pool_that_ended_tells_of_all_its_workers(tmp_path: Path) -> None:
    """They died with it."""
    (tmp_path / "err").write_text(TRACEBACK)
    told = ExitFiles({NAME: process_in(tmp_path), "1.1.1": process_in(tmp_path)}).of(None)
    assert {each.exception for each in told.values()} == {"KeyError: 7"} and len(told) == 2


def test_disk_that_hangs_costs_the_account_and_not_the_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe that nobody writes to hangs whoever opens it, as a network's disk does."""
    monkeypatch.setattr(exit_files, "READ_LIMIT_S", 0.05)
    os.mkfifo(tmp_path / "error.json")
    told = ExitFiles({NAME: process_in(tmp_path)}).of(Exited(worker=NAME, code=-9))
    assert told[NAME].exception == "" and "in time" in told[NAME].traceback
    (tmp_path / "error.json").write_text(json.dumps({}))  # Lets the reader end.


def test_worker_is_forgotten_while_the_disk_of_another_hangs(tmp_path: Path) -> None:
    """The thread that owns all jobs forgets it, and waits for no disk."""
    processes = {NAME: process_in(tmp_path), "1.1.1": process_in(tmp_path)}
    found = ExitFiles(processes)
    os.mkfifo(tmp_path / "error.json")
    reader = Thread(target=found.of, args=(Killed(worker="1.1.1", code=-9),), daemon=True)
    reader.start()
    until(lambda: "1.1.1" in found._ends or found._lock.locked(), lambda: "it reads")
    forgetter = Thread(target=found.forget, args=(NAME,), daemon=True)
    forgetter.start()
    forgetter.join(patience_s(5.0))
    is_hung, is_forgotten = reader.is_alive(), not forgetter.is_alive()
    (tmp_path / "error.json").write_text(json.dumps({}))  # Lets the reader end.
    reader.join()
    assert is_hung and is_forgotten


def test_what_is_no_failure_is_not_read(tmp_path: Path) -> None:
    """Exit 0 in a world, or a start."""
    (tmp_path / "err").write_text(TRACEBACK)
    found = ExitFiles({NAME: process_in(tmp_path)})
    assert found.of(Exited(worker=NAME, code=0))[NAME].exception == ""
    assert found.of(Started(worker=NAME, pid=1)) == {}
    early = ExitFiles({NAME: process_in(tmp_path, generation=0)})
    assert early.of(Exited(worker=NAME, code=0))[NAME].exception == "KeyError: 7"


def test_nothing_is_kept_of_workers_that_ended(tmp_path: Path) -> None:
    """A job that is started anew a thousand times has as many tracebacks."""
    found = ExitFiles({NAME: process_in(tmp_path)})
    raised = Raised(
        worker=NAME, code=1, exception="E: x", where="t:1", traceback="", has_group=False
    )
    for ending in (Exited(worker=NAME, code=1), Exited(worker=NAME, code=0), None):
        found.of(raised)
        found.of(ending)
        assert found._raised == {}


def test_where_no_thread_can_be_started_it_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine has no process left: the job's other workers must not end with this one."""

    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refuse)
    (tmp_path / "err").write_text(TRACEBACK)
    told = ExitFiles({NAME: process_in(tmp_path)}).of(Exited(worker=NAME, code=1))
    assert told[NAME].exception == "KeyError: 7"

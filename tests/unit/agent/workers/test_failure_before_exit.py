"""A failure that is told before its worker is reaped reaches whoever serves the job by then."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elasticd.channel import pool as ch
from elasticd.records.ids import Generation, Incarnation, JobName, NodeId, Nonce, Slot
from elasticd.records.job import EntryKind, JobSpec
from elasticd.rendezvous import event as ev
from elasticd_agent.liveness.kill_notice import Killed
from elasticd_agent.worker_setup.worker_env import WorkerFiles
from elasticd_agent.workers import workers as module
from elasticd_agent.workers.exit_report import ExitReport
from elasticd_agent.workers.worker_process import WorkerProcess
from elasticd_agent.workers.workers import Workers

NAME = "1.0.1"
KILLED = Killed(worker=NAME, code=-9)


class Monitor:
    """Knows of no worker that lives."""

    name = "agent"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: None


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workers:
    """Of a job with one worker in its first world, whose pool does nothing."""
    pool = SimpleNamespace(send=lambda message: None, close=lambda: None)
    monkeypatch.setattr(module, "open_pool", lambda *args, **kwargs: pool)
    made = Workers(
        spec=JobSpec(name=JobName("j"), uid="u", entry_kind=EntryKind.COMMAND, entry="true"),
        node=NodeId("a"),
        host="host",
        address="127.0.0.1",
        environ=os.environ,
        run_folder=tmp_path,
        children=SimpleNamespace(oom_kills=None),  # type: ignore[arg-type]
        fork_server=None,
        monitor=Monitor(),  # type: ignore[arg-type]
        post=lambda call: call(),
    )
    files = WorkerFiles(out=tmp_path / "out", err=tmp_path / "err", error=tmp_path / "error.json")
    made._processes[NAME] = WorkerProcess(
        slot=Slot(0), nonce=Nonce(1), files=files, generation=Generation(1), pid=1 << 22
    )
    return made


def test_kill_is_told_before_the_worker_is_reaped(workers: Workers) -> None:
    told: list[ev.Event] = []
    workers.serve(Incarnation("a.1"), told.append, lambda trouble: None)
    told.clear()
    workers._handle(KILLED, {NAME: ExitReport()})
    workers._handle(ch.Exited(worker=NAME, code=-9), {NAME: ExitReport()})
    failed, exited = told
    assert isinstance(failed, ev.WorkerFailed) and failed.failure.signal == "SIGKILL"
    assert isinstance(exited, ev.WorkerExited) and exited.code == -9


def test_kill_while_nobody_serves_the_job_is_told_to_who_serves_it_next(workers: Workers) -> None:
    """It takes over the process, and must not offer it."""
    told: list[ev.Event] = []
    workers._handle(KILLED, {NAME: ExitReport()})
    workers.serve(Incarnation("a.2"), told.append, lambda trouble: None)
    kept, failed = told
    assert isinstance(kept, ev.WorkersKept) and kept.workers == ((Slot(0), Nonce(1)),)
    assert isinstance(failed, ev.WorkerFailed) and failed.failure.signal == "SIGKILL"


def test_kill_of_a_worker_that_was_reaped_is_nothing(workers: Workers) -> None:
    told: list[ev.Event] = []
    workers.serve(Incarnation("a.1"), told.append, lambda trouble: None)
    workers._handle(ch.Exited(worker=NAME, code=-9), {NAME: ExitReport()})
    told.clear()
    workers._handle(KILLED, {NAME: ExitReport()})
    assert told == []


def test_killed_worker_is_not_winding_down_and_one_that_raised_is(workers: Workers) -> None:
    """A worker that winds down has handlers of atexit to run."""
    workers._handle(KILLED, {NAME: ExitReport()})
    assert not workers.is_winding_down(Slot(0))
    raised = ch.Raised(worker=NAME, exception="KeyError: 1", where="", traceback="", has_group=True)
    workers._handle(raised, {NAME: ExitReport(exception="KeyError: 1")})
    assert workers.is_winding_down(Slot(0)) and not workers.is_winding_down(Slot(1))

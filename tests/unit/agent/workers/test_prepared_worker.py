"""What an agent expects of a worker that has started: only one that prepares is to call `run`."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elasticd.channel import pool as ch
from elasticd.records.ids import Generation, JobName, NodeId, Nonce, Slot
from elasticd.records.job import EntryKind, JobSpec
from elasticd_agent.worker_setup.worker_env import WorkerFiles
from elasticd_agent.workers import workers as module
from elasticd_agent.workers.worker_process import WorkerProcess
from elasticd_agent.workers.workers import Workers

PID = 1 << 22


class Monitor:
    """Keeps what it is told to expect."""

    name = "agent"

    def __init__(self) -> None:
        self.expected: list[tuple[int, bool]] = []

    def expect(self, pid: int, *, is_prepared: bool, **_: object) -> None:
        self.expected.append((pid, is_prepared))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: None


@pytest.mark.parametrize(("generation", "is_prepared"), [(0, True), (1, False)])
def test_only_a_worker_that_prepares_is_awaited_in_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generation: int, is_prepared: bool
) -> None:
    """A script of restart mode never calls it, and may be stopped by whoever likes to."""
    pool = SimpleNamespace(send=lambda message: None, close=lambda: None)
    monkeypatch.setattr(module, "open_pool", lambda *args, **kwargs: pool)
    monkeypatch.setattr(module, "notify_of_kill", lambda *args: None)
    monitor = Monitor()
    workers = Workers(
        spec=JobSpec(name=JobName("j"), uid="u", entry_kind=EntryKind.COMMAND, entry="true"),
        node=NodeId("a"),
        host="host",
        address="127.0.0.1",
        environ=os.environ,
        run_folder=tmp_path,
        children=SimpleNamespace(oom_kills=None),  # type: ignore[arg-type]
        fork_server=None,
        monitor=monitor,  # type: ignore[arg-type]
        post=lambda call: call(),
    )
    files = WorkerFiles(out=tmp_path / "out", err=tmp_path / "err", error=tmp_path / "error.json")
    workers._processes["w"] = WorkerProcess(
        slot=Slot(0), nonce=Nonce(1), files=files, generation=Generation(generation)
    )
    workers._handle(ch.Started(worker="w", pid=PID), {})
    assert monitor.expected == [(PID, is_prepared)]

"""`elasticd run` before its job is submitted."""

import signal
from pathlib import Path

import pytest

from elasticd.cli.run import foreground
from elasticd.cli.run.foreground import Foreground
from elasticd.cli.run.request import Mode, RunRequest
from elasticd.store.api import Store, StoreSettings
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, SPEC


def test_ctrl_c_before_the_job_is_submitted_submits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Etcd was slow: the job ran, with exit code 0, though its caller had given up."""
    store = MemoryStore()
    monkeypatch.setattr(store, "close", lambda: None)
    settings = StoreSettings(endpoints=("http://a:1",))
    request = RunRequest(mode=Mode.SUBMIT, job=JOB, draft=SPEC, store=settings, is_detached=True)
    run = Foreground(request, SPEC, tmp_path, {})

    def slow(*_: object) -> Store:
        run._interrupt.take(signal.SIGINT, None)
        return store

    monkeypatch.setattr(foreground, "open_store", slow)
    assert run.submit() == 130
    assert store.get(KEYS.spec(JOB)) is None
    assert "was not submitted" in capfd.readouterr().err

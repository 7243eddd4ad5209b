"""A process of the testbed is ended for certain, whoever reaps it."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.kube.testbed.daemon import Daemon


def test_process_that_is_reaped_between_two_signals_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `unshare`, which waits for it: it is gone when it is to be continued."""
    daemon = Daemon("sleep", ["sleep", "1000"], tmp_path)
    daemon.start()
    kill = os.kill

    def kill_and_reap(pid: int, number: int) -> None:
        kill(pid, number)
        while number == signal.SIGKILL and daemon.pid is not None:
            time.sleep(0.01)

    monkeypatch.setattr(os, "kill", kill_and_reap)
    daemon.kill()
    assert daemon.pid is None

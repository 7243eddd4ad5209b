"""A warm pool that stands still must not hold up its agent, and misses nothing."""

import os
import signal
import sys
from pathlib import Path
from queue import Queue

from elasticd.channel.pool import Exited, FromPool, License, PoolReady, Start
from elasticd.records.job import EntryKind
from elasticd_agent.workers.pool_client import PoolNotStarted, WarmPool
from tests.fixtures.pool import PATIENCE_S, ChildrenOfTest

MANY = 20_000
"""Of a message of some 40 bytes: several times what a socket holds."""


def test_stopped_pool_does_not_hold_up_its_agent(tmp_path: Path) -> None:
    """What was told meanwhile is carried out afterwards, in its order."""
    heard: Queue[FromPool | PoolNotStarted | None] = Queue()
    pool = WarmPool(
        python=sys.executable,
        env=dict(os.environ),
        cwd=str(tmp_path),
        preload=(),
        on_message=heard.put,
        log_path=str(tmp_path / "pool.log"),
        children=ChildrenOfTest(),
    )
    try:
        while not isinstance(heard.get(timeout=PATIENCE_S), PoolReady):
            pass
        assert pool.process is not None
        os.kill(pool.process.pid, signal.SIGSTOP)
        script = tmp_path / "train.py"
        script.write_text("raise SystemExit(7)\n")
        for number in range(MANY):  # A send that waits would never come back.
            pool.send(License(until_s=1e12 + number))
        pool.send(
            Start(
                worker="w",
                entry_kind=EntryKind.SCRIPT,
                entry=str(script),
                args=(),
                cwd=str(tmp_path),
                env=dict(os.environ),
                out_path=str(tmp_path / "out"),
                err_path=str(tmp_path / "err"),
                error_file="",
            )
        )
        os.kill(pool.process.pid, signal.SIGCONT)
        while not isinstance(message := heard.get(timeout=PATIENCE_S), Exited):
            pass
        assert (message.worker, message.code) == ("w", 7)
    finally:
        if pool.process is not None:
            os.kill(pool.process.pid, signal.SIGCONT)
        pool.close()

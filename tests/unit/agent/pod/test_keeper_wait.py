"""Process 1 ends when it is told to, and waits for its keepers before."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from elasticd.cli.daemons.agent import agent_settings
from elasticd_agent.pod import keeper_wait
from elasticd_agent.pod.first_process import end_on_signals
from elasticd_agent.pod.keeper_wait import wait_for_keepers
from elasticd_agent.pool.process.process_table import children_of
from tests.fixtures.captured_log import captured_log
from tests.fixtures.patience import patience_s
from tests.fixtures.pool import ChildrenOfTest

NAMESPACE = (
    "unshare",
    *(["--map-root-user"] if os.getuid() else []),
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
FIRST = """
import os, time
from elasticd_agent.pod.first_process import end_on_signals
from elasticd_agent.pod.keeper_wait import default_keeper_wait_s
end_on_signals()
print(os.getpid(), default_keeper_wait_s(), flush=True)
while True:  # A signal just before one sleep is seen after it.
    time.sleep(0.05)
"""


def test_process_1_ends_at_sigterm_before_it_serves() -> None:
    """Without a handler the kernel drops it: each deleted pod would take its whole grace."""
    with subprocess.Popen(
        [*NAMESPACE, sys.executable, "-c", FIRST], stdout=subprocess.PIPE, text=True
    ) as outer:
        try:
            assert outer.stdout is not None
            assert outer.stdout.readline() == "1 65.0\n"
            (first,) = children_of(outer.pid)
            os.kill(first, signal.SIGTERM)
            assert outer.wait(patience_s(20.0)) == 128 + signal.SIGTERM
        finally:
            outer.kill()


def test_any_other_process_keeps_its_signals_and_waits_for_nobody(
    tmp_path: Path,
) -> None:
    """A keeper outlives the agent on a machine, and a person's Ctrl-C is not made to wait."""
    before = signal.getsignal(signal.SIGTERM)
    end_on_signals()
    assert signal.getsignal(signal.SIGTERM) is before
    flags = {"etcd": "http://127.0.0.1:2379", "labels": (), "log_dir": str(tmp_path)}
    assert agent_settings(flags, {}).keeper_wait_s == 0.0
    assert agent_settings(flags, {"ELASTICD_KEEPER_WAIT": "65"}).keeper_wait_s == 65.0


def test_agent_ends_once_its_keepers_have() -> None:
    """What they save ends with the container."""
    children = ChildrenOfTest()
    code = "import sys; sys.stdin.read()"
    keeper = children.start(
        lambda: subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE)
    )

    def watch() -> None:
        keeper.wait()
        children.forget(keeper.pid)

    threading.Thread(target=watch).start()
    with captured_log() as logs:
        wait_for_keepers(children, 0.0)
        assert logs == []
        wait_for_keepers(children, 2 * keeper_wait.PAUSE_S)
        assert [each["event"] for each in logs] == ["keepers.awaited", "keepers.left"]
        logs.clear()
        assert keeper.stdin is not None
        keeper.stdin.close()
        wait_for_keepers(children, patience_s(20.0))
        assert not children.pids
        wait_for_keepers(children, patience_s(20.0))
    assert [each["event"] for each in logs] in (["keepers.awaited"], [])

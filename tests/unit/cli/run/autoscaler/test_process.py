"""The autoscaler beside a local run: how it is started, and that it ends with it."""

import os
import signal
import sys
from pathlib import Path

import pytest

from elasticd.cli.run.autoscaler import process as module
from elasticd.cli.run.autoscaler.process import autoscaler
from tests.fixtures.store import wait_until

ENDPOINT = "unix:///etcd.sock"
STUB = """#!{python} -S
import os, signal, sys, time
{prelude}
open(os.environ["STUB"] + ".new", "w").write("\\n".join([
    str(os.getpid()), " ".join(sys.argv[1:]),
    *sorted(name for name in os.environ if name.startswith("ELASTICD_")),
]))
os.rename(os.environ["STUB"] + ".new", os.environ["STUB"])
while True:  # A signal just before one sleep is seen after it.
    time.sleep(0.05)
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a program that stands for `elasticd` writes down how it was called."""
    return stub(tmp_path, monkeypatch, "")


def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prelude: str) -> Path:
    program = tmp_path / "stub"
    program.write_text(STUB.format(python=sys.executable, prelude=prelude))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return tmp_path / "told"


def environ(told: Path) -> dict[str, str]:
    ours = {"ELASTICD_ETCD": "http://other:1", "ELASTICD_PROMETHEUS_TOKEN_FILE": "t"}
    return {**os.environ, **ours, "STUB": str(told)}


def test_it_is_the_command_of_a_cluster_on_this_runs_etcd(told: Path, tmp_path: Path) -> None:
    """What steers elasticd comes as flags: another etcd of the environment is not meant."""
    with autoscaler(ENDPOINT, "http://p:9090", tmp_path / "agents" / "log", environ(told)):
        wait_until(told.exists)
        pid, call, *names = told.read_text().splitlines()
        assert f"autoscale run --log-json --etcd {ENDPOINT} --listen 127.0.0.1:0" in call
        assert f"--parent-pid {os.getpid()} --prometheus http://p:9090" in call
        assert names == ["ELASTICD_PROMETHEUS_TOKEN_FILE"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_one_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is left to be written, and nothing of a run may be left behind."""
    monkeypatch.setattr(module, "END_S", 0.1)
    told = stub(tmp_path, monkeypatch, "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    with autoscaler(ENDPOINT, "", tmp_path / "log", environ(told)):
        wait_until(told.exists)
        pid, call, *_ = told.read_text().splitlines()
        assert "--prometheus" not in call
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_one_that_was_killed_is_started_again(
    told: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy counts for as long as the run does; it is said once."""
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    notes: list[str] = []
    with autoscaler(ENDPOINT, "", tmp_path / "log", environ(told), notes.append):
        for _ in range(2):
            wait_until(told.exists)
            pid = int(told.read_text().splitlines()[0])
            told.unlink()
            os.kill(pid, signal.SIGKILL)
        wait_until(told.exists)
        last = int(told.read_text().splitlines()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(last, 0)
    assert len(notes) == 1 and "ended by signal 9 and is started again" in notes[0]

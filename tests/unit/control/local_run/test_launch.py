"""Processes of this machine: how they are called, and that none is left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from elasticd.control.local_run.launch import AgentCall, Agents, is_dead
from elasticd.records.ids import JobName, NodeId
from elasticd.store.api import StoreSettings
from tests.fixtures.patience import patience_s


class SleepingCall(AgentCall):
    """Starts a process that says it is there and waits, in place of an agent."""

    __slots__ = ()

    def argv(self, parent_pid: int) -> list[str]:
        ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN);" if self.slots > 1 else ""
        # One write: with PYTHONUNBUFFERED set, print() would write the end of the line apart.
        code = f"import os, signal; {ignore} os.write(1, b'elasticd: here\\n'); signal.pause()"
        return [sys.executable, "-c", code]


def call(folder: Path, kind: type[AgentCall] = AgentCall, slots: int = 1) -> AgentCall:
    return kind(
        node=NodeId("local-0"),
        job=JobName("j"),
        store=StoreSettings(endpoints=("http://a:1",), user="u", password="secret"),
        cluster="default",
        slots=slots,
        run_folder=folder,
        log_path=folder / "agent.log",
        lease_ttl_s=5.0,
        env=os.environ,
    )


def started(folder: Path, slots: int = 1) -> Agents:
    agents = Agents()
    agents.start([call(folder, SleepingCall, slots)])
    while agents.last_words(NodeId("local-0")) != "here":
        assert agents.running()
    return agents


def test_a_password_is_not_in_an_agents_arguments(tmp_path: Path) -> None:
    """Anybody on the machine could read it there."""
    argv = call(tmp_path).argv(7)
    assert "secret" not in " ".join(argv)
    assert argv[argv.index("--etcd-user") + 1] == "u"
    assert argv[argv.index("--parent-pid") + 1] == "7"


def test_agents_end_when_asked(tmp_path: Path) -> None:
    """How they ended is known."""
    agents = started(tmp_path)
    agents.stop(patience_s(10.0))
    assert agents.ended() == {NodeId("local-0"): -signal.SIGTERM}


def test_an_agent_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    """After the grace."""
    agents = started(tmp_path, slots=2)
    agents.stop(0.1)
    assert agents.ended() == {NodeId("local-0"): -signal.SIGKILL}


def test_a_dead_child_is_seen_and_left_for_its_owner(tmp_path: Path) -> None:
    """Whoever started it still gets its exit code."""
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    while not is_dead(child.pid):
        pass
    assert child.wait() == 3


def test_no_process_is_left_behind_even_one_in_a_session_of_its_own(tmp_path: Path) -> None:
    """An orphan falls to us and is found below us."""
    code = """
import subprocess, sys
from elasticd.control.local_run.launch import adopt_orphans, end_descendants
adopt_orphans()
child = subprocess.Popen(["sh", "-c", "setsid sleep 300 & echo $!"], stdout=subprocess.PIPE)
print(child.stdout.readline().decode().strip())
child.wait()
print(end_descendants(0.0))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=patience_s(60.0),
        check=True,
    )
    pid, killed = done.stdout.split()
    assert killed == "1"
    assert not Path("/proc", pid).exists()


def test_what_an_agent_logs_is_not_what_it_said_for_people(tmp_path: Path) -> None:
    """A console shows a sentence, never a line of JSON."""
    agents = started(tmp_path)
    log = tmp_path / "agent.log"
    with log.open("a") as file:
        file.write('{"event": "job.status_changed"}\n')
    assert agents.last_words(NodeId("local-0")) == "here"
    agents.stop(patience_s(5.0))


def test_processes_whose_names_are_no_text_are_found_and_ended(tmp_path: Path) -> None:
    """The kernel cuts a name after 15 bytes, and a script may pass any bytes as an argument."""
    code = """
import ctypes, os, subprocess, sys, time
from elasticd.control.local_run.launch import adopt_orphans, end_descendants, keepers
adopt_orphans()
named = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'\\\\xff) S 1', 0, 0, 0); "
named += "print(flush=True); time.sleep(300)"
call = [sys.executable, "-c", named, b"\\xff"]
child = subprocess.Popen(call, stdout=subprocess.PIPE)
child.stdout.readline()
print(len(keepers()), end_descendants(0.0), child.wait())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=patience_s(60.0)
    )
    assert done.stdout.split()[:2] == ["0", "1"], done.stderr

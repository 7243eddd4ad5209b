"""A program that is forked by the launcher is what a program is that was started."""

import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.cluster import PATIENCE_S, until
from tests.fixtures.launcher import ELASTICD, ForkedProgram, Program, start_program
from tests.fixtures.process_mark import ProcessMark, wait_for_command_line

NAMED = ("Umask", "Uid", "Gid", "SigBlk", "SigPnd", "SigIgn", "NoNewPrivs", "Cpus_allowed_list")


def started(folder: Path, *args: str, is_fresh: bool, **more: str) -> Program:
    environ = {**ProcessMark().environ(), **more}
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = start_program(
            [*ELASTICD, *args], folder=folder, env=environ, out=out, err=err, is_fresh=is_fresh
        )
    assert isinstance(process, subprocess.Popen if is_fresh else ForkedProgram)
    wait_for_command_line(process.pid)
    return process


def shown(pid: int) -> dict[str, object]:
    """Return what the kernel shows of a process that has just begun."""
    place = Path(f"/proc/{pid}")
    entries = (place / "environ").read_bytes().rstrip(b"\0").split(b"\0")
    status = (place / "status").read_text().splitlines()
    return {
        "command": (place / "cmdline").read_bytes().rstrip(b"\0").split(b"\0"),
        "environ": sorted(entry for entry in entries if not entry.startswith(b"TEST_")),
        "status": [line for line in status if line.startswith(NAMED)],
        "limits": (place / "limits").read_text(),
        "name": (place / "comm").read_text(),
        "folder": os.readlink(place / "cwd"),
        "leads": (os.getsid(pid) == pid, os.getpgid(pid) == pid),
        "streams": [os.readlink(place / f"fd/{number}") for number in range(3)],
    }


def test_fork_shows_what_a_start_shows_and_ends_as_it_ends(tmp_path: Path) -> None:
    """A dashboard prints its address, and serves until it is asked to end."""
    facts = []
    for is_fresh in (True, False):
        process = started(
            tmp_path, "dashboard", "--port", "0", is_fresh=is_fresh, MORE="\udcff=1\n"
        )
        until(
            lambda: b"http" in (tmp_path / "out").read_bytes() or process.poll() is not None,  # noqa: B023
            (tmp_path / "err").read_text,
        )
        seen = shown(process.pid)
        process.send_signal(signal.SIGINT)
        facts.append({**seen, "code": process.wait(PATIENCE_S)})
        assert not Path(f"/proc/{process.pid}").exists()
        assert process.poll() == process.returncode
    assert facts[0] == facts[1]


def test_fork_says_what_a_start_says_and_its_end_is_a_zombie_until_it_is_waited_for(
    tmp_path: Path,
) -> None:
    said = []
    for is_fresh in (True, False):
        process = started(tmp_path, "statsu", is_fresh=is_fresh)
        stat = Path(f"/proc/{process.pid}/stat")
        until(lambda: b") Z " in stat.read_bytes(), stat.read_text)  # noqa: B023
        os.kill(process.pid, signal.SIGTERM)
        code = process.wait(PATIENCE_S)
        said.append((code, (tmp_path / "out").read_text(), (tmp_path / "err").read_text()))
    assert said[0] == said[1]
    assert said[0][0] == 2 and "Did you mean" in said[0][2]


def test_signal_that_ends_a_fork_is_its_exit_code(tmp_path: Path) -> None:
    process = started(tmp_path, "dashboard", "--port", "0", is_fresh=False)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.0)
    process.kill()
    assert process.wait(PATIENCE_S) == -signal.SIGKILL
    process.terminate()  # It has ended: this asks nobody.


@pytest.mark.parametrize("differs", ["limit", "variable", "command"])
def test_program_that_a_fork_would_not_be_is_started(tmp_path: Path, differs: str) -> None:
    """A limit that we have changed, a variable of the interpreter, and a flag for it."""
    command, more = [*ELASTICD, "--version"], {}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if differs == "variable":
        more["PYTHONHASHSEED"] = "7"
    if differs == "command":
        command[1:1] = ["-B"]
    with (tmp_path / "out").open("wb") as out:
        try:
            if differs == "limit":
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
            process = start_program(
                command, folder=tmp_path, env={**os.environ, **more}, out=out, err=out
            )
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(process, subprocess.Popen)
    assert process.wait(PATIENCE_S) == 0

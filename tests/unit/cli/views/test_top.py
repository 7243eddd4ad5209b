"""`elasticd top` as a person uses it: keys, questions, one frame for scripts."""

import os
import pty
import select
import sys
import time
from pathlib import Path

import pytest

from elasticd.cli.main import main
from elasticd.control.local_run.archive import archive, records_of
from elasticd.records.reason import Phase
from elasticd.store.memory import MemoryStore
from tests.fixtures.patience import patience_s
from tests.unit.dashboard.records_case import JOB, KEYS, filled, opened

LIMIT_S = patience_s(60.0)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A run folder with one run that is over."""
    folder = tmp_path / "runs"
    (folder / JOB).mkdir(parents=True)
    records = records_of(filled(Phase.SUCCEEDED), KEYS, JOB).values()
    archive(records, folder / JOB / "records.json")
    return folder


def test_one_frame_without_a_terminal(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts, with --once or without."""
    for flags in ((), ("--once",)):
        assert main(["top", *flags, "--log-dir", str(runs)]) == 0
        told = capsys.readouterr().out
        assert JOB in told and "generation 3" in told and "choose" not in told


def test_where_there_is_no_run_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence."""
    assert main(["top", "--once", "--log-dir", str(tmp_path)]) != 0
    told = capsys.readouterr().err
    assert "There is no local run" in told and told.count("\n") == 1


def test_job_that_is_not_there_is_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody takes another one's figures for it."""
    assert main(["top", "digit", "--once", "--log-dir", str(runs)]) != 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "There is no job 'digit' (there are: digits)" in told.err


def test_job_is_refused_in_a_cluster_without_jobs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that waits for it must not take an empty frame for an answer."""
    monkeypatch.setattr("elasticd.cli.views.top.sources", lambda values: opened(MemoryStore()))
    assert main(["top", "digit", "--once"]) != 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == (
        "elasticd: There is no job 'digit': there is none at all (`elasticd status`).\n"
    )


def test_keys_ask_back_and_end_it(runs: Path) -> None:
    """`s` asks how many nodes, `d` which node, and both whether that is meant; a run that is over
    says no; `q` ends.
    """
    argv = [sys.executable, "-m", "elasticd", "top", "--log-dir", str(runs)]
    pid, number = pty.fork()
    if pid == 0:
        os.execve(argv[0], argv, {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"})
    try:
        _until(number, "choose")
        os.write(number, b"s")
        _until(number, "Nodes for job")
        os.write(number, b"two\n")
        _until(number, "'two' is not a whole number")
        os.write(number, b"1\n")
        _until(number, "to 1 node? [y/N]")
        os.write(number, b"y\n")
        _until(number, "Enter goes back")
        os.write(number, b"\n")
        _until(number, "choose")
        os.write(number, b"d")
        _until(number, "Node to take out of service")
        os.write(number, b"a\n")
        _until(number, "Drain node a? [y/N]")
        os.write(number, b"y\n")
        _until(number, "Enter goes back")
        os.write(number, b"\n")
        _until(number, "choose")
        os.write(number, b"q")
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        os.close(number)


def test_terminal_that_only_prints_gets_one_frame(runs: Path) -> None:
    """Emacs' shell, or a build that records a pseudo-terminal."""
    argv = [sys.executable, "-m", "elasticd", "top", "--log-dir", str(runs)]
    pid, number = pty.fork()
    if pid == 0:
        os.execve(argv[0], argv, {**os.environ, "TERM": "dumb", "COLUMNS": "100", "LINES": "30"})
    shown = _until(number, "generation 3")
    _, status = os.waitpid(pid, 0)
    os.close(number)
    assert os.waitstatus_to_exitcode(status) == 0
    assert "\x1b[?1049h" not in shown, "another screen"


def _until(number: int, words: str) -> str:
    """Read what is shown until these words are, and return it."""
    until_s = time.monotonic() + LIMIT_S
    shown = ""
    while words not in shown:
        ready, _, _ = select.select([number], [], [], max(0.0, until_s - time.monotonic()))
        assert ready, f"{words!r} is not in {shown!r}"
        shown += os.read(number, 1 << 16).decode(errors="replace")
    return shown

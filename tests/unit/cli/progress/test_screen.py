"""Whatever cannot be printed costs its line, never the run."""

import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from dataclasses import replace

import pytest

from elasticd.cli.progress.part import LinePart, PartName
from elasticd.cli.progress.screen import Screen
from elasticd.cli.progress.speed import Speed
from elasticd.control.follow import WorldFormed
from elasticd.control.logs.console import ERR, OUT
from elasticd.records.codec import decode, encode
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, NodeId, Nonce, Rank, Slot
from elasticd.records.reason import Reason
from elasticd.records.world import World
from tests.fixtures.patience import patience_s
from tests.unit.control.world_case import world

NOISE = """
import sys
from elasticd.cli.progress.screen import Screen
from elasticd.control.logs.console import ERR, OUT
screen = Screen()
screen.line("generation 2")
screen.output(OUT, b"out" * 100_000)
screen.output(ERR, b"err")
screen.line("done")
"""


def test_a_name_that_is_no_text_is_shown_escaped(capfd: pytest.CaptureFixture[str]) -> None:
    """A script that opens os.fsdecode(b"\\xff.jpg") raises an exception with such a text."""
    culprit = Failure(
        node=NodeId("a"),
        incarnation=Incarnation("i"),
        host="h",
        generation=Generation(1),
        rank=Rank(0),
        local_rank=0,
        slot=Slot(0),
        nonce=Nonce(1),
        exception="FileNotFoundError: 'data/\udcff.jpg'",
    )
    failed = replace(world(2, "a"), reason=Reason.WORKER_FAILED, culprit=culprit)
    told = decode(World, encode(failed))
    Screen().print_news(WorldFormed(world=told))
    Screen(is_json=True).print_news(WorldFormed(world=told))
    shown = capfd.readouterr().err.splitlines()
    assert "'data/\\udcff.jpg'" in shown[0]
    assert "data/\\udcff.jpg" in shown[1]


@pytest.mark.parametrize("streams", [">/dev/full 2>&1", ">&- 2>&-", "| true", "2>&1 | true"])
def test_a_run_goes_on_when_nothing_can_be_printed(streams: str) -> None:
    """A full disk, closed streams, a reader that has gone; the exit code is the job's own."""
    command = f"{sys.executable} -c '{NOISE}' {streams}; exit ${{PIPESTATUS[0]}}"
    assert (
        subprocess.run(["bash", "-c", command], timeout=patience_s(60.0), check=False).returncode
        == 0
    )


def test_a_terminal_that_does_not_block_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may have left it so; its reader is slower than we are."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    reader = subprocess.Popen(["wc", "-c"], stdin=read_fd, stdout=subprocess.PIPE)
    os.close(read_fd)
    with os.fdopen(write_fd, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        Screen().output(OUT, b"x" * 1_000_000)
    assert reader.communicate(timeout=patience_s(30.0))[0].strip() == b"1000000"


def test_output_goes_where_it_belongs(capfd: pytest.CaptureFixture[str]) -> None:
    """Byte by byte, and in order with what was printed otherwise."""
    print("first")
    Screen().output(OUT, b"\xff10 %")
    Screen().output(ERR, b"oh")
    shown = capfd.readouterr()
    assert shown.out.startswith("first\n") and shown.out.endswith("10 %")
    assert shown.err == "oh"


def test_progress_is_a_line_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """An event for programs, and nothing for who wants quiet."""
    parts = [
        LinePart(PartName.STANDING, ("step 7",)),
        LinePart(PartName.SIZE, ("1 node, 1 worker", "world 1")),
    ]
    for screen in (Screen(), Screen(is_json=True), Screen(is_quiet=True)):
        screen.progress(parts, None, Speed(steps_s=2.0))
        screen.hide_progress()
    first, second = capfd.readouterr().err.splitlines()
    assert first == "[elasticd] step 7, 1 node, 1 worker"
    told = json.loads(second)
    assert told["event"] == "job.progressed" and told["data"]["speed"]["steps_s"] == 2.0


def test_progress_is_drawn_below_what_is_printed_in_a_terminal() -> None:
    """Of 40 columns, and taken away in the end; nothing is left of it in what was printed."""
    program = (
        "from elasticd.cli.progress.screen import Screen\n"
        "from elasticd.cli.progress.speed import Speed\n"
        "from elasticd.cli.progress.part import LinePart, PartName\n"
        "from elasticd.control.logs.console import OUT\n"
        "screen = Screen(term='xterm')\n"
        "step, scalar = PartName.STANDING, PartName.SCALAR\n"
        "parts = [LinePart(step, ('step 7',)), LinePart(scalar, ('x' * 50,))]\n"
        "screen.progress(parts, None, Speed())\n"
        "screen.output(OUT, b'hello\\n')\n"
        "screen.hide_progress()\n"
        "screen.line('done')\n"
    )
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    subprocess.run(
        [sys.executable, "-c", program],
        stdout=theirs,
        stderr=theirs,
        timeout=patience_s(60.0),
        check=True,
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # Nobody writes to it any more.
        while data := os.read(ours, 4096):
            shown += data
    os.close(ours)
    erase = b"\r\x1b[K"
    assert shown == b"step 7" + erase + b"hello\r\nstep 7" + erase + b"[elasticd] done\r\n"

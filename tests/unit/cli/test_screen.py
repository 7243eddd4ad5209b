"""Whatever cannot be printed costs its line, never the run."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from elasticd.cli.screen import Screen
from elasticd.control.console import ERR, OUT
from elasticd.control.follow import Formed
from elasticd.records.codec import decode, encode
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, NodeId, Nonce, Rank, Slot
from elasticd.records.reason import Reason
from elasticd.records.world import World
from tests.unit.control.world_case import world

NOISE = """
import sys
from elasticd.cli.screen import Screen
from elasticd.control.console import ERR, OUT
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
    Screen().tell(Formed(world=told))
    Screen(is_json=True).tell(Formed(world=told))
    shown = capfd.readouterr().err.splitlines()
    assert "'data/\\udcff.jpg'" in shown[0]
    assert "data/\\udcff.jpg" in shown[1]


@pytest.mark.parametrize("streams", [">/dev/full 2>&1", ">&- 2>&-", "| true", "2>&1 | true"])
def test_a_run_goes_on_when_nothing_can_be_printed(streams: str) -> None:
    """A full disk, closed streams, a reader that has gone; the exit code is the job's own."""
    command = f"{sys.executable} -c '{NOISE}' {streams}; exit ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", command], timeout=60, check=False).returncode == 0


def test_a_terminal_that_does_not_block_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may have left it so; its reader is slower than we are."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    reader = subprocess.Popen(["wc", "-c"], stdin=read_fd, stdout=subprocess.PIPE)
    os.close(read_fd)
    with os.fdopen(write_fd, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        Screen().output(OUT, b"x" * 1_000_000)
    assert reader.communicate(timeout=30)[0].strip() == b"1000000"


def test_output_goes_where_it_belongs(capfd: pytest.CaptureFixture[str]) -> None:
    """Byte by byte, and in order with what was printed otherwise."""
    print("first")
    Screen().output(OUT, b"\xff10 %")
    Screen().output(ERR, b"oh")
    shown = capfd.readouterr()
    assert shown.out.startswith("first\n") and shown.out.endswith("10 %")
    assert shown.err == "oh"

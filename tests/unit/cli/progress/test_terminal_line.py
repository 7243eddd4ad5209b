"""The line at the end of a terminal, and what is printed above it."""

import io

import pytest

from elasticd.cli.progress.terminal_line import TerminalLine, can_draw


class Terminal:
    """What a terminal shows: lines, and the one on which the cursor stands."""

    def __init__(self, width: int = 40) -> None:
        self.width = width
        self.line = TerminalLine(self.take, lambda: self.width)
        self.lines: list[str] = []
        self.open = ""

    def take(self, data: bytes) -> None:
        for part in data.decode().replace("\r\x1b[K", "\0").splitlines(keepends=True):
            text = part.rpartition("\0")
            self.open = (self.open if not text[1] else "") + text[2].rstrip("\n")
            if part.endswith("\n"):
                self.lines.append(self.open)
                self.open = ""

    def print(self, text: str) -> None:
        with self.line.above(text.encode(), is_terminal=True):
            self.take(text.encode())


def test_what_is_printed_stands_above_the_line() -> None:
    """Which is drawn once, however often it changes."""
    terminal = Terminal()
    terminal.line.show(lambda width: "step 1")
    terminal.print("hello\n")
    terminal.line.show(lambda width: "step 2")
    terminal.print("world\n")
    assert (terminal.lines, terminal.open) == (["hello", "world"], "step 2")
    terminal.line.clear()
    terminal.print("over\n")
    assert (terminal.lines, terminal.open) == (["hello", "world", "over"], "")


def test_a_line_that_a_script_has_not_ended_is_left_alone() -> None:
    """A progress bar of its own; ours comes back behind it."""
    terminal = Terminal()
    terminal.line.show(lambda width: "step 1")
    terminal.print("50 %")
    terminal.line.show(lambda width: "step 2")
    assert terminal.open == "50 %"
    terminal.print(" 100 %\n")
    assert (terminal.lines, terminal.open) == (["50 % 100 %"], "step 2")


def test_the_line_is_made_for_the_width_that_the_terminal_has_now() -> None:
    """One column stays free, so that nothing wraps."""
    terminal = Terminal()
    terminal.line.show(lambda width: "x" * width)
    assert terminal.open == "x" * 39
    terminal.width = 20
    terminal.print("resized\n")
    assert terminal.open == "x" * 19


def test_output_that_goes_elsewhere_does_not_move_the_line() -> None:
    """stdout in a file: what it ends with says nothing about the terminal."""
    terminal = Terminal()
    with terminal.line.above(b"50 %", is_terminal=False):
        pass
    terminal.line.show(lambda width: "step 1")
    assert terminal.open == "step 1"


@pytest.mark.parametrize("term", ["", "dumb", "xterm"])
def test_a_file_is_no_terminal(term: str) -> None:
    """Nor is a stream that is closed, or none at all."""
    closed = io.StringIO()
    closed.close()
    assert not any(can_draw(stream, term) for stream in (io.StringIO(), closed, None))


def test_a_dumb_terminal_cannot_erase() -> None:
    """Emacs' shell, say."""

    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert can_draw(Tty(), "xterm") and not can_draw(Tty(), "dumb") and not can_draw(Tty(), "")

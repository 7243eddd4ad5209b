"""Reads single keys of a terminal, without waiting for the end of a line."""

import os
import select
import sys
import termios
import tty
from types import TracebackType

__all__ = ["Keyboard"]

_ARROWS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down"}


class Keyboard:
    """A context in which single keys can be read; its end restores the terminal."""

    def __init__(self) -> None:
        self._number = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._number)

    def __enter__(self) -> "Keyboard":
        # Keys that were typed before count, too, so nothing is flushed.
        tty.setcbreak(self._number, termios.TCSADRAIN)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        termios.tcsetattr(self._number, termios.TCSADRAIN, self._before)

    def key(self, timeout_s: float) -> str:
        """Return "up", "down", or the typed character; empty if no key was pressed in time."""
        ready, _, _ = select.select([self._number], [], [], timeout_s)
        if not ready:
            return ""
        typed = os.read(self._number, 8)
        if not typed:
            return "q"  # The terminal is closed.
        return _ARROWS.get(typed, typed.decode(errors="replace")[0])

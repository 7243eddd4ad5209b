"""A line at the end of a terminal that is redrawn in place, below all other output.

All other output goes through `above`, which first removes the line and then draws it again below.
After output without a line end (the script's own progress bar) the line stays hidden, so that it
overwrites nothing.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TextIO

__all__ = ["TerminalLine", "can_draw", "width_of"]

_ERASE = b"\r\x1b[K"
WIDTH = 80
"""The width in columns if a terminal does not report its own."""


def can_draw(stream: TextIO | None, term: str) -> bool:
    """Return whether a stream is a terminal that can erase a line; `term` is the variable TERM."""
    with suppress(OSError, ValueError):
        return stream is not None and term not in ("", "dumb") and stream.isatty()
    return False


class TerminalLine:
    """Draws the line. Several threads may call it; `write` gets the bytes for the terminal."""

    def __init__(self, write: Callable[[bytes], object], width: Callable[[], int]) -> None:
        self._write, self._width = write, width
        self._lock = RLock()
        self._make: Callable[[int], str] | None = None
        self._is_drawn = False
        self._is_at_begin = True

    def show(self, make: Callable[[int], str]) -> None:
        """Draw the text that `make` returns for a width; from now on it stays the last line."""
        with self._lock:
            self._make = make
            self._erase()
            self._draw()

    def clear(self) -> None:
        """Remove the line until another one is shown."""
        with self._lock:
            self._make = None
            self._erase()

    @contextmanager
    def above(self, data: bytes, *, is_terminal: bool) -> Iterator[None]:
        """Enclose the printing of `data`; `is_terminal` is true if `data` goes to this terminal."""
        with self._lock:
            self._erase()
            yield
            if is_terminal and data:
                self._is_at_begin = data.endswith(b"\n")
            self._draw()

    def _erase(self) -> None:
        if self._is_drawn:
            self._is_drawn = False
            self._write(_ERASE)

    def _draw(self) -> None:
        if self._make is None or not self._is_at_begin:
            return
        # The last column stays empty: a line that wraps there could not be erased.
        text = self._make(max(1, self._width() - 1))
        if text:
            self._is_drawn = True
            self._write(text.encode(errors="backslashreplace"))


def width_of(stream: TextIO) -> int:
    """Return how many columns the terminal has now."""
    with suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or WIDTH
    return WIDTH

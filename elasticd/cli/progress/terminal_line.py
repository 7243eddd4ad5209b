"""One line at the end of a terminal that is drawn again and again, below what is printed.

Whatever else is printed goes through `above`, which takes the line away first and draws it again
behind. After output that did not end its line (a progress bar of the script's own) it stays away,
so that it overwrites nothing.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TextIO

__all__ = ["TerminalLine", "can_draw", "width_of"]

_ERASE = b"\r\x1b[K"
WIDTH = 80
"""Where a terminal does not say how wide it is."""


def can_draw(stream: TextIO | None, term: str) -> bool:
    """Whether this is a terminal that can erase a line; `term` is the variable TERM."""
    with suppress(OSError, ValueError):
        return stream is not None and term not in ("", "dumb") and stream.isatty()
    return False


class TerminalLine:
    """Safe to use from several threads; `write` gets the bytes for the terminal."""

    def __init__(self, write: Callable[[bytes], None], width: Callable[[], int]) -> None:
        self._write, self._width = write, width
        self._lock = RLock()
        self._make: Callable[[int], str] | None = None
        self._is_drawn = False
        self._is_at_begin = True

    def show(self, make: Callable[[int], str]) -> None:
        """Draw what `make` gives for the terminal's width, from now on below everything."""
        with self._lock:
            self._make = make
            self._erase()
            self._draw()

    def clear(self) -> None:
        """Take the line away until another one is shown."""
        with self._lock:
            self._make = None
            self._erase()

    @contextmanager
    def above(self, data: bytes, *, is_terminal: bool) -> Iterator[None]:
        """Around the printing of `data`; `is_terminal`: it goes to this terminal too."""
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
        # The last column stays free: a terminal that wraps there could not be erased.
        text = self._make(max(1, self._width() - 1))
        if text:
            self._is_drawn = True
            self._write(text.encode(errors="backslashreplace"))


def width_of(stream: TextIO) -> int:
    """Say how many columns the terminal has now."""
    with suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or WIDTH
    return WIDTH

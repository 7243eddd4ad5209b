"""Which variables of the environment are read while packages are imported.

A package that reads a variable during its import keeps that value for good. Where the value differs
from rank to rank, from one generation to the next, or is set by the script before the import, the
package must be imported by each worker itself. Reads outside Python (C's getenv) are not seen. Code
that goes through the whole environment counts as independent of every single variable.
"""

import os
import sys
from collections.abc import Iterator, KeysView
from contextlib import contextmanager
from types import FrameType
from typing import Any

from elasticd_agent.pool.zygote.rank_at_import import READERS_OF_RANK, renew_ranks

__all__ = ["EnvironReads", "recorded"]

_NO_READERS = READERS_OF_RANK.keys() | {renew_ranks.__module__}
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_PASSED_ON = frozenset({"os", "_collections_abc", "collections.abc"})

_Environ: Any = type(os.environ)


class EnvironReads:
    """Collect the names of the variables that were read so far."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._walker: tuple[int, object] | None = None

    def read(self, key: object, frame: FrameType) -> None:
        """Take note that a frame asked for one variable, unless it goes through all of them."""
        if isinstance(key, str) and not self._is_walker(frame):
            reader: FrameType | None = frame
            while reader is not None and reader.f_globals.get("__name__") in _PASSED_ON:
                reader = reader.f_back
            if reader is None or reader.f_globals.get("__name__") not in _NO_READERS:
                self.names.add(key)

    def _is_walker(self, frame: FrameType) -> bool:
        """Return whether this frame goes through all variables, or is a comprehension that does it
        for one.
        """
        if frame.f_code.co_name in _COMPREHENSIONS and frame.f_back is not None:
            frame = frame.f_back
        return _identity(frame) == self._walker

    def walked(self, frame: FrameType) -> None:
        """Take note that a frame begins to go through all variables."""
        self._walker = _identity(frame)


class _RecordedEnviron(_Environ):  # type: ignore[misc]
    """`os.environ` with notes of the variables that are read; content and methods stay those of the
    object.
    """

    def __getitem__(self, key: str) -> str:
        _reads.read(key, sys._getframe(1))
        value: str = super().__getitem__(key)
        return value

    def __iter__(self) -> Iterator[str]:
        _reads.walked(sys._getframe(1))
        return iter(list(super().__iter__()))

    def keys(self) -> KeysView[str]:
        _reads.walked(sys._getframe(1))
        return dict.fromkeys(super().__iter__(), "").keys()


_reads = EnvironReads()


@contextmanager
def recorded() -> Iterator[EnvironReads]:
    """Record the variables read from `os.environ` inside the block; only one such block may be
    active.
    """
    global _reads
    _reads = EnvironReads()
    environ: Any = os.environ
    environ.__class__ = _RecordedEnviron
    try:
        yield _reads
    finally:
        environ.__class__ = _Environ


def _identity(frame: FrameType) -> tuple[int, object]:
    return id(frame), frame.f_code

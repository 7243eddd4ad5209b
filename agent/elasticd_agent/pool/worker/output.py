"""A worker's stdout and stderr: files that its output goes to as long as there is room for it.

A full disk under the logs of one node must not end a job whose other nodes are well: a `print`
that fails would be taken for an error of the script, at the same line again and again.
"""

import errno
import io
import os
from typing import Any

__all__ = ["OutputFile", "open_output"]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class OutputFile(io.FileIO):
    """A file that drops output if the disk is full, and says how much is missing once there is
    room.
    """

    _missing_bytes = 0

    def __repr__(self) -> str:
        # From Python 3.13 on it names the class; a script's stdout has FileIO there.
        return super().__repr__().replace(type(self).__name__, "_io.FileIO", 1)

    def write(self, data: Any, /) -> int:
        rest = memoryview(data).cast("B")
        size = rest.nbytes
        try:
            if self._missing_bytes:
                self._write_gap()
            # On a disk that is nearly full less is written than was given.
            while rest and (written := super().write(rest)) is not None:
                rest = rest[written:]
        except OSError as exc:
            if exc.errno not in _NO_ROOM:
                raise
            self._missing_bytes += rest.nbytes
            return size
        return size - rest.nbytes

    def _write_gap(self) -> None:
        words = f"\n[elasticd] {self._missing_bytes} bytes of output are missing here: disk full\n"
        super().write(words.encode())
        self._missing_bytes = 0


def open_output(path: str) -> int:
    """Open a log for appending; if there is no room for a file, drop all output.

    Raises:
        OSError: the file cannot be opened for another reason.
    """
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as exc:
        if exc.errno not in _NO_ROOM:
            raise
        return os.open(os.devnull, os.O_WRONLY)

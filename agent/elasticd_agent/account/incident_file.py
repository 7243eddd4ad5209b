"""The incidents of a job as JSON lines in its folder, for whoever reads logs and not etcd.

The records in etcd are bounded, and are deleted a week after the job; this file stays with the
logs. Each agent adds a line for each change of world that its node went through, the very record
that it writes to etcd; agents of one machine, or of one network folder, add to the same file. A
node that becomes late, or ceases to be late, is a line too, of another form, since that is no
change of world. When the file has grown large, it is set aside as `incidents.jsonl.1` in place of
the one before.
"""

import fcntl
import json
import os
import time
from collections import deque
from pathlib import Path
from threading import Lock, Thread

from elasticd.records.account.incident import Incident
from elasticd.records.account.late import LateNode
from elasticd.records.codec import to_plain
from elasticd.telemetry.log import get_logger

__all__ = ["FILE_NAME", "IncidentFile"]

FILE_NAME = "incidents.jsonl"
LINES_KEPT = 100
"""How many lines wait while a disk does not answer; when there are more, the oldest are lost."""

BYTES_KEPT = 32 * 1024**2
"""The size limit of each of the two files; it holds more than 20,000 lines."""

log = get_logger()


class IncidentFile:
    """Write one job's incidents to its file.

    Nobody waits for the disk: a thread writes, and lives only as long as there are lines.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._lock = Lock()
        self._thread: Thread | None = None

    def add(self, incident: Incident) -> None:
        """Hand over a line to be written; any thread may call this."""
        plain = to_plain(incident)
        assert isinstance(plain, dict)
        plain.update(plain.pop("unknown"))
        self._hand_over(plain)

    def add_late(self, late: LateNode) -> None:
        """Hand over a line about a late node; any thread may call this."""
        self._hand_over({"late": to_plain(late)})

    def _hand_over(self, plain: dict[str, object]) -> None:
        with self._lock:
            self._lines.append(json.dumps({**plain, "at_unix_s": round(time.time(), 3)}) + "\n")
            if self._thread is None:
                self._thread = Thread(target=self._write, name="incidents", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError as exc:  # No more threads: the next line brings this one.
                    self._thread = None
                    log.warning("incident.not_written", path=str(self._path), why=str(exc))

    def wait(self, timeout_s: float) -> None:
        """Wait until all lines are written, or until the time is over."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def _write(self) -> None:
        while True:
            with self._lock:
                if not self._lines:
                    self._thread = None
                    return
                line = self._lines.popleft()
            try:
                _append(self._path, line.encode())
            except OSError as exc:
                log.warning("incident.not_written", path=str(self._path), why=exc.strerror)


def _append(path: Path, line: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        # One call of `write`, at the end of the file: lines of several agents do not mix.
        os.write(file, line)
        if os.fstat(file).st_size >= BYTES_KEPT:
            _set_aside(path, file)
    finally:
        os.close(file)


def _set_aside(path: Path, file: int) -> None:
    """Rename a file that has grown large, so that only one of several agents does it, and does it
    once.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # Another agent is about it, or this storage has no locks.
    if os.path.samestat(os.fstat(file), os.stat(path)):
        os.replace(path, path.with_name(f"{path.name}.1"))

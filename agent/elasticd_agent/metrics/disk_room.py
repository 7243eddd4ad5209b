"""How many bytes are left on the disk to which a job's workers write.

A worker that finds no room drops its lines and goes on (`pool.worker.output`), so nobody else would
know. Who asks is the thread of a request: the run folder may be on a file system that hangs, for
which a scrape waits a moment, and then goes without this number.
"""

from collections.abc import Mapping
from pathlib import Path
from threading import Lock, Thread

from elasticd.records.ids import JobName
from elasticd_agent.liveness.progress_answer import free_bytes

__all__ = ["DiskRooms"]

READ_TIMEOUT_S = 0.5


class DiskRooms:
    """Reads the room of all jobs' folders on a thread of its own; any thread may ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._thread: Thread | None = None
        self._found: dict[JobName, int] = {}

    def read(self, folders: Mapping[JobName, Path]) -> dict[JobName, int]:
        """Return the free bytes by job; none while a file system hangs."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                thread = Thread(
                    target=self._look, args=(dict(folders),), name="disk-room", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # No more threads: the next scrape tries again.
                    return {}
                self._thread = thread
            thread = self._thread
        thread.join(READ_TIMEOUT_S)
        if thread.is_alive():
            return {}
        return {job: free for job, free in self._found.items() if job in folders}

    def _look(self, folders: Mapping[JobName, Path]) -> None:
        found = {job: free_bytes(folder) for job, folder in folders.items()}
        self._found = {job: free for job, free in found.items() if free is not None}

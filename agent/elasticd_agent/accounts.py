"""What workers left behind in their files, read where it may take long: on the pool's thread.

The owner of all jobs waits for no disk. A run folder on a network's disk that does not answer costs
the account of a failure, not the news of it: the news goes on without, after a while.
"""

from collections.abc import Mapping
from threading import Thread

from elasticd.channel import pool as ch
from elasticd_agent.ending import Told, tell
from elasticd_agent.process import Process

__all__ = ["READ_LIMIT_S", "Accounts"]

READ_LIMIT_S = 2.0
"""Two small files, of which one is mostly not there: milliseconds on a disk that answers."""


class Accounts:
    """Of one job's workers here. All methods run on the thread that listens to the pool."""

    def __init__(self, processes: Mapping[str, Process]) -> None:
        self._processes = processes
        self._raised: dict[str, ch.Raised] = {}

    def of(self, message: ch.FromPool | None) -> dict[str, Told]:
        """Return the account of each worker that failed, as the message says; None: of all."""
        match message:
            case ch.Raised(worker=name):
                self._raised[name] = message
                return self._read((name,))
            case ch.Exited(worker=name, code=code):
                has_finished = code == 0 and self._is_in_world(name)
                told = {name: Told()} if has_finished else self._read((name,))
                self._raised.pop(name, None)  # Names are not used again.
                return told
            case None:
                told = self._read(tuple(self._processes))
                self._raised.clear()
                return told
            case _:
                return {}

    def _is_in_world(self, name: str) -> bool:
        process = self._processes.get(name)
        return process is not None and process.generation != 0

    def _read(self, names: tuple[str, ...]) -> dict[str, Told]:
        told: dict[str, Told] = {}

        def read() -> None:
            for name in names:
                process = self._processes.get(name)
                if process is not None:
                    files = process.files
                    told[name] = tell(self._raised.get(name), files.error, files.err)

        reader = Thread(target=read, name="accounts", daemon=True)
        try:
            reader.start()
        except RuntimeError:  # No more threads: who listens waits for the disk itself then.
            read()
        else:
            reader.join(READ_LIMIT_S)
        late = Told(exception="", traceback="Its files could not be read in time.")
        return {name: told.get(name, late) for name in names}

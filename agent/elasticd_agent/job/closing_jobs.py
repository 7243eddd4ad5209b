"""Jobs whose pool is being ended. That takes up to ten seconds, for which the owner does not wait.

Until then their slots are taken, and the same job does not begin anew: its folder and its devices
are still in use.
"""

from collections.abc import Callable, Iterable
from functools import partial
from threading import Thread
from typing import Protocol

from elasticd.records.ids import JobName, Slot

__all__ = ["ClosingJobs"]


class _Workers(Protocol):
    """One job's workers on this node: `Workers`."""

    def end(self) -> None:
        """Kill what is left and end the pool; any thread may call this."""


class ClosingJobs:
    """Keep the jobs that are being closed.

    All methods run on the owner's thread. `post` runs something there; `changed` is called when a
    job is closed.
    """

    def __init__(
        self, post: Callable[[Callable[[], None]], None], changed: Callable[[], None]
    ) -> None:
        self._post, self._changed = post, changed
        self._closing: dict[JobName, tuple[Thread, frozenset[Slot]]] = {}

    def __contains__(self, job: JobName) -> bool:
        return job in self._closing

    def __len__(self) -> int:
        return len(self._closing)

    @property
    def slots(self) -> frozenset[Slot]:
        """The slots of all jobs that are being closed."""
        return frozenset().union(*(slots for _, slots in self._closing.values()))

    def begin(
        self,
        job: JobName,
        workers: _Workers,
        slots: Iterable[Slot],
        ended: Callable[[], None] | None = None,
    ) -> None:
        """End this job's pool on a thread of its own; then call `ended` on the owner's thread."""

        def end() -> None:
            try:
                workers.end()
            finally:
                self._post(partial(self._ended, job, ended))

        thread = Thread(target=end, name="closing", daemon=True)
        self._closing[job] = (thread, frozenset(slots))
        try:
            thread.start()
        except RuntimeError:  # No more threads: the owner itself waits for this one.
            end()

    def wait(self, timeout_s: float) -> None:
        """Wait for all jobs that are closing, because the process is about to end."""
        for thread, _ in self._closing.values():
            if thread.ident is not None:
                thread.join(timeout_s)

    def _ended(self, job: JobName, ended: Callable[[], None] | None) -> None:
        del self._closing[job]
        if ended is not None:
            ended()
        self._changed()

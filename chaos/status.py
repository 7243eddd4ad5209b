"""The job's status in etcd, noted whenever it changes."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from chaos.history.records import Status
from chaos.plan.scenario import Scenario
from chaos.process import boottime_s
from elasticd.errors import ElasticdError
from elasticd.records.codec import decode
from elasticd.records.ids import JobName
from elasticd.records.job import JobStatus
from elasticd.records.keys import Keys
from elasticd.store.api import StoreSettings
from elasticd.store.etcd.store import EtcdStore

__all__ = ["StatusWatch"]

STATUS_POLL_S = 0.25


class StatusWatch:
    """Reads the job's status again and again, in a thread: etcd may be away at any time."""

    def __init__(
        self, urls: Sequence[str], job: str, scenario: Scenario, note: Callable[[Status], None]
    ) -> None:
        self._job = JobName(job)
        self._store = EtcdStore(StoreSettings(endpoints=tuple(urls)))
        self._plan, self._note = scenario.job, note
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="status", daemon=True)
        self.newest: Status | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(10.0)
        self._store.close()

    def _watch(self) -> None:
        key = Keys().status(self._job)
        last: JobStatus | None = None
        while not self._is_over.wait(STATUS_POLL_S):
            with suppress(ElasticdError):
                item = self._store.get(key)
                status = decode(JobStatus, item.value) if item is not None else None
                if status is not None and status != last:
                    last = status
                    self.newest = self._record(status)
                    self._note(self.newest)

    def _record(self, status: JobStatus) -> Status:
        return Status(
            at_s=boottime_s(),
            phase=status.phase.value,
            generation=status.generation,
            restarts=status.restarts,
            user_errors=status.budget.user_error,
            node_losses=status.budget.node_loss,
            most_user_errors=self._plan.max_restarts,
            most_node_losses=self._plan.max_node_losses,
            message=status.message,
        )

"""Planned changes of the job and its nodes, as a person makes them; no faults."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress

from chaos.error import NotNow
from elasticd.control import jobs, node_drain
from elasticd.errors import NotFound, Unavailable
from elasticd.records.ids import JobName, NodeId
from elasticd.records.keys import Keys
from elasticd.store.api import Store

__all__ = ["PlannedChanges"]

PATIENCE_S = 0.1
"""More than a change takes while etcd answers."""


class PlannedChanges:
    """Do what `elasticd drain` and `elasticd scale` do.

    All methods raise NotNow while etcd does not answer, and NotFound for a node or a job that is
    not there. Call them again after NotNow: who does that also ends etcd's outages, and a request
    that etcd keeps waiting would keep the outage up, so requests have a thread of their own.
    """

    def __init__(self, open_store: Callable[[], Store], job: str) -> None:
        self._open, self._job = open_store, JobName(job)
        self._opened: Store | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="planned change")
        self._asked: dict[tuple[str, str], Future[None]] = {}

    def drain(self, node: str) -> None:
        self._do(
            ("drain", node),
            lambda store, keys: node_drain.drain(store, keys, NodeId(node), why="chaos"),
        )

    def undrain(self, node: str) -> None:
        with suppress(NotFound):
            self._do(
                ("undrain", node),
                lambda store, keys: node_drain.undrain(store, keys, NodeId(node)),
            )

    def scale(self, nodes: int) -> None:
        with suppress(NotFound):  # It is over.
            self._do(
                ("scale", str(nodes)),
                lambda store, keys: jobs.scale(store, keys, self._job, nodes),
            )

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _do(self, change: tuple[str, str], deed: Callable[[Store, Keys], object]) -> None:
        if change not in self._asked:
            self._asked[change] = self._thread.submit(self._ask, deed)
        asked = self._asked[change]
        wait([asked], PATIENCE_S)
        if not asked.done():
            raise NotNow(f"etcd has not answered yet: {' '.join(change)}")
        del self._asked[change]
        try:
            asked.result()
        except Unavailable as exc:
            raise NotNow(f"A planned change could not be made: {exc}") from exc

    def _ask(self, deed: Callable[[Store, Keys], object]) -> None:
        if self._opened is None:
            self._opened = self._open()
        deed(self._opened, Keys())

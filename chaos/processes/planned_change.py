"""Planned changes of the job and its nodes, as a person makes them; no faults."""

import time
from collections.abc import Callable
from contextlib import suppress

from chaos.error import ChaosError
from elasticd.control import jobs, node_drain
from elasticd.errors import NotFound, Unavailable
from elasticd.records.ids import JobName, NodeId
from elasticd.records.keys import Keys
from elasticd.store.api import Store

__all__ = ["PlannedChanges"]

LIMIT_S = 15.0
AGAIN_S = 0.1


class PlannedChanges:
    """Do what `elasticd drain` and `elasticd scale` do, and try again while etcd is away.

    All methods raise ChaosError if etcd does not answer in time, and NotFound for a node or a job
    that is not there.
    """

    def __init__(self, open_store: Callable[[], Store], job: str) -> None:
        self._open, self._job = open_store, JobName(job)
        self._opened: Store | None = None

    def drain(self, node: str) -> None:
        self._do(lambda store, keys: node_drain.drain(store, keys, NodeId(node), why="chaos"))

    def undrain(self, node: str) -> None:
        with suppress(NotFound):
            self._do(lambda store, keys: node_drain.undrain(store, keys, NodeId(node)))

    def scale(self, nodes: int) -> None:
        with suppress(NotFound):  # It is over.
            self._do(lambda store, keys: jobs.scale(store, keys, self._job, nodes))

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _do(self, deed: Callable[[Store, Keys], object]) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while True:
            try:
                if self._opened is None:
                    self._opened = self._open()
                deed(self._opened, Keys())
                return
            except Unavailable as exc:
                if time.monotonic() > deadline_s:
                    raise ChaosError(f"A planned change could not be made: {exc}") from exc
                time.sleep(AGAIN_S)

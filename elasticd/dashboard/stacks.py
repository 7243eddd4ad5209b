"""The stacks of incidents, which are read when a page asks for them, and kept for a short time.

A few threads read stacks, so that a silent node delays only pages that ask for its stacks. Pages
that ask for the same stacks at the same time share one reading.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from elasticd.errors import ElasticdError
from elasticd.records.ids import Generation, NodeId

__all__ = ["StacksCache", "StacksKey", "StacksText"]

READINGS_AT_ONCE = 4
KEPT_LIMIT = 16
FOUND_S, MISSING_S = 30.0, 2.0
"""The time for which an answer is kept, with and without stacks: a generation may get more stacks,
and an agent may come back."""
WAIT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StacksText:
    text: str = ""
    missing: str = ""
    """A sentence that says why there is no text; empty if there is a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StacksKey:
    """The key of the requested stacks."""

    uid: str
    """The uid of the job: another job may have the same name later."""
    generation: Generation
    node: NodeId


class StacksCache:
    """Reads stacks and keeps them for a short time. Any thread may call `get`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[StacksKey, tuple[float, Future[StacksText]]] = {}
        """The readings by their keys, each with its time of beginning; the oldest is first."""
        self._readers = ThreadPoolExecutor(READINGS_AT_ONCE, thread_name_prefix="stacks")

    def get(self, key: StacksKey, read: Callable[[], str]) -> StacksText:
        """Return the stacks' text; call `read` unless the text was read recently.

        `read` raises an ElasticdError that says why there is no text.
        """
        with self._lock:
            known = self._kept.get(key)
            if known is None or _is_old(*known):
                self._kept.pop(key, None)
                while len(self._kept) >= KEPT_LIMIT:
                    del self._kept[next(iter(self._kept))]
                try:
                    known = (time.monotonic(), self._readers.submit(_read, read))
                except RuntimeError:  # The cache is being closed.
                    return StacksText(missing="The dashboard ends.")
                self._kept[key] = known
        try:
            return known[1].result(WAIT_S)
        except TimeoutError:
            return StacksText(missing="The stacks did not come in time: ask again in a moment.")

    def close(self) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)


def _is_old(began_s: float, reading: Future[StacksText]) -> bool:
    if not reading.done():
        return False
    if reading.cancelled():
        return True
    return time.monotonic() - began_s > (MISSING_S if reading.result().missing else FOUND_S)


def _read(read: Callable[[], str]) -> StacksText:
    try:
        text = read()
    except ElasticdError as exc:
        return StacksText(missing=str(exc))
    except Exception as exc:  # Else the page would report a fault of the network.
        return StacksText(missing=f"This is a bug of elasticd: {type(exc).__name__}: {exc}")
    return StacksText(text=text) if text else StacksText(missing="The file of the stacks is empty.")

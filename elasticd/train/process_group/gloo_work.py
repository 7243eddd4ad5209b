"""A collective of Gloo that is under way: the work that its caller holds, and how it is given up.

Python's callers get elasticd's work, which waits in slices. torch's own code gets Gloo's work, and
waits for its future (`ddp_group.py`): there it is enough to end the future.

A reduce_scatter of Gloo's is an all_reduce whose work torch hides (its LambdaWork): it has no
future, never says that it is completed, and waits without a limit. So it is over when a wait for it
ends, and a thread that waits for one that Gloo has lost is not woken: its process is replaced.
"""

import math
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from elasticd.train.introspection.collective_wait import step_wait
from elasticd.train.process_group.compiler_skip import hide_from_compilers

__all__ = ["LOST", "SLICE", "PassedWork", "WakeableWork", "Work", "has_failed", "lock"]

SLICE = timedelta(seconds=0.2)
"""How long to wait for Gloo before checking again whether the collective was given up."""

_POLL_S = 0.001

LOST = "Gloo does not come back from this collective; its group was aborted."

lock = threading.Lock()
"""The lock of what is in flight, in all groups."""


class PassedWork:
    """A collective of which torch's own code has Gloo's work, and waits for its future in C++."""

    __slots__ = ("_inner", "is_completed", "is_given_up")

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.is_given_up = False
        self.is_completed = inner.is_completed

    @property
    def hides_result(self) -> bool:
        """Return False: torch's own code is given works that have a future."""
        return False

    def has_result(self) -> bool:
        """Return True even while Gloo's thread runs what the script has attached to the future."""
        return bool(self._inner.is_completed() or self._inner.get_future().done())

    def has_failed(self) -> bool:
        """Return whether one that is completed gave an error instead of a result."""
        return has_failed(self._inner)

    def give_up(self, *, may_end_future: bool) -> None:
        """Give the collective up: each thread that waits for it gets an exception."""
        if not self.is_given_up:
            self.is_given_up = True
            if may_end_future:
                _end_beside(self._inner.get_future())


class WakeableWork(dist.Work):
    """A collective that is under way in Gloo, as its caller sees it."""

    def __init__(self, inner: Any, options: Any, others: "dict[Any, Work | None]") -> None:
        super().__init__()
        self._inner = inner
        self._options = options
        self._others = others
        self._future: Any = None
        self._has_raised = False
        """A wait for one that hides its result has raised, so it is over."""
        self.is_given_up = False

    @property
    def hides_result(self) -> bool:
        """Return whether only a wait tells when this collective is over, as with a
        reduce_scatter.
        """
        try:
            self._inner.get_future()
        except RuntimeError:
            return True
        return False

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until the collective is done; a timeout of 0 means for ever, as in torch.

        Raises:
            RuntimeError: the collective failed, took too long, or was given up.
        """
        began_s = now_s = time.monotonic()
        until_s = began_s + timeout.total_seconds() if timeout else math.inf
        while not self.is_given_up:
            left_s = until_s - now_s
            try:
                is_short = left_s < SLICE.total_seconds()
                piece = timedelta(seconds=max(left_s, _POLL_S)) if is_short else SLICE
                is_done = bool(self._inner.wait(piece))
            except RuntimeError:
                if self.hides_result:  # It takes no slice for a limit, so this is its error.
                    self._has_raised = True
                    raise
                if left_s <= 0.0:
                    raise
            else:
                with lock:
                    self._others.pop(self, None)
                step_wait.waited(began_s)
                return is_done
            if self._inner.is_completed():
                return bool(self._inner.wait())
            now_s = time.monotonic()
        raise RuntimeError(LOST)

    def get_future(self) -> Any:
        if self._future is None:
            self._future = self._inner.get_future()
        step_wait.took_future()
        return self._future

    def has_result(self) -> bool:
        """Return True even while Gloo's thread runs what the script has attached to the future."""
        if self.is_completed():
            return True
        return not self.hides_result and bool(self._inner.get_future().done())

    def has_failed(self) -> bool:
        """Return whether one that is completed gave an error instead of a result."""
        return self._has_raised or has_failed(self._inner)

    def give_up(self, *, may_end_future: bool) -> None:
        """Give the collective up: each thread that waits for it gets an exception."""
        if self.is_given_up:
            return
        self.is_given_up = True
        asked = getattr(self._options, "timeout", None)
        has_own_timeout = asked is not None and asked > timedelta(0)
        if self._future is not None and may_end_future and not has_own_timeout:
            _end_beside(self._future)

    def is_completed(self) -> bool:
        return self._has_raised or bool(self._inner.is_completed())

    def is_success(self) -> bool:
        return bool(self._inner.is_success())

    def exception(self) -> Any:
        return self._inner.exception()

    def result(self) -> Any:
        return self._inner.result()

    def source_rank(self) -> int:
        return int(self._inner.source_rank())

    def synchronize(self) -> None:
        self._inner.synchronize()

    def _get_op_type(self) -> Any:
        return self._inner._get_op_type()


Work = PassedWork | WakeableWork


def has_failed(inner: Any) -> bool:
    """Return whether a work of Gloo's that is completed gave an error instead of a result."""
    # torch takes back `is_success` and `exception`; with nothing to wait for, this takes a moment.
    try:
        inner.wait()
    except RuntimeError:
        return True
    return False


def _end_beside(future: Any) -> None:
    """End a future in a thread of its own, since the thread that sets a result runs what the script
    has attached to it.
    """

    def end() -> None:
        # torch offers no way to set an error. No bucket has this shape, so its reader raises.
        with suppress(RuntimeError):  # Gloo did it meanwhile.
            if not future.done():
                future.set_result([torch.empty(0)])

    threading.Thread(target=end, name="elasticd-lost", daemon=True).start()


for _owner in (PassedWork, WakeableWork):
    hide_from_compilers(*vars(_owner).values())

"""Process groups of Gloo of which every wait can be ended, also for what Gloo itself has lost.

The intuition: when a write fails because the peer is gone, Gloo keeps the operation to try again
(`Pair::sendAsyncMode`), and when it then finds the connection closed it tells those who wait for a
receive or for the peer, but not those whose bytes wait to be written (`Pair::signalException`).
Its thread waits for that send until the timeout of the collective, whatever is done to sockets.
That thread cannot be woken. But the training thread need not wait for it: here it waits for Gloo
in slices, and what waits inside of torch (DistributedDataParallel) is given a result that it
cannot use. What Gloo still refers to is kept until the process ends: it sleeps and costs no CPU.

A planned change or a failure thus costs no process. Rejected: a copy of each result by a thread of
ours (60 us for each bucket, here it is 15); a duplicate of each socket, so that writes do not fail
(the peer that dies is the one whose connection is reset). Not covered: `send` and `recv`, whose
waits Gloo counts as its own, and other backends.
"""

import ctypes
import functools
import inspect
import math
import threading
import time
from collections import deque
from datetime import timedelta
from typing import Any
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from elasticd.train import sockets

__all__ = ["FOREVER", "Patience", "WakeableGroup", "install", "let_go", "wake"]

FOREVER = timedelta(days=3650)
"""The timeout of groups whose futures may be ended: torch ends the process if a collective comes
to an end of its own after that."""

_SLICE_S = 0.2
"""How long is waited for Gloo before looking again whether the collective was given up."""

LOST_S = 0.5
"""A collective that has not ended so long after all connections were closed is lost. Ending takes
microseconds; before a rank counts as stuck it has more than a second left."""

_POLL_S = 0.001

_COLLECTIVES = (
    "allreduce", "allreduce_coalesced", "broadcast", "allgather", "allgather_coalesced",
    "_allgather_base", "all_gather_single", "all_gather_single_coalesced",
    "allgather_into_tensor_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base",
    "reduce_scatter_single", "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced",
    "gather", "scatter", "alltoall", "alltoall_base", "all_to_all_single", "barrier",
)  # fmt: skip
"""By the names that torch has had for them since 2.6."""

_TRANSFERS = ("send", "recv", "recv_anysource")

_LOST = "Gloo does not come back from this collective; its group was aborted."


class WakeableWork(dist.Work):
    """A collective that is under way in Gloo, as its caller sees it."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._inner = inner
        self._future: Any = None
        self._is_given_up = False

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until it is done; a timeout of 0 means for ever, as in torch.

        Raises:
            RuntimeError: it failed, it took too long, or it was given up.
        """
        until_s = time.monotonic() + timeout.total_seconds() if timeout else math.inf
        while not self._is_given_up:
            left_s = until_s - time.monotonic()
            try:
                slice_s = min(_SLICE_S, max(left_s, _POLL_S))
                return bool(self._inner.wait(timedelta(seconds=slice_s)))
            except RuntimeError:
                if left_s <= 0.0:
                    raise
            if self._inner.is_completed():
                return bool(self._inner.wait())
        raise RuntimeError(_LOST)

    def get_future(self) -> Any:
        if self._future is None:
            self._future = self._inner.get_future()
        return self._future

    def give_up(self, *, may_end_future: bool) -> None:
        """Let whoever waits for it raise."""
        self._is_given_up = True
        if self._future is not None and may_end_future and not self._future.done():
            # torch offers no way to set an error. No bucket has this shape, so its reader raises.
            self._future.set_result([torch.empty(0)])

    def is_completed(self) -> bool:
        return bool(self._inner.is_completed())

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


class WakeableGroup(dist.ProcessGroup):
    """A process group that remembers which of its collectives are under way.

    They are done by a second group of torch's own class, with the same backend. The methods of the
    class above would do, but called from C++ they hold the interpreter's lock while they wait for
    Gloo's thread, which may be waiting for that lock (`WORK_OVERRIDE` in PyProcessGroup.hpp).
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        # The constructor that takes the store makes objects whose methods C++ does not look up.
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._native: Any = dist.ProcessGroup(store, rank, size)
        self._store = store
        self._open: deque[WakeableWork] = deque()
        self._lock = threading.Lock()
        self._is_kept = False
        self.may_end_futures = False
        with _groups_lock:
            _groups.add(self)

    def _set_default_backend(self, *args: Any) -> None:
        super()._set_default_backend(*args)
        self._native._set_default_backend(*args)

    def _register_backend(self, *args: Any) -> None:
        super()._register_backend(*args)
        self._native._register_backend(*args)

    def _set_group_name(self, *args: Any) -> None:
        super()._set_group_name(*args)
        self._native._set_group_name(*args)

    def get_group_store(self) -> Any:
        return self._store

    def lost(self) -> list[WakeableWork]:
        """What has not come to an end; once the sockets are shut all others soon do."""
        with self._lock:
            works = list(self._open)
        return [work for work in works if not work.is_completed()]

    def keep(self) -> None:
        """Never take this group apart: torch would wait for the threads that Gloo waits in."""
        if not self._is_kept:
            self._is_kept = True
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def _watch(self, inner: Any) -> Any:
        if inner is None:
            return None
        work = WakeableWork(inner)
        with self._lock:
            # It refers to its tensors, so it goes as soon as it is done.
            while self._open and self._open[0].is_completed():
                self._open.popleft()
            self._open.append(work)
        return work


_groups: "WeakSet[WakeableGroup]" = WeakSet()
_groups_lock = threading.Lock()
_is_installed = False


def _living() -> list[WakeableGroup]:
    with _groups_lock:
        return list(_groups)


class Patience:
    """With Gloo's threads, since the sockets were shut for the first time."""

    def __init__(self) -> None:
        self._links: frozenset[int] | None = None
        self._closed_at_s = math.inf

    def is_over(self) -> bool:
        """True if what has not come back by now is lost.

        Gloo tells those who wait when it closes a connection. Those that come later are our own
        knocks, which it may keep.
        """
        links = frozenset(link.inode for loop in sockets.gloo_loops(()) for link in loop.links)
        if self._links is None:
            self._links = links
        now_s = time.monotonic()
        self._closed_at_s = math.inf if links & self._links else min(self._closed_at_s, now_s)
        return now_s >= self._closed_at_s + LOST_S


def wake() -> int:
    """Give up what Gloo has lost of any group in this process, and say how much that was.

    For any thread, when all sockets of the groups have been shut and are closed.
    """
    count = 0
    for group in _living():
        for work in group.lost():
            group.keep()
            work.give_up(may_end_future=group.may_end_futures)
            count += 1
    return count


def let_go(limit_s: float) -> None:
    """Before groups are dropped: keep those whose collectives do not end within the limit."""
    until_s = time.monotonic() + limit_s
    open_groups = [group for group in _living() if not group._is_kept and group.lost()]
    while open_groups and time.monotonic() < until_s:
        time.sleep(_POLL_S)
        open_groups = [group for group in open_groups if group.lost()]
    for group in open_groups:
        group.keep()


def install() -> None:
    """Let torch make wakeable groups in this process, the script's own too, where Gloo is all."""
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    torch_groups: Any = distributed_c10d
    make = torch_groups._new_process_group_helper
    form = inspect.signature(make)

    @functools.wraps(make)
    def make_wakeable(*args: Any, **options: Any) -> Any:
        given = form.bind(*args, **options)
        if given.arguments.get("backend") != dist.Backend.GLOO:
            return make(*args, **options)
        if given.arguments.get("timeout") == dist.default_pg_timeout:
            given.arguments["timeout"] = FOREVER  # The script asked for none.
        own = torch_groups.ProcessGroup
        torch_groups.ProcessGroup = WakeableGroup
        try:
            made = make(*given.args, **given.kwargs)
        finally:
            torch_groups.ProcessGroup = own
        if isinstance(made[0], WakeableGroup):
            made[0].may_end_futures = given.arguments.get("timeout") == FOREVER
        return made

    torch_groups._new_process_group_helper = make_wakeable


def _forward(name: str, *, is_watched: bool) -> None:
    """Have the second group do what has this name, if torch has it."""

    def call(self: WakeableGroup, *args: Any, **options: Any) -> Any:
        inner = getattr(self._native, name)(*args, **options)
        return self._watch(inner) if is_watched else inner

    if hasattr(dist.ProcessGroup, name):
        setattr(WakeableGroup, name, call)


for _name in _COLLECTIVES:
    _forward(_name, is_watched=True)
for _name in _TRANSFERS:
    _forward(_name, is_watched=False)

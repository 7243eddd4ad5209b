"""Process groups of Gloo of which every wait can be ended, also for what Gloo itself has lost.

The intuition: when a write fails because the peer is gone, Gloo keeps the operation to try again
(`Pair::sendAsyncMode`), and when it then finds the connection closed it tells those who wait for a
receive or for the peer, but not those whose bytes wait to be written (`Pair::signalException`).
Its thread waits for that send until the timeout of the collective, whatever is done to sockets.
That thread cannot be woken. But the training thread need not wait for it: here it waits for Gloo
in slices, and what waits inside of torch (DistributedDataParallel) is given a result that it
cannot use. What Gloo still refers to is kept until the process ends: it sleeps and costs no CPU.
What is lost, and when that is known, is in `losses.py`.

A planned change or a failure thus costs no process. Rejected: a copy of each result by a thread of
ours (60 us for each bucket, here it is 15); a duplicate of each socket, so that writes do not fail
(the peer that dies is the one whose connection is reset). Not covered: `send` and `recv`, whose
waits Gloo counts as its own, and other backends.
"""

import ctypes
import functools
import inspect
import itertools
import math
import threading
import time
from contextlib import suppress
from datetime import timedelta
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from elasticd.errors import CallError
from elasticd.train.step_wait import step_wait

__all__ = [
    "FOREVER",
    "WakeableGroup",
    "WakeableWork",
    "busy_groups",
    "install",
    "kept_count",
    "still_busy",
]

FOREVER = timedelta(days=3650)
"""The timeout of groups whose futures may be ended: torch ends the process if a collective comes
to an end of its own after that."""

_SLICE_S = 0.2
"""How long is waited for Gloo before looking again whether the collective was given up."""

_POLL_S = 0.001

_ASKED = 8
"""Collectives that are asked whether they are done when another one begins."""

_COLLECTIVES = (
    "allreduce", "allreduce_coalesced", "broadcast", "allgather", "allgather_coalesced",
    "_allgather_base", "all_gather_single", "all_gather_single_coalesced",
    "allgather_into_tensor_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base",
    "reduce_scatter_single", "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced",
    "gather", "scatter", "alltoall", "alltoall_base", "all_to_all_single", "barrier",
)  # fmt: skip
"""By the names that torch has had for them since 2.6."""

_OFTEN = ("allreduce", "broadcast")
"""In each step, by DDP: they go to the backend past torch's dispatcher, which takes 10 us."""

_OTHERS = ("send", "recv", "recv_anysource")
"""What the second group does as well, but is not watched."""

_REFUSED = ("split_group", "merge_remote_group")
"""What they make are groups of torch's own class."""

_LOST = "Gloo does not come back from this collective; its group was aborted."

_lock = threading.Lock()
_busy: dict["WakeableGroup", None] = {}
"""Groups with collectives under way: nobody else may refer to one, and to let go of it would wait
for them."""
_kept: list[int] = []
_is_installed = False


class WakeableWork(dist.Work):
    """A collective that is under way in Gloo, as its caller sees it."""

    def __init__(self, inner: Any, options: Any, others: "dict[WakeableWork, None]") -> None:
        super().__init__()
        self._inner = inner
        self._options = options
        self._others = others
        self._future: Any = None
        self._is_given_up = False

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until it is done; a timeout of 0 means for ever, as in torch.

        Raises:
            RuntimeError: it failed, it took too long, or it was given up.
        """
        began_s = now_s = time.monotonic()
        until_s = began_s + timeout.total_seconds() if timeout else math.inf
        while not self._is_given_up:
            left_s = until_s - now_s
            try:
                slice_s = min(_SLICE_S, max(left_s, _POLL_S))
                is_done = bool(self._inner.wait(timedelta(seconds=slice_s)))
            except RuntimeError:
                if left_s <= 0.0:
                    raise
            else:
                with _lock:
                    self._others.pop(self, None)
                step_wait.waited(began_s)
                return is_done
            if self._inner.is_completed():
                return bool(self._inner.wait())
            now_s = time.monotonic()
        raise RuntimeError(_LOST)

    def get_future(self) -> Any:
        if self._future is None:
            self._future = self._inner.get_future()
        step_wait.took_future()
        return self._future

    def has_result(self) -> bool:
        """True also while Gloo's thread runs what the script has attached to the future."""
        return bool(self._inner.is_completed() or self._inner.get_future().done())

    def give_up(self, *, may_end_future: bool) -> None:
        """Let whoever waits for it raise."""
        if self._is_given_up:
            return
        self._is_given_up = True
        asked = getattr(self._options, "timeout", None)
        has_own_timeout = asked is not None and asked > timedelta(0)
        if self._future is not None and may_end_future and not has_own_timeout:
            # What the script has attached to it is run by who sets the result.
            threading.Thread(target=self._end_future, name="elasticd-lost", daemon=True).start()

    def _end_future(self) -> None:
        # torch offers no way to set an error. No bucket has this shape, so its reader raises.
        with suppress(RuntimeError):  # Gloo did it meanwhile.
            if not self._future.done():
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

    def _get_op_type(self) -> Any:
        return self._inner._get_op_type()


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
        self._backend: Any = None
        self._store = store
        self._open: dict[WakeableWork, None] = {}
        self.is_kept = False

    def _set_default_backend(self, *args: Any) -> None:
        super()._set_default_backend(*args)
        self._native._set_default_backend(*args)

    def _register_backend(self, *args: Any) -> None:
        super()._register_backend(*args)
        self._native._register_backend(*args)
        self._backend = args[-1]

    def _set_group_name(self, *args: Any) -> None:
        super()._set_group_name(*args)
        self._native._set_group_name(*args)

    def get_group_store(self) -> Any:
        return self._store

    def under_way(self) -> list[WakeableWork]:
        """What has not come to an end, in the order in which Gloo's threads take it up."""
        with _lock:
            self._forget_done()
            if not self._open:
                _busy.pop(self, None)
            return list(self._open)

    @property
    def threads(self) -> int:
        """How many collectives Gloo does at a time; the others wait for their turn."""
        return int(self._backend.options._threads)

    @property
    def may_end_futures(self) -> bool:
        """No collective ends of its own once it is lost."""
        return bool(self._backend.options._timeout == FOREVER)

    def keep(self) -> None:
        """Never take this group apart: torch would wait for the threads that Gloo waits in."""
        if not self.is_kept:
            self.is_kept = True
            _kept.append(id(self))
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def _watch(self, inner: Any, args: tuple[Any, ...]) -> Any:
        if inner is None:
            return None
        step_wait.begin_collective()
        work = WakeableWork(inner, args[-1] if args else None, self._open)
        with _lock:
            # A work refers to its tensors, so it goes as soon as it is done. Gloo takes them up in
            # this order: to ask all that are under way each time would be quadratic.
            for oldest in list(itertools.islice(self._open, _ASKED)):
                if not oldest.is_completed():
                    break
                del self._open[oldest]
            self._open[work] = None
            _busy[self] = None
        return work

    def _forget_done(self) -> None:
        for work in list(self._open):
            if work.is_completed():
                self._open.pop(work, None)


def busy_groups() -> list[WakeableGroup]:
    """Those that may have collectives under way."""
    with _lock:
        return list(_busy)


def still_busy(only: Any = None, limit_s: float = math.inf) -> list[WakeableGroup]:
    """Wait until nothing is under way; return the groups in which something is at the limit.

    Those that are kept do not count. All are asked: that lets go of those that are idle.
    """
    until_s = time.monotonic() + limit_s
    while True:
        busy = [
            group
            for group in busy_groups()
            if group.under_way() and not group.is_kept and only in (None, group)
        ]
        if not busy or time.monotonic() >= until_s:
            return busy
        time.sleep(_POLL_S)


def kept_count() -> int:
    return len(_kept)


def install() -> None:
    """Let torch make wakeable groups in this process, the script's own too, where Gloo is all."""
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    torch_groups: Any = distributed_c10d
    make, own, destroy = (
        torch_groups._new_process_group_helper,
        torch_groups.ProcessGroup,
        torch_groups.destroy_process_group,
    )
    form = inspect.signature(make)

    @functools.wraps(make)
    def make_wakeable(*args: Any, **options: Any) -> Any:
        given = form.bind(*args, **options)
        if given.arguments.get("backend") != dist.Backend.GLOO:
            return make(*args, **options)
        if given.arguments.get("timeout") == dist.default_pg_timeout:
            given.arguments["timeout"] = FOREVER  # The script asked for none.
        torch_groups.ProcessGroup = WakeableGroup
        try:
            return make(*given.args, **given.kwargs)
        finally:
            torch_groups.ProcessGroup = own

    @functools.wraps(destroy)
    def destroy_when_idle(group: Any = None) -> None:
        # torch would wait for what is under way, and could not be woken.
        still_busy(None if group is dist.group.WORLD else group)
        destroy(group)

    torch_groups._new_process_group_helper = make_wakeable
    torch_groups.destroy_process_group = dist.destroy_process_group = destroy_when_idle


def _forward(name: str, *, is_watched: bool) -> None:
    """Have the second group do what has this name, if torch has it."""

    def call(self: WakeableGroup, *args: Any, **options: Any) -> Any:
        inner = getattr(self._native, name)(*args, **options)
        return self._watch(inner, args) if is_watched else inner

    def call_often(self: WakeableGroup, *args: Any, **options: Any) -> Any:
        return self._watch(getattr(self._backend, name)(*args, **options), args)

    if hasattr(dist.ProcessGroup, name):
        setattr(WakeableGroup, name, call_often if name in _OFTEN else call)


def _refuse(name: str) -> None:
    def call(self: WakeableGroup, *args: Any, **options: Any) -> Any:
        raise CallError(
            f"{name} makes a group that elasticd could not end with its world: make it with "
            "torch.distributed.new_group, in train."
        )

    if hasattr(dist.ProcessGroup, name):
        setattr(WakeableGroup, name, call)


for _name in _REFUSED:
    _refuse(_name)
for _name in _COLLECTIVES:
    _forward(_name, is_watched=True)
for _name in _OTHERS:
    _forward(_name, is_watched=False)


def _hide_from_compilers() -> None:
    """Have torch.compile leave these functions as they are.

    DistributedDataParallel calls them in the middle of a compiled forward or backward pass, and
    Dynamo takes a process group for an object of which it may know nothing. Its own decorator would
    import all of it with elasticd; a torch that has other names for these refuses such a script.
    """
    with suppress(AttributeError):
        frames = torch._C._dynamo.eval_frame
        skip = frames._FrameAction.SKIP
        strategy = frames._FrameExecStrategy(skip, skip)
        for owner in (WakeableGroup, WakeableWork):
            for value in vars(owner).values():
                function = value.fget if isinstance(value, property) else value
                if isinstance(function, FunctionType):
                    frames.set_code_exec_strategy(function.__code__, strategy)


_hide_from_compilers()

"""Process groups of Gloo in which every wait can be ended, even for operations that Gloo itself has
lost.

When a write fails because the peer is gone, Gloo keeps the operation to try again
(`Pair::sendAsyncMode`), and when it then finds the connection closed it tells those who wait for a
receive or for the peer, but not those whose bytes wait to be written (`Pair::signalException`). Its
thread waits for that send until the timeout of the collective, whatever is done to sockets. That
thread cannot be woken. But the training thread need not wait for it: here it waits for Gloo in
slices, and waits inside of torch (DistributedDataParallel) get a result that they cannot use. The
objects to which Gloo still refers are kept until the process ends: they sleep and cost no CPU.
`gloo_lost.py` finds the lost operations.

A planned change or a failure thus costs no process. Rejected: a copy of each result by a thread of
ours (60 us for each bucket, here it is 15); a duplicate of each socket, so that writes do not fail
(the peer that dies is the one whose connection is reset). Not covered: `send` and `recv`, whose
waits Gloo counts as its own, `reduce_scatter` (`gloo_work.py`), and other backends.
"""

import ctypes
import functools
import inspect
import math
import time
from collections.abc import MutableMapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from elasticd.errors import CallError, EnvironmentProblem
from elasticd.train.introspection.collective_wait import step_wait
from elasticd.train.process_group.compiler_skip import hide_from_compilers
from elasticd.train.process_group.gloo_work import (
    LOST,
    SLICE,
    PassedWork,
    WakeableWork,
    Work,
    has_failed,
    lock,
)

__all__ = [
    "FOREVER",
    "WakeableGroup",
    "busy_groups",
    "has_all_results",
    "install",
    "is_result_missing",
    "kept_count",
    "prepare",
    "still_busy",
]

FOREVER = timedelta(days=3650)
"""The timeout of groups whose futures may be ended: torch ends the process if a collective ends by
itself after that."""

_POLL_S = 0.001

_PASSED = 16
"""Works of torch's own code that are kept before those that are done are let go. Their tensors are
the buckets of a reducer, which has them anyway."""

_COLLECTIVES = (
    "allreduce", "allreduce_coalesced", "broadcast", "allgather", "allgather_coalesced",
    "_allgather_base", "all_gather_single", "all_gather_single_coalesced",
    "allgather_into_tensor_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base",
    "reduce_scatter_single", "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced",
    "gather", "scatter", "alltoall", "alltoall_base", "all_to_all_single", "barrier",
)  # fmt: skip
"""By the names that torch has had for them since 2.6."""

_OFTEN = ("allreduce", "broadcast")
"""In each step, by DDP: these go to the backend past torch's dispatcher, which takes 10 us."""

_OTHERS = ("send", "recv", "recv_anysource")
"""Methods that the second group does too, without being watched."""

_REFUSED = ("split_group", "merge_remote_group")
"""Methods that are refused, because they make groups of torch's own class."""

_busy: dict["WakeableGroup", None] = {}
"""Groups with collectives in flight: nobody else may refer to one, and dropping it would wait for
them."""
_kept: list[int] = []
_is_installed = False


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
        self._registered: list[tuple[str, tuple[Any, ...]]] = []
        self._store = store
        self._open: dict[Any, Work | None] = {}
        """In the order in which they began. Gloo's own works stand for themselves until somebody
        asks what is under way."""
        self.begin_allreduce: Any = None
        self.begin_broadcast: Any = None
        """What Gloo's backend does, past torch's dispatcher, which takes 10 us."""
        self.had_no_timeout = False
        """The script asked for none when the group was made."""
        self.is_kept = False
        self.is_doubtful = False
        """One of its collectives has failed, or one was begun that nobody watches."""

    def _set_default_backend(self, *args: Any) -> None:
        super()._set_default_backend(*args)
        self._native._set_default_backend(*args)
        self._registered.append(("_set_default_backend", args))

    def _register_backend(self, *args: Any) -> None:
        super()._register_backend(*args)
        self._native._register_backend(*args)
        self._registered.append(("_register_backend", args))
        self._backend = args[-1]
        self.begin_allreduce, self.begin_broadcast = (
            self._backend.allreduce,
            self._backend.broadcast,
        )
        self.had_no_timeout = self.may_end_futures

    def register_backends(self, other: Any) -> None:
        """Make another object of torch's show the backends that this one has."""
        for name, args in self._registered:
            getattr(other, name)(*args)

    def _set_group_name(self, *args: Any) -> None:
        super()._set_group_name(*args)
        self._native._set_group_name(*args)

    def get_group_store(self) -> Any:
        return self._store

    def under_way(self) -> "list[Work]":
        """Return the unfinished works, in the order in which Gloo's threads take them up."""
        with lock:
            self._forget_done()
            if not self._open:
                _busy.pop(self, None)
            if self._open:  # The training thread has begun one meanwhile, and takes no lock.
                _busy[self] = None
            return [self._seen(each) for each in list(self._open)]

    @property
    def threads(self) -> int:
        """Return how many collectives Gloo does at a time; the others wait for their turn."""
        return int(self._backend.options._threads)

    @property
    def may_end_futures(self) -> bool:
        """Return whether futures may be ended: no collective ends by itself once it is lost."""
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
        self.remember(work)
        return work

    def remember(self, work: WakeableWork) -> None:
        """Take note of a collective that begins."""
        with lock:
            # A work refers to its tensors, so it goes as soon as it is done. Gloo takes them up in
            # this order: to ask all that are under way each time would be quadratic.
            while self._open:
                oldest = next(iter(self._open))
                if not oldest.is_completed():
                    break
                self._forget(oldest)
            self._open[work] = work
            _busy[self] = None

    def pass_on(self, inner: Any) -> None:
        """Take note of one whose work of Gloo's is handed to torch's own code."""
        self._open[inner] = None
        _busy[self] = None
        if len(self._open) > _PASSED:
            with lock:
                self._forget_done()

    def check(self, inner: Any) -> None:
        """Return if a work that was passed on succeeded, once its future has ended.

        Raises:
            RuntimeError: the work failed, or was given up.
        """
        while not inner.is_completed():  # The future ends a moment before the work.
            seen = self._open.get(inner)
            if seen is not None and seen.is_given_up:
                raise RuntimeError(LOST)
            with suppress(RuntimeError):
                inner.wait(SLICE)
        inner.wait()
        self._open.pop(inner, None)

    def has_all_results(self) -> bool:
        """Return whether all collectives so far, waited for or not, gave this rank its result."""
        with lock:
            begun = [self._seen(each) for each in list(self._open)]
        for work in begun:
            while work.has_result() and not work.is_completed() and not work.is_given_up:
                time.sleep(_POLL_S)  # The future ends a moment before the work.
            if not work.is_completed() or work.has_failed():
                return False
        return not self.is_doubtful

    def _seen(self, begun: Any) -> Work:
        """Return the work for a begun collective: the same object each time."""
        seen = self._open.get(begun)
        if seen is None:
            seen = self._open[begun] = PassedWork(begun)
        return seen

    def _forget_done(self) -> None:
        for work in list(self._open):
            if work.is_completed():
                self._forget(work)

    def _forget(self, done: Any) -> None:
        # Not `|=`: it would take back what another thread says while this one asks.
        if _has_failed(done):
            self.is_doubtful = True
        self._open.pop(done, None)


def prepare(env: MutableMapping[str, str]) -> None:
    """Let Gloo connect a group's ranks when the group is made, and not in their first collective:
    what ends a wait, and what tells that a peer is gone, looks at the connections that there are
    then.

    Raises: EnvironmentProblem: torch is told to use another transport than TCP.
    """
    transport = env.get("GLOO_DEVICE_TRANSPORT", "TCP")
    if transport != "TCP":  # torch takes no other word for it, not even an empty one.
        raise EnvironmentProblem(
            f"GLOO_DEVICE_TRANSPORT is {transport!r}, and elasticd.run ends the waits of Gloo over "
            "plain TCP only: unset it, or set it to TCP."
        )
    env["TORCH_GLOO_LAZY_INIT"] = "0"


def busy_groups() -> list[WakeableGroup]:
    """Return the groups that may have collectives in flight."""
    with lock:
        return list(_busy)


def _has_failed(done: Any) -> bool:
    return done.has_failed() if isinstance(done, WakeableWork) else has_failed(done)


def has_all_results() -> bool:
    """Return whether this rank has the result of every collective that it began in any group."""
    made: Any = distributed_c10d._world
    return all(
        isinstance(each, WakeableGroup) and each.has_all_results() for each in list(made.pg_map)
    )


def is_result_missing(group: Any) -> bool:
    """Return whether this rank has begun a collective of this group whose result is not here yet;
    any thread.

    Then other ranks of the group have not begun the collective, or cannot be reached. False where
    this is not known: with other backends, for `send` and `recv`, and for a `reduce_scatter`.
    """
    if not isinstance(group, WakeableGroup):
        return False
    # It changes nothing: the training thread may begin or end one meanwhile, and takes no lock.
    with suppress(RuntimeError):  # No heartbeat is to fail for it.
        return any(not _has_result(each) for each in list(group._open))
    return False


def _has_result(begun: Any) -> bool:
    work = begun if isinstance(begun, WakeableWork) else PassedWork(begun)
    return work.is_given_up or work.has_result() or work.hides_result


def still_busy(only: Any = None, limit_s: float = math.inf) -> list[WakeableGroup]:
    """Wait until nothing is in flight; return the groups that still have something at the limit.

    Groups that are kept do not count. All groups are asked, which drops the idle ones.
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
    """Have the second group do the method of this name, if torch has it."""

    def call(self: WakeableGroup, *args: Any, **options: Any) -> Any:
        if not is_watched:
            self.is_doubtful = True
        inner = getattr(self._native, name)(*args, **options)
        return self._watch(inner, args) if is_watched else inner

    def call_often(self: WakeableGroup, *args: Any, **options: Any) -> Any:
        return self._watch(getattr(self, f"begin_{name}")(*args, **options), args)

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


hide_from_compilers(*vars(WakeableGroup).values())

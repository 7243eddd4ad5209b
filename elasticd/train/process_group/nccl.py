"""NCCL for processes that outlive their groups: its environment and its abort.

The kernels of a collective whose peer is gone spin on the device for ever, and nothing but an abort
ends them. An abort is the only way out of a group, planned or not: `destroy_process_group` flushes
what is under way, so it waits for peers that may have left in the other way. All communicators are
aborted at the same time, since one after the other they wait for each other as soon as two of them
have kernels under way (pytorch#119797). The abort may itself not return
(NVIDIA/nccl#1777), so it has a thread of its own and a limit, past which the process ends: nobody
can form another group in it, and its slot gets a new one.

RCCL has the same names. Nothing here was ever run on a GPU: order and arguments are tested with
doubles (docs/gpu.md).
"""

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from threading import Lock, Thread

import torch

from elasticd.tensors import cuda
from elasticd.train.introspection import stuck_rank
from elasticd.train.process_group import default_group

__all__ = ["ABORT_LIMIT_S", "DEFAULTS", "ENVIRONMENT", "NcclAbort", "NcclCommunicators", "prepare"]

ABORT_LIMIT_S = 10.0
"""How long an abort may take; a process in which it takes longer is of no more use."""

_TORCH_GIVES_UP_S = 5.0
"""An abort waits for a communicator that is being made until torch gives that up. By torch's
sources this is one to two seconds after its own limit; the rest is for a machine that is busy."""

ENVIRONMENT = {
    # The watchdog would end the process, or abort on its own, when NCCL fails or hangs.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    # And it would throw what an abort leaves on an event, in a thread where nobody catches it.
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    # When a peer dies it would sleep for four times this long (a minute), with the lock that the
    # next collective needs, for a dump that is switched off; the group's destructor waits for it.
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",
}
"""Torch ends a process whose NCCL fails; we mean to keep it, and aborts and limits are ours.
(docs.pytorch.org: ProcessGroupNCCL environment variables.)"""

DEFAULTS = {
    # Where a peer stops while communicators are made, no abort reaches a call that blocks.
    "TORCH_NCCL_USE_COMM_NONBLOCKING": "1",
    # Multicast memory is not given back by an abort, and after some generations there is no more.
    "NCCL_NVLS_ENABLE": "0",
}
"""What somebody may know better; set outside, they stay."""

_TORCH_LIMIT = "TORCH_NCCL_NONBLOCKING_TIMEOUT"
"""The variable with the seconds that torch waits for a communicator. Torch reads it once in a
process, so the limit is that of the first world, or of who set it outside."""

_NONBLOCKING_SINCE = "2.10"
"""Torch before it asks NCCL from two threads at once how far such a communicator is, for which NCCL
is not made: it hangs now and then (pytorch#169484)."""


def prepare(env: MutableMapping[str, str]) -> None:
    """Set the variables that torch and NCCL read when the first group is made."""
    env.update(ENVIRONMENT)
    for name, value in DEFAULTS.items():
        if name != "TORCH_NCCL_USE_COMM_NONBLOCKING" or _can_be_nonblocking():
            env.setdefault(name, value)


def _can_be_nonblocking() -> bool:
    return bool(torch.torch_version.TorchVersion(torch.__version__) >= _NONBLOCKING_SINCE)


def _abort_limit_s(env: Mapping[str, str]) -> float:
    """Return how long an abort may take: never less than torch takes to give up a communicator."""
    if env.get("TORCH_NCCL_USE_COMM_NONBLOCKING") != "1":
        return ABORT_LIMIT_S
    return max(ABORT_LIMIT_S, _torch_limit_s(env) + _TORCH_GIVES_UP_S)


def _torch_limit_s(env: Mapping[str, str]) -> float:
    """Return how long torch waits for a communicator; 0 if the variable is no number."""
    text = env[_TORCH_LIMIT]
    return float(text) if text.isascii() and text.isdigit() else 0.0


class NcclCommunicators:
    """NCCL's side of one generation's group.

    The training thread calls `connect` and `leave`; any thread may call the rest.
    """

    def __init__(
        self, device: torch.device, connect_limit_s: float, env: MutableMapping[str, str] | None
    ) -> None:
        """`env` is this process's environment, where torch looks for the limit; None: not set."""
        self._device = device
        self._is_connecting = False
        self._abort: NcclAbort | None = None
        self._lock = Lock()
        self._abort_limit_s = ABORT_LIMIT_S
        self.connect_limit_s = connect_limit_s
        """How long communicators may take to be made: as long as torch waits for them, if that is
        more."""
        # Torch would hold a lock that the abort needs, half an hour for a peer that has stopped.
        if env is not None:
            env.setdefault(_TORCH_LIMIT, str(math.ceil(connect_limit_s)))
            self._abort_limit_s = _abort_limit_s(env)
            self.connect_limit_s = max(connect_limit_s, _torch_limit_s(env))

    @contextmanager
    def connecting(self) -> Iterator[None]:
        """Tell `check` that the training thread is in calls that make communicators."""
        self._is_connecting = True
        try:
            yield
        finally:
            self._is_connecting = False

    def connect(self, is_over: Callable[[], bool]) -> None:
        """Have the default group's made now, under a deadline, and not in the script's `train`.

        Raises:
            TimeoutError: the deadline passed first.
        """
        default_group.connect(self._device)
        if not cuda.await_event(cuda.mark(self._device), is_over):
            raise TimeoutError("NCCL did not connect")

    def begin_abort(self) -> None:
        """Begin the abort and return at once; before there is a group, there is nothing
        to abort.
        """
        with self._lock:
            if self._abort is None and default_group.is_made():
                self._abort = NcclAbort(self._device, self._abort_limit_s)
                self._abort.begin()

    def check(self, over_s: float) -> None:
        """End the process if its group has been over for too long and the thread still connects."""
        if self._is_connecting and over_s > self._abort_limit_s:
            stuck_rank.end_process("NCCL was not formed in time, and no abort reaches it")

    def leave(self, meet: Callable[[], object] | None) -> None:
        """Abort, as planned, after all ranks have called `meet`; after this no group of the process
        is left.
        """
        if meet is not None:
            meet()
        self.begin_abort()
        if self._abort is not None:
            self._abort.wait()


class NcclAbort:
    """One abort of all groups of this process, in a thread of its own; either it ends, or the
    process does.
    """

    def __init__(self, device: torch.device, limit_s: float = ABORT_LIMIT_S) -> None:
        self._device, self._limit_s = device, limit_s
        self._error: Exception | None = None
        self._aborting = Thread(target=self._abort, name="elasticd-abort", daemon=True)
        self._watching = Thread(target=self._watch, name="elasticd-abort-limit", daemon=True)

    def begin(self) -> None:
        """Return at once; any thread."""
        self._aborting.start()
        self._watching.start()

    def wait(self) -> None:
        """Return when the groups are gone."""
        self._watching.join()

    def _abort(self) -> None:
        try:
            with cuda.on(self._device):
                default_group.abort_all()
        except Exception as exc:  # Whatever it was, the kernels spin on: the process must end.
            self._error = exc

    def _watch(self) -> None:
        # Nobody else can: the training thread may never come out of the call that it is in.
        self._aborting.join(self._limit_s)
        if self._aborting.is_alive():
            stuck_rank.end_process(f"the abort of NCCL did not return within {self._limit_s:g} s")
        elif self._error is not None:
            name = type(self._error).__name__
            stuck_rank.end_process(f"NCCL could not be aborted ({name}: {self._error})")

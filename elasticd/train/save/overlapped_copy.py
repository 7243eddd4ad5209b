"""Copies a share of the state into shared memory, at once or while the next step runs.

Parameters and what optimizers keep for them do not change before the next optimizer's step. So a
thread may copy them during the forward and backward pass, and the next step waits for the rest; the
copy then costs memory bandwidth and no time. Everything else (buffers, plain tensors) may change at
any moment and is copied at once in either form. On a GPU "at once" and "wait" speak of its streams:
the CPU only queues the copies (`copy_stream`).
"""

import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from threading import Event, Lock, Thread

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from elasticd.tensors.memory_copy import Pair
from elasticd.train.device.copy_stream import CopyStream

__all__ = ["CopyChoice", "OverlappedCopy", "copy_now"]

_version = attrgetter("_version")

CHUNK_BYTES = 32 << 20
"""The bytes of one copy call: another thread that wants the interpreter waits no longer than
that."""

WORTH_S = 0.003
"""Below this duration a copy is done at once: hiding it is not worth a thread."""


def copy_now(pairs: Sequence[Pair]) -> None:
    """Copy each (from, to) pair."""
    if pairs:
        with torch.no_grad():
            torch._foreach_copy_([to for _, to in pairs], [source for source, _ in pairs])


class OverlappedCopy:
    """One copy that goes on beside the training, until an optimizer wants to step."""

    def __init__(
        self,
        later: Sequence[Pair],
        done: Callable[[bool], None],
        *,
        now: Sequence[Pair] = (),
        is_pinned: bool = False,
    ) -> None:
        """Copy `now` before this returns, `later` before the next step of an optimizer.

        `done(is_good)` is called in a thread of its own when all is copied. It gets False if
        somebody wrote to a tensor during the copy. If the copy fails, `done` is not called.
        `is_pinned` says that a GPU can write to all the places.
        """
        self._watched = [source for source, _ in later]
        self._done = done
        self._versions = self._sum()
        self._is_good: bool | None = None
        self._turn = Lock()
        self.waited_s = 0.0
        """How long optimizers waited for it."""
        self.error: Exception | None = None
        """What went wrong in the thread; to be looked at after `finish`."""
        self._stream: CopyStream | None = None
        device = _gpu_of(later)
        if device is not None and is_pinned:
            self._stream = CopyStream(_on_gpu(now), _on_gpu(later), device)
            now, later = _on_host(now), _on_host(later)
        elif device is not None:
            # Each copy would stand in line with the step's kernels, or be ordered after none.
            now, later = [*now, *later], ()
        if now:
            copy_now(now)
        self._host, self._is_host_done = later, Event()
        self._thread = Thread(target=self._run, name="elasticd-copy", daemon=True)
        self._thread.start()
        # Last, so that nothing is left of a copy that could not begin.
        self._hook = register_optimizer_step_pre_hook(self._hold)

    def finish(self) -> None:
        """Wait until everything is copied."""
        self._thread.join()
        self._hook.remove()

    def _hold(self, *unused: object) -> None:
        # The hook stays until `finish`: torch is iterating over its hooks right now.
        if not self._is_host_done.is_set():
            began_s = time.monotonic()
            self._is_host_done.wait()
            self.waited_s += time.monotonic() - began_s
        if self._stream is not None:
            self._look()  # What is written from now on comes after the copy.
            self._stream.hold()

    def _run(self) -> None:
        try:
            self._copy()
        except Exception as exc:  # The training goes on, and says so where it is seen.
            self.error = exc
        finally:
            self._is_host_done.set()

    def _copy(self) -> None:
        chunk: list[Pair] = []
        size = 0
        for pair in self._host:
            chunk.append(pair)
            size += pair[0].nbytes
            if size >= CHUNK_BYTES:
                copy_now(chunk)
                chunk, size = [], 0
        copy_now(chunk)
        if self._stream is not None:
            self._is_host_done.set()
            self._stream.wait()
        self._look()
        self._is_host_done.set()
        self._done(self._is_good is True)

    def _look(self) -> None:
        """Find out once, before any optimizer may write, whether the copy is good."""
        with self._turn:
            if self._is_good is None:
                self._is_good = self._sum() == self._versions

    def _sum(self) -> int:
        return sum(0 if each.is_inference() else _version(each) for each in self._watched)


def _gpu_of(pairs: Sequence[Pair]) -> torch.device | None:
    return next((source.device for source, _ in pairs if source.is_cuda), None)


def _on_gpu(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair[0].is_cuda]


def _on_host(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if not pair[0].is_cuda]


class CopyChoice:
    """Chooses the form of the copy; if the user names none, tries both, and reports the result."""

    def __init__(self, mode: str, say: Callable[[str], None]) -> None:
        """`mode` is auto, blocking or overlapped; `say` gets one sentence, once."""
        self._mode, self._say = mode, say
        self._blocking: list[float] = []
        self._overlapped: list[float] = []

    @property
    def is_overlapped(self) -> bool:
        if self._mode != "auto":
            return self._mode == "overlapped"
        # The first of each form meets memory that nobody has touched.
        if len(self._blocking) < 2:
            return False
        if min(self._blocking) < WORTH_S:
            return False
        if len(self._overlapped) < 2:
            return True
        return min(self._overlapped) < min(self._blocking)

    def took(self, *, is_overlapped: bool, stall_s: float) -> None:
        """Take note of the time by which one snapshot made its step longer."""
        found = self._overlapped if is_overlapped else self._blocking
        found.append(max(0.0, stall_s))
        del found[:-5]
        is_known = len(self._overlapped) == 2 and len(self._blocking) >= 2
        if self._mode == "auto" and is_overlapped and is_known:
            form = "while the next step runs" if self.is_overlapped else "between two steps"
            self._say(
                f"Snapshots are copied {form}: copied at once they cost "
                f"{min(self._blocking) * 1000:.0f} ms, beside a step "
                f"{min(self._overlapped) * 1000:.0f} ms."
            )
            self._mode = "overlapped" if self.is_overlapped else "blocking"

    def broke(self) -> None:
        """Take note that somebody wrote to parameters while they were copied: never copy beside a
        step again.
        """
        if self._mode != "blocking":
            self._mode = "blocking"
            self._say(
                "Something other than an optimizer's step changes parameters while they are "
                "copied: snapshots are copied between two steps from now on."
            )

"""torch's DataLoader, made to begin at any position and to end at once.

A DataLoader reads ahead in processes of its own and ends them when its iterator is collected,
politely: it waits up to five seconds for each that is busy with a sample. A rank that must join the
next world has no such time, so `close` ends them by signal, in a bounded time.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch._C import _remove_worker_pids
from torch.utils.data import DataLoader, get_worker_info

from elasticd.errors import CallError, InvariantBroken
from elasticd.train.data.augmentation import Samples, Seeded
from elasticd.train.data.batch_share import EpochBatches, ShareSampler
from elasticd.train.interrupt import uninterruptible

__all__ = ["FetchSettings", "BatchReader"]

_CLOSE_S = 2.0  # for torch's own shutdown, once the workers have been signalled
_TERM_S = 0.5  # a data worker that SIGTERM does not end in this time gets SIGKILL
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How to fetch: the arguments of torch's DataLoader with the same names."""

    num_workers: int = 0
    collate_fn: Callable[[list[Any]], Any] | None = None
    pin_memory: bool = False
    timeout: float = 0
    worker_init_fn: Callable[[int], None] | None = None
    multiprocessing_context: str | BaseContext | None = None
    prefetch_factor: int | None = None
    persistent_workers: bool = False


class BatchReader:
    """Reads one rank's batches from a position on, one stream at a time."""

    def __init__(self, dataset: Samples, fetching: FetchSettings, *, is_seeded: bool) -> None:
        """Make torch's DataLoader for this dataset.

        Raises: CallError: the DataLoader refuses the arguments.
        """
        self._dataset = Seeded(dataset) if is_seeded else dataset
        self._fetching = fetching
        self._sampler = ShareSampler(is_keyed=is_seeded)
        # The seeds of the data workers come from this one, so that to open a stream draws nothing
        # from the generators of the training.
        self._generator = torch.Generator(device="cpu")
        self._stream: Iterator[Any] | None = None
        try:
            self._loader = self._build()
        except (ValueError, TypeError) as exc:
            raise CallError(f"torch's DataLoader refuses these arguments: {exc}") from exc

    def open(self, epoch_batches: EpochBatches, start: int) -> None:
        """Begin at a position; drop the batches that were read ahead from another."""
        if not self._fetching.persistent_workers:
            self.close()
        self._sampler.point(epoch_batches, start)
        self._generator.manual_seed(
            epoch_batches.key(start, epoch_batches.rank, epoch_batches.size)
        )
        self._stream = iter(self._loader)

    def next(self) -> Any:
        """Return the next batch; after any error the stream must be opened anew.

        Raises: InvariantBroken: no stream is open. CallError: the dataset raised StopIteration.
        Whatever else the dataset raises.
        """
        if self._stream is None:
            raise InvariantBroken("the loader read from a stream that it had not opened")
        try:
            return next(self._stream)
        except StopIteration as exc:
            self.close()
            raise CallError(
                "the dataset raised StopIteration for an index below its length: "
                "let __getitem__ raise IndexError or ValueError where a sample cannot be had"
            ) from exc
        except BaseException:
            # A DataLoader would go on with the batch after the one that failed; and if one of its
            # workers died, those that persist cannot be used again.
            self.close()
            raise

    def rest(self) -> None:
        """Let an epoch end; persistent workers wait for the next one."""
        if not self._fetching.persistent_workers:
            self.close()

    @uninterruptible  # Else a second signal would leave an iterator whose workers are gone.
    def close(self) -> None:
        """Drop the batches that were read ahead, and end the processes that read them."""
        stream, self._stream = self._stream, None
        if stream is None:
            return
        if getattr(stream, "_workers", None):
            _end(stream)
        if self._fetching.persistent_workers:
            # A DataLoader keeps the iterator whose workers persist, and cannot be told to drop it.
            self._loader = self._build()

    def _build(self) -> "DataLoader[Any]":
        f = self._fetching
        dataset: Any = self._dataset
        return DataLoader(
            dataset,
            batch_sampler=self._sampler,  # type: ignore[arg-type]
            num_workers=f.num_workers,
            collate_fn=f.collate_fn,
            pin_memory=f.pin_memory,
            timeout=f.timeout,
            worker_init_fn=_Start(f.worker_init_fn) if f.num_workers > 0 else None,
            multiprocessing_context=f.multiprocessing_context,
            generator=self._generator,
            prefetch_factor=f.prefetch_factor,
            persistent_workers=f.persistent_workers,
        )


class _Start:
    """The first steps of a data worker."""

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self._then = then
        # The signal goes out when the *thread* that forked ends, so only the main thread will do.
        is_main = threading.current_thread() is threading.main_thread()
        self._parent = os.getpid() if is_main else None

    def __call__(self, worker_id: int) -> None:
        if sys.platform == "linux" and os.getppid() == self._parent:
            # A forked data worker holds copies of its parent's sockets. It must not outlive a
            # parent that was killed, or the peers would wait for a connection that never closes.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        info = get_worker_info()
        if info is not None and isinstance(info.dataset, Seeded):
            # The script expects its own; the record is frozen.
            object.__setattr__(info, "dataset", info.dataset.dataset)
        if self._then is not None:
            self._then(worker_id)


class _TerminatingWorker:
    """A data worker as torch's shutdown sees it: joining one ends them all."""

    def __init__(self, process: BaseProcess, processes: list[BaseProcess]) -> None:
        self._process = process
        self._processes = processes

    def join(self, timeout: float | None = None) -> None:
        for process in self._processes:
            # A data worker answers SIGTERM from its parent with _exit(0), whatever it is doing.
            process.terminate()
        self._process.join(_TERM_S)

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def terminate(self) -> None:
        self._process.kill()


def _end(stream: Any) -> None:
    """End a DataLoader iterator's workers, in torch's order but without its patience.

    The order matters: first the thread that pins memory (a dying worker may leave half a message),
    then the event that all share, then the signals (a worker killed while it holds the event's lock
    would block the process that sets it). So torch's own shutdown runs with other joins, in a
    thread that can be left behind; its watch for dead workers is switched off before, since their
    end is wanted.
    """
    processes: list[BaseProcess] = list(stream._workers)
    if stream._worker_pids_set:
        _remove_worker_pids(id(stream))
        stream._worker_pids_set = False
    stream._workers = [_TerminatingWorker(process, processes) for process in processes]
    shutdown = threading.Thread(target=stream._shutdown_workers, name="loader-close", daemon=True)
    shutdown.start()
    shutdown.join(_CLOSE_S)
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join(_CLOSE_S)

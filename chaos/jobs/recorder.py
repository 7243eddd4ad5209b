"""What a rank of a chaos job writes down, and the orders that it gets from the runner.

A write goes straight to the kernel, so that it outlives the process that is killed right after it.
"""

import ctypes
import hashlib
import os
import signal
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import torch

from chaos.history.records import Acted, Applied, Entered, LeftTrain, Record, Took, to_line
from chaos.plan.fault import Point

__all__ = ["Ordered", "Recorder", "digest_of", "pod_life"]

FOREVER_S = 3600
EXIT_CODE = 3
CHUNK_BYTES = 4 << 20
RECORDS = "ranks.jsonl"
END = "end"
ORDERS = "orders"


class Ordered(RuntimeError):
    """What an order of the runner raises: stands for any bug of a script."""


class Recorder:
    """The record of one process, in whatever generations it takes part."""

    def __init__(self, folder: Path, *, is_in_pod: bool = False) -> None:
        self._pod = pod_life() if is_in_pod else ""
        self._end = folder / END
        # As `history` names a process: in pods pids repeat.
        name = f"{self._pod}:{os.getpid()}" if self._pod else str(os.getpid())
        self._orders = folder / ORDERS / name
        # O_APPEND: all ranks share the file, and no line lands in another one's place.
        self._fd = os.open(folder / RECORDS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._generation = self._rank = self._size = 0
        self._slow_s = 0.0
        self._slow_until_s = 0.0

    def entered(
        self, *, generation: int, rank: int, size: int, step: int, epoch: int, digest: str
    ) -> None:
        self._generation, self._rank, self._size = generation, rank, size
        self._write(
            Entered(
                at_s=now_s(),
                generation=generation,
                rank=rank,
                size=size,
                step=step,
                epoch=epoch,
                digest=digest,
                pid=os.getpid(),
                pod=self._pod,
                node=os.environ.get("ELASTICD_NODE", ""),
            )
        )

    def took(self, *, step: int, epoch: int, samples: Iterable[int], loss: float) -> None:
        self._write(
            Took(
                at_s=now_s(),
                generation=self._generation,
                rank=self._rank,
                size=self._size,
                step=step,
                epoch=epoch,
                samples=tuple(samples),
                loss=loss,
                pid=os.getpid(),
                pod=self._pod,
            )
        )

    def applied(
        self, *, step: int, digest: str, called_s: float = 0.0, is_late: bool = False
    ) -> None:
        self._write(
            Applied(
                at_s=now_s(),
                generation=self._generation,
                rank=self._rank,
                step=step,
                digest=digest,
                pid=os.getpid(),
                pod=self._pod,
                called_s=called_s,
                is_late=is_late,
            )
        )

    def left(self, *, step: int, why: str) -> None:
        self._write(
            LeftTrain(
                at_s=now_s(),
                generation=self._generation,
                rank=self._rank,
                step=step,
                why=why,
                pid=os.getpid(),
                pod=self._pod,
            )
        )

    def is_over(self, step: int) -> bool:
        """Return whether the runner wants the end at this step, one that all can see in time."""
        try:
            return step >= int(self._end.read_text())
        except (OSError, ValueError):
            return False

    def obey(self, point: Point, step: int) -> None:
        """Carry out an order that is meant for this point of the step."""
        if point is Point.BACKWARD and now_s() < self._slow_until_s:
            time.sleep(self._slow_s)
        try:
            kind, at, number, amount_s, for_s = self._orders.read_text().split("|")
        except (OSError, ValueError):
            return
        if at != point:
            return
        self._orders.unlink()
        self._write(
            Acted(
                at_s=now_s(),
                generation=self._generation,
                rank=self._rank,
                step=step,
                number=int(number),
                pid=os.getpid(),
                pod=self._pod,
            )
        )
        self._act(kind, float(amount_s), float(for_s))

    def _act(self, kind: str, amount_s: float, for_s: float) -> None:
        match kind:
            case "worker-kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "worker-crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "worker-stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "worker-raise":
                raise Ordered("the runner wants an exception here")
            case "worker-exit":
                os._exit(EXIT_CODE)
            case "worker-hang":
                time.sleep(FOREVER_S)
            case "worker-gil":
                hold_gil()
            case "worker-oom":
                hoard()
            case "worker-slow":
                self._slow_s, self._slow_until_s = amount_s, now_s() + for_s

    def _write(self, record: Record) -> None:
        os.write(self._fd, to_line(record).encode())


def pod_life() -> str:
    """Name our pod and the life of our container, which is that of its first process.

    Both a pod's pids and, of a container that was started again, its name repeat.
    """
    stat = Path("/proc/1/stat").read_text()
    return f"{socket.gethostname()}@{stat.rpartition(')')[2].split()[19]}"


def now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def hold_gil() -> NoReturn:
    """Sleep in C with the GIL held: no thread of the process runs Python until it is killed."""
    libc = ctypes.PyDLL(None)
    while True:
        libc.sleep(FOREVER_S)


def hoard() -> NoReturn:
    """Take memory that nobody can take back, until the kernel ends a process for it."""
    taken = []
    while True:
        taken.append(b"\1" * CHUNK_BYTES)


def digest_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Hash parameters and optimizer state, bit by bit."""
    digest = hashlib.blake2b(digest_size=8)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            digest.update(parameter.detach().numpy().tobytes())
            for name, value in sorted(optimizer.state.get(parameter, {}).items()):
                digest.update(name.encode())
                if isinstance(value, torch.Tensor):
                    digest.update(value.detach().numpy().tobytes())
                else:
                    digest.update(repr(value).encode())
    for name, buffer in model.named_buffers():
        digest.update(name.encode() + buffer.numpy().tobytes())
    return digest.hexdigest()

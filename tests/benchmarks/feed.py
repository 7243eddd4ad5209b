"""What the script under test says, and the waits on it.

A thread reads all that comes, so that no worker ever waits for us, and keeps per process only how
far it came. A process is named by its pid and its beginning.
"""

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Thread
from types import TracebackType
from typing import Self, TypeVar

__all__ = ["ORDER", "Feed", "Progress"]

ORDER = ("began", "imported", "joined", "wrapped", "stepped")
"""How far a worker came: its script's first line, torch imported, process group made, model
wrapped in DDP, first step done."""

RECEIVE_BYTES = 4 * 1024 * 1024
FRESH_S = 0.5
"""A process that took a step this lately is alive; a step takes about 15 ms."""

T = TypeVar("T")
Process = tuple[int, str]


@dataclass(slots=True, kw_only=True)
class Progress:
    """One worker process, from its first line to its last step so far."""

    pid: int
    rank: int
    world: int
    generation: int
    first_s: dict[str, float] = field(default_factory=dict)
    """When it first came so far, by the names in ORDER."""
    steps: int = 0
    last_step_s: float = 0.0


class Feed:
    """The socket to which workers send, at `path`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "feed"
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self._sock.bind(str(self.path))
        self._news = Condition()
        self._seen: dict[Process, Progress] = {}
        self._thread = Thread(target=self._read, name="feed", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.path.unlink(missing_ok=True)
        self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(2.0)
        self._sock.close()

    def env(self) -> dict[str, str]:
        """What the workers need in their environment."""
        return {"BENCH_FEED": str(self.path)}

    def known(self) -> frozenset[Process]:
        """All processes seen so far."""
        with self._news:
            return frozenset(self._seen)

    def wait_steady(
        self, world: int, steps: int, timeout_s: float, known: frozenset[Process] = frozenset()
    ) -> Mapping[int, Progress] | None:
        """Wait until each rank of a world of this size took so many steps and still trains.

        Only processes that are not `known` count. None if that did not come in time.
        """

        def found() -> dict[int, Progress] | None:
            now_s = time.monotonic()
            ranks = {
                each.rank: each
                for process, each in self._seen.items()
                if process not in known
                and each.world == world
                and each.steps >= steps
                and now_s - each.last_step_s < FRESH_S
            }
            return ranks if len(ranks) == world else None

        return self._wait(found, timeout_s)

    def wait_first_step(self, known: frozenset[Process], timeout_s: float) -> Progress | None:
        """Wait for the first step of any process that is not known; None if none came."""

        def found() -> Progress | None:
            new = [
                each
                for process, each in self._seen.items()
                if process not in known and each.steps > 0
            ]
            return min(new, key=lambda each: each.first_s["stepped"], default=None)

        return self._wait(found, timeout_s)

    def _wait(self, found: Callable[[], T | None], timeout_s: float) -> T | None:
        deadline_s = time.monotonic() + timeout_s
        with self._news:
            while (result := found()) is None:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return None
                self._news.wait(left_s)
            return result

    def _read(self) -> None:
        while self.path.exists():
            try:
                text = self._sock.recv(512)
            except OSError:
                return
            if text:
                name, at_s, pid, began, rank, world, generation = text.decode().split()
                with self._news:
                    each = self._seen.setdefault(
                        (int(pid), began),
                        Progress(
                            pid=int(pid),
                            rank=int(rank),
                            world=int(world),
                            generation=int(generation),
                        ),
                    )
                    each.first_s.setdefault(name, float(at_s))
                    if name == "stepped":
                        each.steps += 1
                        each.last_step_s = float(at_s)
                    self._news.notify_all()

"""The least that a restart of two workers can cost here: fork, Gloo, one step.

A parent that has imported torch forks two processes at a word; they make a TCPStore and a Gloo
group of their own and take one DDP step. No detection, no agreement, no end of old workers. Run as
a program it is that parent: a line `go PORT` starts two, `stop` ends them.
"""

import gc
import importlib
import os
import runpy
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from elasticd.store.embedded import bound_to_us, free_port
from tests.benchmarks.bench import ROOT, STEP, own_environ
from tests.benchmarks.feed import Feed, Progress

__all__ = ["Floor"]

RANKS = 2
STEP_LIMIT_S = 30.0
IMPORTS = ("torch", "torch.distributed", "torch.nn.parallel", "torch.optim", "torch._dynamo")


class Floor:
    """The warm parent as a process; use it in a `with`."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        env = own_environ(feed.env()) | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        self._process = subprocess.Popen(
            bound_to_us([sys.executable, "-m", "tests.benchmarks.floor"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            cwd=ROOT,
            text=True,
            start_new_session=True,
        )
        self._hear()  # It is warm.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait(5.0)

    def measure(self) -> tuple[float, Progress] | None:
        """Return when the parent forked, and the first process to take a step."""
        known = self._feed.known()
        self._tell(f"go {free_port()}")
        forked_s = float(self._hear())
        first = self._feed.wait_first_step(known, STEP_LIMIT_S)
        self._tell("stop")
        self._hear()
        return (forked_s, first) if first is not None else None

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("The warm parent of the floor ended; its error is above.")
        return line.strip()


def main() -> None:
    """Fork at each `go`."""
    for name in IMPORTS:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    children: list[int] = []
    print("warm", flush=True)
    for line in sys.stdin:
        word, _, port = line.strip().partition(" ")
        if word == "go":
            forked_s = time.monotonic()
            for rank in range(RANKS):
                pid = os.fork()
                if pid == 0:
                    os.environ.update(
                        RANK=str(rank),
                        WORLD_SIZE=str(RANKS),
                        MASTER_ADDR="127.0.0.1",
                        MASTER_PORT=port,
                    )
                    runpy.run_path(str(STEP), run_name="__main__")
                    os._exit(0)
                children.append(pid)
            print(forked_s, flush=True)
        else:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            for pid in children:
                os.waitpid(pid, 0)
            children.clear()
            print("stopped", flush=True)


if __name__ == "__main__":
    main()

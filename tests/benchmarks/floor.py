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
import sys
import time

from elasticd.store.private_etcd.embedded import free_port
from tests.benchmarks.bench import STEP
from tests.benchmarks.feed import Feed, Progress
from tests.benchmarks.warm_parent import WarmParent

__all__ = ["Floor"]

RANKS = 2
STEP_LIMIT_S = 30.0
IMPORTS = ("torch", "torch.distributed", "torch.nn.parallel", "torch.optim", "torch._dynamo")


class Floor(WarmParent):
    """The warm parent as a process; use it in a `with`."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        super().__init__("tests.benchmarks.floor", feed.env())

    def measure(self) -> tuple[float, Progress] | None:
        """Return when the parent forked, and the first process to take a step."""
        known = self._feed.known()
        forked_s = float(self.ask(f"go {free_port()}"))
        first = self._feed.wait_first_step(known, STEP_LIMIT_S)
        self.ask("stop")
        return (forked_s, first) if first is not None else None


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

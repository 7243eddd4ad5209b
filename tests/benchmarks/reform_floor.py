"""The least that a smaller world can cost here: living processes, a fresh TCPStore, Gloo, one step.

A parent that has imported torch forks three processes, which stay. At a word they make a TCPStore
and a Gloo group, wrap the model in DDP, take one step, and take the group down again, in the same
processes, as survivors do. Nothing is detected, agreed on, aborted or compared.
"""

import gc
import importlib
import os
import sys
import time
from datetime import timedelta

from elasticd.store.private_etcd.embedded import free_port
from tests.benchmarks.floor import IMPORTS
from tests.benchmarks.warm_parent import WarmParent

__all__ = ["RANKS", "ReformFloor"]

RANKS = 3
LIMIT_S = 30.0


class ReformFloor(WarmParent):
    """The parent as a process; use it in a `with`."""

    def __init__(self) -> None:
        super().__init__("tests.benchmarks.reform_floor", {})

    def measure(self) -> tuple[float, float]:
        """Return seconds until all have the group, and until the first of them took a step."""
        formed_s, stepped_s = (float(word) for word in self.ask(str(free_port())).split())
        return formed_s, stepped_s


def main() -> None:
    """Fork, then pass on each port; a line back for each."""
    for name in IMPORTS:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    words: list[int] = []
    answers: list[int] = []
    for rank in range(RANKS):
        (hear, say), (listen, answer) = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.close(say)
            for each in words:
                os.close(each)
            _take_part(rank, hear, answer)
            os._exit(0)
        os.close(hear)
        os.close(answer)
        words.append(say)
        answers.append(listen)
    print("warm", flush=True)
    for line in sys.stdin:
        began_s = time.monotonic()
        for each in words:
            os.write(each, line.encode())
        told = [os.read(each, 200).decode().split() for each in answers]
        formed_s = max(float(formed) for formed, _ in told)
        stepped_s = min(float(stepped) for _, stepped in told)
        print(formed_s - began_s, stepped_s - began_s, flush=True)


def _take_part(rank: int, hear: int, answer: int) -> None:
    """Re-form at each word, for ever."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while word := os.read(hear, 200):
        store = dist.TCPStore(  # type: ignore[attr-defined]
            "127.0.0.1",
            int(word),
            is_master=rank == 0,
            timeout=timedelta(seconds=LIMIT_S),
            wait_for_workers=False,
        )
        dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
        formed_s = time.monotonic()
        wrapped = DistributedDataParallel(model)
        optimizer.zero_grad()
        wrapped(torch.rand(16, 64)).square().mean().backward()
        optimizer.step()
        stepped_s = time.monotonic()
        dist.barrier()
        del wrapped
        dist.destroy_process_group()
        del store
        os.write(answer, f"{formed_s} {stepped_s}".encode())


if __name__ == "__main__":
    main()

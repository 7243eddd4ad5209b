"""The script under test with sharded state: FSDP2 without replicas, in the in-process mode.

It says what `loop.py` says, as that does. BENCH_PAUSE_S: the wait in each step, which stands for
its computation. BENCH_BALLAST_MIB: state of all ranks together that is in no gradient; each rank
has an equal part.
"""

import os
import signal
import sys
import time
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import elasticd
from tests.benchmarks.loop import (
    BALLAST_MIB,
    BATCH,
    LIFE_LIMIT_S,
    PAUSE_S,
    Numbers,
    feed,
    mark,
)


class Ballast(torch.nn.Module):
    """Weights that an optimizer owns and no gradient reaches; zeros: a builder is quick."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(int(BALLAST_MIB * 2**20 / 4)))


class Sharded(torch.nn.Module):
    """A small model that FSDP2 trains, and the ballast, of which each rank has a part."""

    def __init__(self, world: elasticd.World) -> None:
        super().__init__()
        mesh = init_device_mesh(world.device.type, (world.size,))
        torch.manual_seed(0)
        self.net = fully_shard(torch.nn.Linear(64, 4), mesh=mesh)
        self.ballast = fully_shard(Ballast(), mesh=mesh)


state: Any = elasticd.State(
    model=lambda world: Sharded(world),
    optimizer=lambda world: torch.optim.SGD(state.model.parameters(), lr=0.01),
    data=elasticd.Loader(Numbers(), batch_size=BATCH, seed=0),
)


def train(state: Any, world: elasticd.World) -> None:
    """Train until killed."""
    for _ in state.epochs(sys.maxsize):
        for batch in state.data:
            time.sleep(PAUSE_S)
            loss = state.model.net(batch).square().mean()
            state.optimizer.zero_grad()
            loss.backward()
            state.optimizer.step()
            state.commit(loss=loss)
            mark("stepped", world.rank, world.size, world.generation, state.step)


def main() -> None:
    signal.alarm(LIFE_LIMIT_S)
    feed.connect(os.environ["BENCH_FEED"])
    torch.set_num_threads(1)
    mark("ready")
    elasticd.run(train, state)


if __name__ == "__main__":
    main()

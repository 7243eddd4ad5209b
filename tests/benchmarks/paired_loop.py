"""The same training twice, for `overhead`: bare DDP, or under `elasticd.run`, a block at a word.

An argument says which: `bare` or `elasticd`. Each rank connects to BENCH_CONDUCTOR and says its arm
and rank; for each line with a number it takes that many steps and answers with the seconds of each,
from before the batch is asked for to after the commit. Each step of both arms waits for
BENCH_WAIT_S seconds before its backward pass, which stands for computation on a device.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import elasticd

LIFE_LIMIT_S = 3600
WIDTH, LAYERS = 320, 4
BATCH = 128
"""Of both ranks together."""
SAMPLES = 1 << 15
WAIT_S = float(os.environ.get("BENCH_WAIT_S", "0"))

Pair = tuple[torch.Tensor, torch.Tensor]


class Rows(Dataset[Pair]):
    """Random samples, the same in both arms."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self._inputs = torch.rand(SAMPLES, WIDTH, generator=generator)
        self._labels = torch.randint(0, 10, (SAMPLES,), generator=generator)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Pair:
        return self._inputs[index], self._labels[index]


class Conductor:
    """The line to the benchmark."""

    def __init__(self, arm: str, rank: int) -> None:
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._line.connect(os.environ["BENCH_CONDUCTOR"])
        self._file = self._line.makefile("rw")
        self.pin(rank)
        self._say(f"{arm} {rank}")

    def pin(self, rank: int) -> None:
        """Stay on one core, as the same rank of the other arm does: moving about is noise."""
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})

    def play(self, step: Callable[[], None]) -> None:
        """Take steps at each word, until there are no more."""
        for word in self._file:
            took_s = []
            for _ in range(int(word)):
                began_s = time.perf_counter()
                step()
                took_s.append(time.perf_counter() - began_s)
            self._say(" ".join(f"{each:.7f}" for each in took_s))
        os._exit(0)  # Nobody measures any more.

    def _say(self, text: str) -> None:
        self._file.write(text + "\n")
        self._file.flush()


def model_and_more() -> tuple[
    torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler
]:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.BatchNorm1d(WIDTH), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1000, 0.99)


def wait() -> None:
    """Leave the core alone, as a script does whose device computes."""
    if WAIT_S > 0:
        time.sleep(WAIT_S)


def bare() -> None:
    """What a script does without us."""
    dist.init_process_group("gloo")
    model, optimizer, scheduler = model_and_more()
    wrapped = DistributedDataParallel(model)
    data = Rows()
    sampler: DistributedSampler[Pair] = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=BATCH // dist.get_world_size(), sampler=sampler)

    def batches() -> Iterator[Pair]:
        epoch = 0
        while True:
            sampler.set_epoch(epoch)
            yield from loader
            epoch += 1

    source = batches()

    def step() -> None:
        inputs, labels = next(source)
        loss: Any = torch.nn.functional.cross_entropy(wrapped(inputs), labels)
        optimizer.zero_grad()
        wait()
        loss.backward()
        optimizer.step()
        scheduler.step()

    Conductor("bare", dist.get_rank()).play(step)


def managed() -> None:
    """The same with three lines of elasticd."""
    model, optimizer, scheduler = model_and_more()

    def train(state: elasticd.State, world: elasticd.World) -> None:
        wrapped = DistributedDataParallel(state.model)

        def batches() -> Iterator[Pair]:
            for _ in state.epochs(sys.maxsize):
                yield from state.data

        source = batches()

        def step() -> None:
            inputs, labels = next(source)
            loss: Any = torch.nn.functional.cross_entropy(wrapped(inputs), labels)
            loss = loss * state.data.weight
            state.optimizer.zero_grad()
            wait()
            loss.backward()
            state.optimizer.step()
            state.scheduler.step()
            state.commit(loss=loss)

        Conductor("elasticd", world.rank).play(step)

    data = elasticd.Loader(Rows(), batch_size=BATCH, seed=0)
    elasticd.run(
        train, elasticd.State(model=model, optimizer=optimizer, scheduler=scheduler, data=data)
    )


if __name__ == "__main__":
    signal.alarm(LIFE_LIMIT_S)
    torch.set_num_threads(1)
    {"bare": bare, "elasticd": managed}[sys.argv[1]]()

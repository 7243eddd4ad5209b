"""A job whose steps take a + b/n + c(n-1) seconds on n workers: to see what an autoscaler does.

    elasticd run --local-agents 4 --nnodes 1:4 --autoscale docs/examples/policies/worth.toml \
        docs/examples/paced_elastic.py

It trains next to nothing; the step's time is slept. `--cliff N` makes steps above N workers take
twice as long, as where the next machine hangs on a slower switch.
"""

import argparse
import functools
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import elasticd

BATCH = 64


def main() -> None:
    args = parse_args()
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    inputs = torch.randn(BATCH * 1000, 8)
    state = elasticd.State(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        data=elasticd.Loader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=BATCH),
    )
    elasticd.run(functools.partial(train, args), state)


def train(args: argparse.Namespace, state: elasticd.State, world: elasticd.World) -> None:
    model = DistributedDataParallel(state.model)
    step_s = args.a + args.b / world.size + args.c * (world.size - 1)
    step_s *= 2.0 if 0 < args.cliff < world.size else 1.0
    for _ in state.epochs(args.epochs, steps=args.steps):
        for inputs, wanted in state.data:
            if state.step >= args.steps:
                return
            begun_s = time.monotonic()
            loss = nn.functional.mse_loss(model(inputs), wanted) * state.data.weight
            state.optimizer.zero_grad()
            loss.backward()
            time.sleep(max(0.0, step_s - (time.monotonic() - begun_s)))
            state.optimizer.step()
            state.commit(loss=loss)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--a", type=float, default=0.02, help="seconds that no worker shortens")
    parser.add_argument("--b", type=float, default=0.2, help="seconds that all workers share")
    parser.add_argument("--c", type=float, default=0.005, help="seconds that each worker adds")
    parser.add_argument("--cliff", type=int, default=0, help="twice as slow above so many workers")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--epochs", type=int, default=100)
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Handwritten digits, in-process mode: what digits_ddp.py becomes with the three changes.

    python docs/examples/digits_elastic.py
    elasticd run --nproc-per-node 2 docs/examples/digits_elastic.py
    elasticd run --local-agents 2 docs/examples/digits_elastic.py --step-sleep-s 0.05

It saves no checkpoint: while one worker lives, a worker that is lost costs no committed step.
`--die-at-step N` makes rank 1 kill itself once, to see what happens then.
"""

import argparse
import functools
import os
import signal
import time

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import elasticd


def main() -> None:
    args = parse_args()
    torch.manual_seed(0)
    train_set, test_set = load_data()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(elasticd.device())
    # 1. What must survive.
    state = elasticd.State(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=args.lr),
        # 2. The data. The batch is the one of all workers together, however many there are.
        data=elasticd.Loader(train_set, batch_size=args.batch_size, seed=0),
    )
    # 3. The loop: called here, and again in the same process whenever the world has changed.
    elasticd.run(functools.partial(train, args, test_set), state)


def train(
    args: argparse.Namespace,
    test_set: TensorDataset,
    state: elasticd.State,
    world: elasticd.World,
) -> None:
    model = DistributedDataParallel(state.model)
    if world.rank == 0:
        print(f"world of {world.size}, from step {state.step}", flush=True)
    for epoch in state.epochs(args.epochs):
        for images, labels in state.data:
            images, labels = images.to(world.device), labels.to(world.device)
            loss = nn.functional.cross_entropy(model(images), labels) * state.data.weight
            state.optimizer.zero_grad()
            loss.backward()
            state.optimizer.step()
            state.commit(loss=loss)
            time.sleep(args.step_sleep_s)
            die_once(state.step, args.die_at_step, world)
        if world.rank == 0:
            accuracy = accuracy_of(state.model, test_set, world.device)
            print(f"epoch {epoch + 1:2d}: test accuracy {accuracy:.1%}", flush=True)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="of all workers together")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--step-sleep-s", type=float, default=0.0, help="makes time to watch")
    parser.add_argument("--die-at-step", type=int, default=0, help="rank 1 kills itself there")
    return parser.parse_args()


def load_data() -> tuple[TensorDataset, TensorDataset]:
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, labels, test_size=0.2, random_state=0)
    train_x, test_x, train_y, test_y = map(torch.as_tensor, parts)
    return TensorDataset(train_x.float(), train_y), TensorDataset(test_x.float(), test_y)


def accuracy_of(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    images, labels = (tensor.to(device) for tensor in data.tensors)
    with torch.no_grad():
        return (model(images).argmax(dim=1) == labels).float().mean().item()


def die_once(step: int, at_step: int, world: elasticd.World) -> None:
    if step == at_step and world.rank == 1 and world.generation == 1:
        print(f"rank 1 kills itself after step {step}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()

"""Brought along by ElasticJobs of the tests: small steps, and a line for each commit.

A line is `C step generation seconds`, the seconds by the machine's own clock, which all the nodes
of a testbed share.
"""

import argparse
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import elasticd

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--step-s", type=float, default=0.05)
args = parser.parse_args()


def train(state: elasticd.State, world: elasticd.World) -> None:
    model = DistributedDataParallel(state.model)
    for _ in state.epochs(1_000_000):
        for inputs, wanted in state.data:
            loss = nn.functional.mse_loss(model(inputs), wanted) * state.data.weight
            state.optimizer.zero_grad()
            loss.backward()
            time.sleep(args.step_s)
            state.optimizer.step()
            state.commit(loss=loss)
            print("C", state.step, world.generation, f"{time.monotonic():.4f}", flush=True)
            if state.step >= args.steps:
                return


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(8, 1)
inputs = torch.randn(6400, 8)
elasticd.run(
    train,
    elasticd.State(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        data=elasticd.Loader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=64),
    ),
)

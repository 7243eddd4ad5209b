"""A small training of ranks that share one card: over Gloo, since NCCL refuses that."""

import argparse
import os
import signal

import torch
from torch.nn.parallel import DistributedDataParallel

import elasticd
from elasticd.train.process_group import default_group

default_group.backend_of = lambda device: "gloo"

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--die-at", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(16, 1024), torch.nn.BatchNorm1d(1024), torch.nn.Linear(1024, 1)
).to(elasticd.device())
state = elasticd.State(model=model, optimizer=torch.optim.AdamW(model.parameters()), grown=False)


def train(state: elasticd.State, world: elasticd.World) -> None:
    replica = DistributedDataParallel(state.model)
    if world.rank == 0:
        print(f"world of {world.size}, from step {state.step}", flush=True)
    while state.step < args.steps or world.size < 2:  # Who is lost is waited for.
        is_first = "RANK" in os.environ  # Replacements are started without a rank.
        if args.die_at == state.step and args.die_at and world.rank == 1 and is_first:
            os.kill(os.getpid(), signal.SIGKILL)
        loss = replica(torch.randn(8, 16, device=world.device)).square().mean()
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        state.commit(loss=loss)
    total = sum(float(each.double().sum()) for each in state.model.parameters())
    print(f"weights {total:.12f}", flush=True)


elasticd.run(train, state)

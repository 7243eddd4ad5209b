"""A training of ranks that share one card and talk over NCCL, with faults at given points.

NCCL refuses two ranks of one host on one card; with a host of its own for each, they talk over
sockets, and all else is as on two machines. NVLink between machines is not looked for: the two
would be found in one domain of it, since they are one card.

`--fault STEP:RANK:POINT:KIND`: the point is before the forward pass (begin), before the optimizer's
step (reduced) or before the commit (stepped); KIND is kill, stop (SIGSTOP) or spin (a kernel that
does not end). Each happens once in a run.
"""

import argparse
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

import elasticd

os.environ["NCCL_HOSTID"] = f"host-of-{os.getpid()}"
os.environ["NCCL_MNNVL_ENABLE"] = "0"

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--fault", action="append", default=[])
parser.add_argument("--abort-flag", action="store_true")
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--alike", action="store_true", help="all ranks draw the same")
args = parser.parse_args()
FAULTS = [each.split(":") for each in args.fault]
SPIN_CYCLES = 1 << 40
"""Some ten minutes."""

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(16, args.width), torch.nn.ReLU(), torch.nn.Linear(args.width, 1)
).to(elasticd.device())
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
state = elasticd.State(model=model, optimizer=optimizer)


def say(what: str, world: elasticd.World) -> None:
    line = f"{what} {time.monotonic():.6f} step {state.step} rank {world.rank} pid {os.getpid()}"
    with Path("said").open("a") as file:
        file.write(f"{line} generation {world.generation}\n")


def fault(point: str, world: elasticd.World) -> None:
    for number, (step, rank, where, kind) in enumerate(FAULTS):
        if (int(step), int(rank), where) != (state.step, world.rank, point):
            continue
        try:
            Path(f"fault-{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        say(kind, world)
        if kind == "spin":
            cuda: Any = torch.cuda
            cuda._sleep(SPIN_CYCLES)
        else:
            os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSTOP)


def train(state: elasticd.State, world: elasticd.World) -> None:
    replica = DistributedDataParallel(state.model)
    say("enter", world)
    while state.step < args.steps:
        own = 0 if args.alike else world.rank
        draw = torch.Generator().manual_seed(1000 * state.step + own)
        batch = torch.randn(64, 16, generator=draw).to(world.device)
        fault("begin", world)
        state.optimizer.zero_grad()
        loss = replica(batch).square().mean()
        loss.backward()
        fault("reduced", world)
        state.optimizer.step()
        fault("stepped", world)
        state.commit(loss=loss)
        say("commit", world)
    total = sum(float(each.double().sum()) for each in state.model.parameters())
    print(f"weights {total!r} on {world.device} of {world.size}", flush=True)


elasticd.run(train, state, abort_flag=args.abort_flag)

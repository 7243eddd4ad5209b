"""Says on which device `train` runs, and whether a step done again draws the same there."""

import os

import torch

import elasticd
from elasticd.train.state.rng import mix, reseed

state = elasticd.State(model=torch.nn.Linear(1, 1).to(elasticd.device()))


def train(state: elasticd.State, world: elasticd.World) -> None:
    current = torch.cuda.current_device() if world.device.type == "cuda" else -1
    draws = []
    for _ in range(2):
        reseed(mix(1, world.rank), 5)
        draws.append(float(torch.rand((), device=world.device)))
    alike = "alike" if draws[0] == draws[1] else "differ"
    mask = os.environ.get("CUDA_VISIBLE_DEVICES")
    print(f"device {world.device} current {current} draws {alike} mask {mask}", flush=True)


elasticd.run(train, state)

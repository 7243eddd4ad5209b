"""The script under test: plain DDP over Gloo, without any set-up of its own.

It knows neither elasticd nor torchrun. It only says, on a datagram socket, when it got how far:
`NAME SECONDS PID BEGAN RANK WORLD GENERATION`. It ends itself when nobody listens any more.
"""

import os
import signal
import socket
import sys
import time

BEGAN_S = time.monotonic()
LIFE_LIMIT_S = 1800
"""Nothing of a benchmark outlives this, however it was lost."""
PAUSE_S = 0.01
"""Of each step: a step that computes for ever would measure the scheduler of a small machine."""

feed = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def mark(name: str, rank: int, world: int) -> None:
    env = os.environ
    generation = env.get("ELASTICD_GENERATION") or env.get("TORCHELASTIC_RESTART_COUNT", "0")
    text = f"{name} {time.monotonic()} {os.getpid()} {BEGAN_S} {rank} {world} {generation}"
    try:
        feed.send(text.encode())
    except OSError:
        sys.exit("nobody measures any more")


def train(rank: int, world: int) -> None:
    """Train until killed."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    mark("imported", rank, world)
    dist.init_process_group("gloo")
    mark("joined", rank, world)
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mark("wrapped", rank, world)
    while True:
        optimizer.zero_grad()
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()
        mark("stepped", rank, world)
        time.sleep(PAUSE_S)


def main() -> None:
    signal.alarm(LIFE_LIMIT_S)
    feed.connect(os.environ["BENCH_FEED"])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    mark("began", rank, world)
    train(rank, world)


if __name__ == "__main__":
    main()

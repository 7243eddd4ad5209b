"""The peer's script: torchft's Manager around the same model and the same wait, one worker each.

Its Manager, Optimizer and ProcessGroupGloo, and one all-reduce of all gradients by its Manager. Not
its DistributedDataParallel: in 0.2 an all-reduce that fails ends the survivors' processes there
(`assert fut._fut` in ddp.py), which is what a kill in the middle of a step brings. Says the same
lines as `loop.py`, after each step that torchft committed; REPLICA is its place among the replica
groups.
"""

import os
import signal
import socket
import sys
import time
from datetime import timedelta

BEGAN_S = time.monotonic()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torchft import (  # type: ignore[import-untyped,unused-ignore] # noqa: E402
    Manager,
    Optimizer,
    ProcessGroupGloo,
)

LIFE_LIMIT_S = 3600
PAUSE_S = float(os.environ.get("BENCH_PAUSE_S", "0.01"))
COLLECTIVE_TIMEOUT_S = 10.0
MANAGER_TIMEOUT_S = 30.0

feed = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def mark(rank: int, world: int, step: int) -> None:
    text = f"stepped {time.monotonic()} {os.getpid()} {BEGAN_S} {rank} {world} 0 {step}"
    try:
        feed.send(text.encode())
    except OSError:
        sys.exit("nobody measures any more")


def main() -> None:
    signal.alarm(LIFE_LIMIT_S)
    feed.connect(os.environ["BENCH_FEED"])
    torch.set_num_threads(1)
    replica = int(os.environ["REPLICA"])
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 4))
    plain = torch.optim.SGD(model.parameters(), lr=0.01)

    def load(state: dict[str, dict[str, object]]) -> None:
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])

    store = dist.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1", 0, is_master=True, wait_for_workers=False
    )
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S)),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": plain.state_dict()},
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        replica_id=f"r{replica}_",
        timeout=timedelta(seconds=MANAGER_TIMEOUT_S),
    )
    optimizer = Optimizer(manager, plain)
    parameters = list(model.parameters())
    while True:
        before = manager.current_step()
        optimizer.zero_grad()
        time.sleep(PAUSE_S)
        model(torch.rand(12, 64)).square().mean().backward()
        gradients = [each.grad for each in parameters if each.grad is not None]
        flat = torch.cat([each.reshape(-1) for each in gradients])
        manager.allreduce(flat).wait()
        means = torch.split(flat, [each.numel() for each in gradients])
        for each, mean in zip(gradients, means, strict=True):
            each.copy_(mean.view_as(each))
        optimizer.step()
        if manager.current_step() > before:
            mark(replica, manager.num_participants(), manager.current_step())


if __name__ == "__main__":
    main()

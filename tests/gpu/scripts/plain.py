"""A plain script that knows no launcher: DDP over NCCL, of ranks that share one card."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# NCCL refuses two ranks of one host on one card.
os.environ["NCCL_HOSTID"] = f"host-of-{os.getpid()}"
os.environ["NCCL_MNNVL_ENABLE"] = "0"
os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")


def say(what: str) -> None:
    with Path(os.environ["GPU_SAID"]).open("a") as file:
        file.write(f"{what} {time.monotonic():.6f} {os.environ['RANK']} {os.getpid()}\n")


say("began")
has_card = torch.cuda.is_available()
device = torch.device("cuda", 0) if has_card else torch.device("cpu")
dist.init_process_group("nccl" if has_card else "gloo")
say("joined")
model = DistributedDataParallel(torch.nn.Linear(512, 512).to(device))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
while True:
    optimizer.zero_grad()
    loss = model(torch.randn(64, 512, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    loss.item()
    say("step")
    time.sleep(0.01)

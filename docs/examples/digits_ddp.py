"""Handwritten digits with DistributedDataParallel: a plain script for torchrun or elasticd.

    torchrun --nproc-per-node 2 docs/examples/digits_ddp.py
    elasticd run --local-agents 2 docs/examples/digits_ddp.py

It knows nothing of elasticd. Like any script that is to survive a restart it saves a checkpoint
(each epoch, a few KB) and begins from the newest one. `--die-at-step N` makes rank 1 kill itself
once, to see what happens then.
"""

import argparse
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    args = parse_args()
    dist.init_process_group("gloo")
    # The replica must be gone before its group: torch 2.13 may deadlock where a script's end
    # destroys them together (Gloo's thread wants the GIL that the destructor holds).
    train(args)
    dist.destroy_process_group()


def train(args: argparse.Namespace) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    train_set, test_set = load_data()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    first_epoch = resume(args.checkpoint_dir, model, optimizer)
    replica = DistributedDataParallel(model)
    sampler = DistributedSampler(train_set, shuffle=True, seed=0)
    loader = DataLoader(train_set, batch_size=args.batch_size // world_size, sampler=sampler)
    if rank == 0:
        print(f"{world_size} workers, from epoch {first_epoch} of {args.epochs}", flush=True)

    step = first_epoch * len(loader)
    for epoch in range(first_epoch, args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            step += 1
            die_once(step, args.die_at_step, rank)
            loss = nn.functional.cross_entropy(replica(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            save(args.checkpoint_dir, model, optimizer, epoch + 1)
            accuracy = accuracy_of(model, test_set)
            print(f"epoch {epoch + 1:2d}: test accuracy {accuracy:.1%}", flush=True)
    if rank == 0:
        print(f"done: test accuracy {accuracy_of(model, test_set):.1%}", flush=True)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="of all workers together")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--checkpoint-dir", type=Path, default=Path("digits-checkpoint"))
    parser.add_argument("--die-at-step", type=int, default=0, help="rank 1 kills itself there")
    return parser.parse_args()


def load_data() -> tuple[TensorDataset, TensorDataset]:
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, labels, test_size=0.2, random_state=0)
    train_x, test_x, train_y, test_y = map(torch.as_tensor, parts)
    return TensorDataset(train_x.float(), train_y), TensorDataset(test_x.float(), test_y)


def accuracy_of(model: nn.Module, data: TensorDataset) -> float:
    images, labels = data.tensors
    with torch.no_grad():
        return (model(images).argmax(dim=1) == labels).float().mean().item()


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    partial = folder / "newest.partial"
    torch.save(state, partial)
    partial.rename(folder / "newest.pt")  # whole or not at all: we may be killed at any time


def resume(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load what rank 0 finds into all ranks; return the epoch to begin with."""
    found: list[dict | None] = [None]
    path = folder / "newest.pt"
    if dist.get_rank() == 0 and path.exists():
        found[0] = torch.load(path, weights_only=True)
    dist.broadcast_object_list(found, src=0)
    if found[0] is None:
        return 0
    model.load_state_dict(found[0]["model"])
    optimizer.load_state_dict(found[0]["optimizer"])
    return found[0]["epoch"]


def die_once(step: int, at_step: int, rank: int) -> None:
    is_first_life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if at_step and step == at_step and rank == 1 and is_first_life:
        print(f"rank 1 kills itself at step {step}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()

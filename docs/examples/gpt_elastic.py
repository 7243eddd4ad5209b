"""A small GPT on the sources of Python's standard library, in-process mode.

    python docs/examples/gpt_elastic.py
    elasticd run --nproc-per-node 2 docs/examples/gpt_elastic.py
    elasticd run --local-agents 3 docs/examples/gpt_elastic.py --steps 2000

Bytes are its tokens, so there is nothing to download. Around the three changes it shows what a real
script has: mixed precision with a gradient scaler, gradient accumulation, clipping, a learning rate
with warm-up and cosine decay, evaluation, and a best value that is kept. All nodes must have the
same Python, since its sources are the data.
"""

import argparse
import contextlib
import functools
import math
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

import elasticd

VOCABULARY = 256
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def main() -> None:
    args = parse_args()
    device = elasticd.device()
    torch.manual_seed(0)
    text = standard_library(args.text_bytes)
    cut = len(text) * 9 // 10
    model = GPT(args.layers, args.heads, args.width, args.context).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
    factor = functools.partial(lr_factor, warmup=args.warmup, total=args.steps)
    state = elasticd.State(
        model=model,
        optimizer=optimizer,
        schedule=torch.optim.lr_scheduler.LambdaLR(optimizer, factor),
        # Only float16 needs its gradients scaled; a disabled scaler passes everything through.
        scaler=torch.amp.GradScaler(device.type, enabled=args.dtype == "float16"),
        data=elasticd.Loader(Windows(text[:cut], args.context), args.batch_size, drop_last=True),
        best_loss=math.inf,
    )
    held_out = Windows(text[cut:], args.context)
    elasticd.run(functools.partial(train, args, held_out), state)


def train(
    args: argparse.Namespace, held_out: "Windows", state: elasticd.State, world: elasticd.World
) -> None:
    # train() because we may come from an evaluation that was interrupted: such flags are not put
    # back by anybody.
    model = DistributedDataParallel(state.model.train())
    if world.rank == 0:
        print(f"world of {world.size}, from step {state.step} of {args.steps}", flush=True)
    for tokens in batches(state, args.steps):
        # Before the step, not after the commit: whatever is done here is done again if the world
        # changes before the commit, so it cannot be missed.
        if state.step and state.step % args.evaluate_every == 0:
            evaluate(args, held_out, state, world)
        loss = backward(args, model, state, tokens.to(world.device))
        state.scaler.unscale_(state.optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        state.scaler.step(state.optimizer)
        state.scaler.update()
        state.schedule.step()
        state.optimizer.zero_grad()
        state.commit(loss=loss)
        if args.losses and world.rank == 0:
            with args.losses.open("a") as file:
                file.write(f"{state.step} {loss.item().hex()}\n")
        time.sleep(args.step_sleep_s)
    evaluate(args, held_out, state, world)
    if world.rank == 0:
        print(f"done: best validation loss {state.best_loss:.3f}", flush=True)


def batches(state: elasticd.State, steps: int) -> Iterator[torch.Tensor]:
    """Yield batches, epoch after epoch, until so many steps are committed."""
    # As many passes as there may have to be; the number of steps is what ends it, and is shown so.
    for _ in state.epochs(1 + steps // len(state.data), steps=steps):
        for tokens in state.data:
            # Asked before each step, so that it also holds when train is entered after the last.
            if state.step >= steps:
                return
            yield tokens


def backward(
    args: argparse.Namespace,
    model: DistributedDataParallel,
    state: elasticd.State,
    tokens: torch.Tensor,
) -> torch.Tensor:
    """Accumulate the gradients of this rank's share; return its weighted loss.

    In pieces of what fits into the memory: a smaller world has larger shares, so it takes more of
    them, and the step stays the same.
    """
    pieces = tokens.split(args.micro_batch_size)
    total = torch.zeros((), device=tokens.device)
    for index, piece in enumerate(pieces):
        is_last = index == len(pieces) - 1
        with contextlib.nullcontext() if is_last else model.no_sync():
            loss = loss_of(args, model, piece)
            # The mean of the share from those of its pieces, weighted as the share is in the batch.
            loss = loss * (len(piece) / len(tokens)) * state.data.weight
            state.scaler.scale(loss).backward()
        total += loss.detach()
    return total


def evaluate(
    args: argparse.Namespace, held_out: "Windows", state: elasticd.State, world: elasticd.World
) -> None:
    """Take the mean loss over the held-out text, each rank its part; keep the best."""
    with state.pause("evaluation"), torch.no_grad():
        state.model.eval()
        count = min(len(held_out), args.evaluate_on)
        mine = [held_out[index] for index in range(world.rank, count, world.size)]
        result = torch.zeros(2, dtype=torch.float64, device=world.device)
        for tokens in torch.stack(mine).split(args.micro_batch_size) if mine else ():
            result[0] += loss_of(args, state.model, tokens.to(world.device)) * len(tokens)
            result[1] += len(tokens)
        dist.all_reduce(result)  # so that all ranks keep the same value
        state.model.train()
    loss, count = result.tolist()
    state.best_loss = min(state.best_loss, loss / count)
    if world.rank == 0:
        print(f"step {state.step:4d}: validation loss {loss / count:.3f}", flush=True)


def loss_of(args: argparse.Namespace, model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    dtype = DTYPES[args.dtype]
    with torch.autocast(tokens.device.type, dtype, enabled=dtype is not torch.float32):
        logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


def lr_factor(step: int, *, warmup: int, total: int) -> float:
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return 0.1 + 0.45 * (1.0 + math.cos(math.pi * progress))


class GPT(nn.Module):
    def __init__(self, layers: int, heads: int, width: int, context: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.place(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Block(nn.Module):
    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_2(x))


class Windows(Dataset[torch.Tensor]):
    """A text cut into pieces of `context` bytes, each with the one that follows it."""

    def __init__(self, text: bytes, context: int) -> None:
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.context = context

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.context

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index * self.context
        return self.text[start : start + self.context + 1].long()


def standard_library(limit_bytes: int) -> bytes:
    """Read source files of the standard library, the same ones in the same order everywhere."""
    text = b""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= limit_bytes:
            break
    return text[:limit_bytes]


def parse_args() -> argparse.Namespace:
    dtype = "float16" if torch.cuda.is_available() else "bfloat16"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16, help="of all workers together")
    parser.add_argument("--micro-batch-size", type=int, default=4, help="what one worker can hold")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=20, help="steps")
    parser.add_argument("--dtype", choices=DTYPES, default=dtype)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--context", type=int, default=64, help="bytes")
    parser.add_argument("--text-bytes", type=int, default=1_000_000)
    parser.add_argument("--evaluate-every", type=int, default=50, help="steps")
    parser.add_argument("--evaluate-on", type=int, default=256, help="pieces of held-out text")
    parser.add_argument("--step-sleep-s", type=float, default=0.0, help="makes time to watch")
    parser.add_argument("--losses", type=Path, help="file for each step's loss, all of its bits")
    return parser.parse_args()


if __name__ == "__main__":
    main()

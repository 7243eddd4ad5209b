"""What the benchmarks of checkpoints share: a model's state, a keeper's process, and a bare copy.

The state is a real `elasticd.State` of a small transformer and AdamW, the keeper the real process:
nothing between a commit and the disk is replaced. Torch's own checkpoints stand beside it, called
as its documentation advises for speed: with a stager that lives on between the saves.
"""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save

import elasticd
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.keeper.client import Client
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.wire import message as ms
from elasticd.records.checkpoint import Every
from elasticd.tensors.tensor_spec import alike
from elasticd.train.save.overlapped_copy import OverlappedCopy
from elasticd.train.save.snapshot_taker import SnapshotTaker
from elasticd.train.state.state import core_of
from tests.benchmarks.bench import own_environ
from tests.benchmarks.report import Series

__all__ = ["MIB", "Copied", "Job", "Keeper", "Peer", "Trained", "Transformer", "alone", "over",
           "remove", "synced"]  # fmt: skip

MIB = 1 << 20
LIMIT_S = 120.0
CLOCK_HZ = os.sysconf("SC_CLK_TCK")


class Block(torch.nn.Module):
    """One layer of a transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x_btd: torch.Tensor) -> torch.Tensor:
        b, t, d = x_btd.shape
        qkv = self.qkv(self.first(x_btd)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x_btd = x_btd + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        grown: torch.Tensor = self.down(torch.nn.functional.gelu(self.up(self.second(x_btd))))
        return x_btd + grown


class Transformer(torch.nn.Module):
    """Predicts the next token."""

    def __init__(self, *, width: int, layers: int, tokens: int, length: int = 1024) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(tokens, width)
        self.places = torch.nn.Parameter(torch.zeros(length, width))
        self.blocks = torch.nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, tokens_bt: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens_bt) + self.places[: tokens_bt.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits_btv = torch.nn.functional.linear(self.norm(x), self.tokens.weight)
        return torch.nn.functional.cross_entropy(
            logits_btv[:, :-1].flatten(0, 1), tokens_bt[:, 1:].flatten()
        )


SIZES = {
    1024: {"width": 768, "layers": 9, "tokens": 32_768},
    256: {"width": 512, "layers": 5, "tokens": 11_264},
    64: {"width": 256, "layers": 5, "tokens": 5_120},
    16: {"width": 128, "layers": 4, "tokens": 4_096},
}
"""About so many MiB with AdamW's two moments."""


class Trained:
    """A model, its optimizer, and both as the State that a script would declare."""

    def __init__(self, mib: int) -> None:
        torch.manual_seed(0)
        self.model = Transformer(**SIZES[mib])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        for each in self.model.parameters():
            each.grad = torch.rand_like(each) * 1e-3
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.state = elasticd.State(model=self.model, optimizer=self.optimizer)

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in core_of(self.state).tree().tensors)

    @property
    def plain(self) -> dict[str, Any]:
        """What torch's checkpoints are given."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}


class Keeper:
    """The process `python -m elasticd.keeper`, as an agent starts it."""

    def __init__(
        self, url: str, log: Path, *, env: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        self.name = f"elasticd-bench-{secrets.token_hex(8)}"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "elasticd.keeper"],
                env=own_environ(env or {}),
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        plain = {
            "url": url,
            "job": "bench",
            "uid": secrets.token_hex(4),
            "socket": self.name,
            "retention": {"last": 1},
            **settings,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(plain).encode() + b"\n")
        self._process.stdin.flush()

    @property
    def cpu_s(self) -> float:
        """Processor time of the process so far."""
        text = Path(f"/proc/{self._process.pid}/stat").read_text()
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / CLOCK_HZ

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Job:
    """A rank that saves to a keeper: the real `SnapshotTaker`, as `elasticd.run` uses it."""

    def __init__(
        self,
        keeper: Keeper,
        trained: Trained,
        copy: str,
        *,
        rank: int = 0,
        ranks: int = 1,
        every_steps: int = 1,
    ) -> None:
        self.trained = trained
        core_of(trained.state).step = 0
        self.saving = SnapshotTaker(lambda: Client(keeper.name), Every(steps=every_steps), copy)
        opened = self.client.ask(ms.Open(generation=1, step=0), ms.Opened)
        self.saving.run = opened.run
        self.saving.begin(
            HashStore(),
            core_of(trained.state),
            lambda tree: alike(tree, [trained.optimizer]),
            rank=rank,
            generation=1,
            nodes=[0] * ranks,
            is_opened=True,
            is_stale=lambda: False,
        )
        self.step = 0

    @property
    def client(self) -> Client:
        """Also of the snapshots: what is asked comes after what was told."""
        return self.saving.client

    @property
    def overlap(self) -> OverlappedCopy | None:
        """The copy that is on its way, or was the last to be."""
        return self.saving._overlap

    def commit(self) -> float:
        """Take a snapshot of a new step; seconds that the caller stood still."""
        before = self.saving.saved_step
        began_s = time.perf_counter()
        self.advance()
        took_s = time.perf_counter() - began_s
        if self.saving.saved_step == before:
            raise RuntimeError("No snapshot was taken: look into the keeper's log.")
        return took_s

    def advance(self) -> None:
        """Commit a step, and take a snapshot if one is due."""
        self.step += 1
        core_of(self.trained.state).step = self.step
        self.saving.committed(self.step)

    def wait(self, step: int | None = None) -> None:
        """Return when the snapshot of a step, or of the last one, is durable."""
        step = self.step if step is None else step
        snapshot = Snapshot(run=self.saving.run, generation=1, step=step)
        question = ms.WaitDurable(snapshot=snapshot, timeout_s=LIMIT_S)
        said = self.client.ask(question, ms.Durability)
        if not said.is_durable:
            raise RuntimeError(f"Step {step} was not saved: {said.why}")

    def close(self) -> None:
        self.saving.end()
        self.client.close()


class Copied:
    """A bare copy: as many bytes in one piece, all memory touched before, torch's own threads."""

    def __init__(self, nbytes: int) -> None:
        self.source = torch.rand(nbytes // 4)
        self.memory = SharedMemory.new(nbytes // 4 * 4)
        self.memory.populate()
        self.place = torch.frombuffer(self.memory.view, dtype=torch.float32)
        self.once()

    def once(self) -> float:
        began_s = time.perf_counter()
        self.place.copy_(self.source)
        return time.perf_counter() - began_s


class Peer:
    """torch.distributed.checkpoint's async_save, with a stager that lives on between the saves."""

    def __init__(self, kind: str, folder: Path) -> None:
        """`kind` is thread or process."""
        self._kind = AsyncCheckpointerType.PROCESS if kind == "process" else (
            AsyncCheckpointerType.THREAD
        )  # fmt: skip
        self._folder = folder
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=False,
                use_shared_memory=kind == "process",
                use_async_staging=False,
                use_non_blocking_copy=False,
            )
        )
        self._number = 0
        self._saved: Future[Any] | None = None

    def commit(self, state: dict[str, Any]) -> float:
        """Begin to save; seconds that the caller stood still."""
        self._number += 1
        began_s = time.perf_counter()
        saved = async_save(
            state,
            checkpoint_id=str(self._folder / str(self._number)),
            async_checkpointer_type=self._kind,
            async_stager=self._stager,
        )
        took_s = time.perf_counter() - began_s
        assert isinstance(saved, Future)
        self._saved = saved
        return took_s

    @property
    def is_busy(self) -> bool:
        return self._saved is not None and not self._saved.done()

    def close(self) -> None:
        """Wait for the last one, and let go of the memory."""
        self.wait()
        self._stager.close()

    def wait(self) -> None:
        """Return when it is written; only the newest stays."""
        if self._saved is not None:
            self._saved.result(LIMIT_S)
        self._saved = None
        for old in range(max(1, self._number - 1), self._number):
            remove(self._folder / str(old))


def remove(folder: Path) -> None:
    """Delete what a save left."""
    if folder.is_dir():
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """A process group of one, which async_save in a process needs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def synced() -> None:
    """Let the kernel write what others left, so that nobody pays for another's bytes."""
    os.sync()


def over(values: Sequence[float], floors: Sequence[float], name: str = "") -> Series:
    """Each value over the floor that was taken next to it."""
    found = tuple(a / b for a, b in zip(values, floors, strict=True))
    return Series(name=name, values=found, unit="x")

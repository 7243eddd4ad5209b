"""Makes checkpoints as a job would, in one process: for tests of what reads and removes them."""

from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from elasticd.checkpoint.commit.committer import CommitOutcome, Committer
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.commit.upload import UploadShare, upload
from elasticd.checkpoint.format.entry import LogEntry, LogEntryKind
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Fragment, Header, Tensor
from elasticd.checkpoint.format.share_layout import laid_out, shares
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.location import open_bucket
from elasticd.tensors.tree import Tree, flatten, paths

JOB, UID = "digits", "u1"


def state_at(step: int) -> dict[str, Any]:
    """Everything that a state may hold; another one for each step."""
    generator = torch.Generator().manual_seed(step)
    weight = torch.randn(300, 1000, generator=generator)
    return {
        "model": OrderedDict(weight=weight, bias=torch.arange(7.0) + step),
        "optimizer": {
            "state": {0: {"step": torch.tensor(float(step)), "exp_avg": weight.bfloat16()}},
            "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1]}],
        },
        "seen": torch.tensor([True, False, True]),
        "empty": torch.zeros(0, 3),
        "note": "plain",
        "worst": float("-inf"),
        "nothing": None,
    }


class Maker:
    """One job's way to its checkpoints."""

    def __init__(self, url: str, *, uid: str = UID, job: str = JOB) -> None:
        self.url = url
        self.bucket: Bucket = open_bucket(url, {}, {})
        self.log = CommitLog(self.bucket)
        self.uid, self.job = uid, job
        self.committer = Committer(bucket=self.bucket, log=self.log, uid=uid, job=job)
        self.run = 0
        self.generation = 0

    @classmethod
    def of(cls, folder: Path, steps: int = 0) -> "Maker":
        """A job that has saved at the steps 10, 20, ...: entries 2, 3, ..."""
        maker = cls(f"file://{folder}")
        maker.open(1)
        for number in range(1, steps + 1):
            maker.save(10 * number)
        return maker

    def open(self, generation: int, step: int = 0) -> None:
        self.run = self.committer.open(generation, step)
        self.generation = generation

    def save(self, step: int, state: Any = None, count: int = 2) -> LogEntry:
        """Make a checkpoint of a state by `count` shares."""
        snapshot, fragments = self.put(step, state, count)
        manifest = self.committer.gather(snapshot, count, fragments)
        assert manifest is not None
        assert self.committer.commit(manifest) is CommitOutcome.COMMITTED
        entry = self.log.entry(self.log.newest_number())
        assert entry.kind is LogEntryKind.COMMITTED
        return entry

    def put(self, step: int, state: Any = None, count: int = 2) -> tuple[Snapshot, list[Fragment]]:
        """Upload without committing."""
        snapshot = Snapshot(run=self.run, generation=self.generation, step=step)
        tree = flatten("state", state if state is not None else state_at(step))
        tensors = tensors_of(tree)
        header = Header(
            snapshot=snapshot,
            job=self.job,
            uid=self.uid,
            epoch=1,
            world_size=count,
            shares=count,
            taken_unix_s=1.0,
            version="0",
            skeleton=tree.skeleton,
            tensors=tensors,
        )
        fragments = []
        divided = shares(tensors, [True] * len(tensors), count)
        with ThreadPoolExecutor(2) as pool:
            for index, slabs in enumerate(divided):
                layout = laid_out(tensors, slabs)
                memory = bytearray(layout.size)
                for piece, start in zip(layout.pieces, layout.starts(), strict=True):
                    box = tuple(
                        slice(o, o + s) for o, s in zip(piece.offsets, piece.shape, strict=True)
                    )
                    held = tree.tensors[piece.tensor][box].contiguous().reshape(-1)
                    data = held.view(torch.uint8).numpy().tobytes()
                    memory[start : start + len(data)] = data
                share = UploadShare(
                    snapshot=snapshot,
                    share=index,
                    shares=count,
                    holder=0,
                    layout=layout,
                    header=header if index == 0 else None,
                )
                fragments.append(
                    upload(
                        self.bucket,
                        share,
                        memoryview(memory),
                        uid=self.uid,
                        writer=f"{index:08x}",
                        pool=pool,
                    )
                )
        return snapshot, fragments

    def numbers(self) -> list[int]:
        """What a fresh reader finds kept, newest first."""
        return [entry.number for entry in CommitLog(self.bucket).checkpoints()]

    def folders(self) -> list[int]:
        """The steps of which there are objects."""
        listed = self.bucket.list("steps", 10_000, lambda name: True)
        return sorted({int(each.name.split("/")[1][:12]) for each in listed})


def tensors_of(tree: Tree) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(name, str(held.dtype).removeprefix("torch."), tuple(held.shape))
        for name, held in zip(paths(tree), tree.tensors, strict=True)
    )


def same(one: Any, other: Any) -> bool:
    """Whether two nested states are equal, types of containers included."""
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and torch.equal(one, other)
        )
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)

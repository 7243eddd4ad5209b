"""Keepers over one bucket, snapshots of a few bytes for them, and buckets that wait for a test."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Event

from elasticd.checkpoint.commit.committer import Committer, read_manifest
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.commit.upload import UploadShare
from elasticd.checkpoint.format.entry import LogEntry, LogEntryKind
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Piece, Tensor
from elasticd.checkpoint.format.share_layout import Layout, Slab, laid_out
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.keeper.memory.share_memory import ShareMemory
from elasticd.keeper.memory.share_record import ShareRecord
from elasticd.keeper.saver import Saver
from elasticd.keeper.wire.message import Plan
from tests.fixtures.open_files import open_files
from tests.fixtures.patience import patience_s
from tests.unit.checkpoint.meddling import Meddling
from tests.unit.checkpoint.records import header

__all__ = ["PATIENCE_S", "UPLOAD_S", "Gate", "Node", "a_plan", "a_snapshot", "committed", "memfds"]

PATIENCE_S = patience_s(20.0)
"""Only a bound for a hang."""
UPLOAD_S = patience_s(6.0)
"""What a slow upload takes: others are given as long, and may have to wait for a core."""
SHARE_BYTES = 100


def a_snapshot(step: int = 10, generation: int = 1, run: int = 1) -> Snapshot:
    return Snapshot(run=run, generation=generation, step=step)


def tensors(shares: int) -> tuple[Tensor, ...]:
    """One for each share."""
    return tuple(Tensor(f"w{index}", "uint8", (SHARE_BYTES,)) for index in range(shares))


def a_plan(share: int = 0, shares: int = 1, holder: int = 0, *, parts: int = 1) -> Plan:
    """The ids of a worker's plans are of its shares and holders."""
    layout = laid_out(tensors(shares), [Slab(share, (0,), (SHARE_BYTES,))])
    if parts > 1:
        size = SHARE_BYTES // parts
        layout = Layout(
            SHARE_BYTES,
            tuple((size * index, size) for index in range(parts)),
            tuple(Piece(share, (size * index,), (size,), index, 0) for index in range(parts)),
        )
    return Plan(
        id=2 * share + holder, share=share, shares=shares, holder=holder, layout=layout,
        tensors=tensors(shares) if share == 0 else (),
    )  # fmt: skip


def record_of(
    share_memory: ShareMemory, worker: int, plan: Plan, buffer: int, made: Snapshot
) -> ShareRecord:
    head = None
    if plan.share == 0:
        head = replace(header(plan.shares), snapshot=made, tensors=plan.tensors)
    share = UploadShare(
        snapshot=made, share=plan.share, shares=plan.shares, holder=plan.holder,
        layout=plan.layout, header=head,
    )  # fmt: skip
    return ShareRecord(share=share, memory=share_memory.memory(worker, plan.id, buffer), epoch=0)


class Node:
    """A keeper's share_memory and saver, and workers that copy into it."""

    def __init__(self, bucket: Bucket, *, uid: str = "uid", parallel: int = 2) -> None:
        self.bucket, self.share_memory = bucket, ShareMemory()
        self.committer = Committer(bucket=bucket, log=CommitLog(bucket), uid=uid, job="job")
        self.commits = 0
        self.is_on_one_node = False
        """Whether no other keeper gets a share of what is taken here."""
        self.saver = Saver(
            bucket, self.committer, self.share_memory, parallel=parallel, committed=self._count
        )

    def take(self, made: Snapshot, *plans: Plan, worker: int = 1, is_new: bool = True) -> None:
        """Copy a snapshot; `is_new`: with plans that are told now, instead of those before."""
        if is_new:
            self.share_memory.plan(worker, plans)
        for plan in plans:
            buffer, _ = self.share_memory.claim(worker, plan.id)
            memory = self.share_memory.memory(worker, plan.id, buffer)
            memory.view[:] = bytes([made.step % 256]) * memory.size
            record = record_of(self.share_memory, worker, plan, buffer, made)
            record.is_on_one_node = self.is_on_one_node
            self.share_memory.add(worker, plan.id, buffer, record)
            self.saver.add(record)

    def _count(self) -> None:
        self.commits += 1


class Gate:
    """`before` of a `Meddling`: requests of one kind wait here until it is opened."""

    def __init__(self, verb: str, end: str) -> None:
        self._verb, self._end = verb, end
        self.names: list[str] = []
        self.reached, self.opened = Event(), Event()

    def __call__(self, verb: str, name: str) -> None:
        if verb == self._verb and name.endswith(self._end):
            self.names.append(name)
            self.reached.set()
            assert self.opened.wait(PATIENCE_S)

    def over(self, folder: Path) -> Meddling:
        return Meddling(FolderBucket(str(folder)), self)

    def wait_reached(self) -> None:
        assert self.reached.wait(PATIENCE_S)


def committed(bucket: Bucket) -> list[LogEntry]:
    """All entries of the log that are checkpoints, oldest first; each can be read."""
    log = CommitLog(bucket)
    numbers = range(1, log.newest_number() + 1)
    found = [each for each in map(log.entry, numbers) if each.kind is LogEntryKind.COMMITTED]
    for entry in found:
        manifest = read_manifest(bucket, entry)
        for part in manifest.parts:
            data = bucket.read(f"{entry.snapshot.folder}/{part.name}", part.size)
            assert data == bytes([entry.snapshot.step % 256]) * part.size
    return found


def memfds() -> Counter[tuple[int, int]]:
    """Descriptors of keepers' memory."""
    return open_files(lambda target: target.startswith("/memfd:elasticd-checkpoint"))

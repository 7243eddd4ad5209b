"""A small state, how two holders save it, and how a stranger loads it."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from elasticd.checkpoint.commit.committer import CommitOutcome, Committer, read_manifest
from elasticd.checkpoint.commit.fetch import extents, fetch, size_of
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.commit.upload import UploadShare, upload
from elasticd.checkpoint.format import share_layout
from elasticd.checkpoint.format.entry import LogEntry, LogEntryKind
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import DTYPE_BYTES, Fragment, Header, Manifest, Tensor
from elasticd.checkpoint.format.share_layout import laid_out, shares
from elasticd.checkpoint.storage.bucket import Bucket

Values = dict[str, bytes]

TENSORS = (
    Tensor("weight", "float32", (12, 5)),
    Tensor("bias", "bfloat16", (7,)),
    Tensor("norm.running_mean", "float64", (3,)),
    Tensor("step", "int64", ()),
    Tensor("empty", "uint8", (0, 4)),
)
IS_ALIKE = (True, True, False, True, True)
SHARES = 2
JOB, UID = "job", "uid-1"


OLD = Snapshot(run=1, generation=1, step=10)
NEW = Snapshot(run=1, generation=1, step=20)


def save_two(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """OLD and NEW, each of several parts although they are small."""
    monkeypatch.setattr(share_layout, "PART_BYTES", 192)
    monkeypatch.setattr(share_layout, "CUT_BYTES", 64)
    committer(bucket).open(1, 0)
    for snapshot in (OLD, NEW):
        assert save(bucket, snapshot) is CommitOutcome.COMMITTED
    assert load(bucket) == (NEW, values(NEW))


def values(snapshot: Snapshot, tensors: tuple[Tensor, ...] = TENSORS) -> Values:
    """The state of this snapshot, which has not a byte in common with another's but by chance."""
    draw = random.Random(str(snapshot))
    return {each.name: draw.randbytes(each.nbytes) for each in tensors}


def committer(bucket: Bucket, uid: str = UID) -> Committer:
    """What one process has: its own view of the log."""
    return Committer(bucket=bucket, log=CommitLog(bucket), uid=uid, job=JOB)


def uploaded(
    bucket: Bucket,
    snapshot: Snapshot,
    *,
    writer: str = "00000000",
    uid: str = UID,
    tensors: tuple[Tensor, ...] = TENSORS,
) -> list[Fragment]:
    """Upload all shares, one after the other, so that the order of requests is always the same."""
    is_replicated = IS_ALIKE if tensors is TENSORS else (True,) * len(tensors)
    plain = values(snapshot, tensors)
    header = Header(
        snapshot=snapshot, job=JOB, uid=uid, epoch=1, world_size=SHARES, shares=SHARES,
        taken_unix_s=1.5, version="0", skeleton="{}", tensors=tensors,
    )  # fmt: skip
    found = []
    for number, slabs in enumerate(shares(tensors, is_replicated, SHARES)):
        layout = laid_out(tensors, slabs)
        memory = bytearray(layout.size)
        for piece, start in zip(layout.pieces, layout.starts(), strict=True):
            data = boxed(tensors[piece.tensor], plain)[
                tuple(slice(o, o + s) for o, s in zip(piece.offsets, piece.shape, strict=True))
            ].tobytes()
            memory[start : start + len(data)] = data
        share = UploadShare(
            snapshot=snapshot, share=number, shares=SHARES, holder=0, layout=layout,
            header=header if number == 0 else None,
        )  # fmt: skip
        with ThreadPoolExecutor(1) as pool:
            found.append(
                upload(bucket, share, memoryview(memory), uid=uid, writer=writer, pool=pool)
            )
    return found


def boxed(tensor: Tensor, plain: Values) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    flat = np.frombuffer(plain[tensor.name], dtype=np.uint8)
    return flat.reshape(*tensor.shape, DTYPE_BYTES[tensor.dtype])


def save(
    bucket: Bucket,
    snapshot: Snapshot,
    *,
    writer: str = "00000000",
    uid: str = UID,
    tensors: tuple[Tensor, ...] = TENSORS,
) -> CommitOutcome:
    """Upload and commit."""
    uploaded(bucket, snapshot, writer=writer, uid=uid, tensors=tensors)
    manifest = committer(bucket, uid).gather(snapshot, SHARES, ())
    assert manifest is not None
    return committer(bucket, uid).commit(manifest)


def loaded_manifest(bucket: Bucket, manifest: Manifest) -> Values:
    """Read all of it, as a process of another world size would."""
    every, starts, size = extents(manifest, manifest.pieces)
    memory = bytearray(size)
    with ThreadPoolExecutor(2) as pool:
        fetch(bucket, manifest, every, memoryview(memory), pool)
    tensors = manifest.header.tensors
    arrays = [np.zeros((*each.shape, DTYPE_BYTES[each.dtype]), dtype=np.uint8) for each in tensors]
    for piece, start in zip(manifest.pieces, starts, strict=True):
        data = memory[start : start + size_of(manifest, piece)]
        box = tuple(slice(o, o + s) for o, s in zip(piece.offsets, piece.shape, strict=True))
        arrays[piece.tensor][box] = np.frombuffer(data, dtype=np.uint8).reshape(
            arrays[piece.tensor][box].shape
        )
    return {tensor.name: held.tobytes() for tensor, held in zip(tensors, arrays, strict=True)}


def load(bucket: Bucket) -> tuple[Snapshot, Values] | None:
    """Load the newest checkpoint that is whole; None: there is none."""
    for entry in CommitLog(bucket).checkpoints():
        try:
            return entry.snapshot, loaded_manifest(bucket, read_manifest(bucket, entry))
        except Damaged:
            continue
    return None


def committed(bucket: Bucket) -> Iterator[LogEntry]:
    """All that the log says is committed, oldest first; every number is there and readable."""
    log = CommitLog(bucket)
    for number in range(1, log.newest_number() + 1):
        entry = log.entry(number)
        if entry.kind is LogEntryKind.COMMITTED:
            yield entry


def assert_whole(bucket: Bucket) -> list[Snapshot]:
    """Fail unless all that the log names loads, bit for bit; return what that is."""
    found = []
    for entry in committed(bucket):
        plain = loaded_manifest(bucket, read_manifest(bucket, entry))
        assert plain == values(entry.snapshot), f"{entry.snapshot} is not what was saved"
        found.append(entry.snapshot)
    return found

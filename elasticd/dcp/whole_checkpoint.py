"""Loads a whole checkpoint into one process, for `export` and for anybody who wants to look inside.

It reads batches of pieces, so it needs memory for the state and one batch; nothing reaches a tensor
before its checksums agree.
"""

import itertools
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from math import prod
from typing import Any

import torch

from elasticd.checkpoint.commit.committer import read_manifest
from elasticd.checkpoint.commit.fetch import extents, fetch, size_of
from elasticd.checkpoint.format.entry import LogEntry
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.manifest import DTYPE_BYTES, Header, Manifest, Piece, Tensor
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.errors import EnvironmentProblem, Fenced
from elasticd.tensors.tensor_spec import dtype_named
from elasticd.tensors.tree import Tree, unflatten

__all__ = ["load", "load_tensors"]

BATCH_BYTES = 512 << 20
THREADS = 8


def load(bucket: Bucket, entry: LogEntry) -> tuple[Header, Any]:
    """Return the header and the nested state of a checkpoint, its tensors on the CPU.

    Raises:
        Damaged: the checkpoint is not as it was written.
        NotSupported: this torch lacks one of its dtypes.
    """
    manifest = read_manifest(bucket, entry)
    header = manifest.header
    tree = Tree(header.skeleton, load_tensors(bucket, manifest))
    try:
        return header, unflatten(tree)
    except (Fenced, RuntimeError, AttributeError) as exc:  # The last two: of a crafted one.
        raise Damaged(f"The skeleton of {header.snapshot} cannot be read: {exc}") from exc


def load_tensors(bucket: Bucket, manifest: Manifest) -> tuple[torch.Tensor, ...]:
    """Read all tensors, each in memory of its own.

    Raises:
        Damaged, NotSupported: as `load`.
    """
    dtypes = {name: dtype_named(name) for name in {each.dtype for each in manifest.header.tensors}}
    tensors = [_empty(each, dtypes[each.dtype], manifest) for each in manifest.header.tensors]
    with ThreadPoolExecutor(THREADS) as pool:
        for batch in _batches(manifest):
            _fill(bucket, manifest, batch, tensors, pool)
    return tuple(tensors)


def _empty(tensor: Tensor, dtype: torch.dtype, manifest: Manifest) -> torch.Tensor:
    try:
        return torch.empty(tensor.shape, dtype=dtype)
    except (RuntimeError, MemoryError) as exc:
        raise EnvironmentProblem(
            f"There is no memory for {tensor.name}: the whole state has {manifest.nbytes} bytes. "
            "Take a machine with more."
        ) from exc


def _batches(manifest: Manifest) -> Iterator[list[int]]:
    """Cut the pieces, in the order in which they stand in the parts, into batches for one read."""
    order = sorted(
        range(len(manifest.pieces)),
        key=lambda index: (manifest.pieces[index].part, manifest.pieces[index].at),
    )
    sizes = (size_of(manifest, manifest.pieces[index]) for index in order)
    starts = itertools.accumulate(sizes, initial=0)
    grouped = itertools.groupby(
        zip(order, starts, strict=False), key=lambda each: each[1] // BATCH_BYTES
    )
    for _, group in grouped:
        yield [index for index, _ in group]


def _fill(
    bucket: Bucket,
    manifest: Manifest,
    batch: list[int],
    tensors: list[torch.Tensor],
    pool: Executor,
) -> None:
    every, starts, size = extents(manifest, [manifest.pieces[index] for index in batch])
    scratch = torch.empty(size, dtype=torch.uint8)
    fetch(bucket, manifest, every, scratch.numpy().data, pool)
    for index, start in zip(batch, starts, strict=True):
        piece = manifest.pieces[index]
        tensor = manifest.header.tensors[piece.tensor]
        size_bytes = size_of(manifest, piece)
        if size_bytes:
            source = scratch[start : start + size_bytes]
            _place(tensors[piece.tensor], tensor, piece, source)


def _place(target: torch.Tensor, tensor: Tensor, piece: Piece, source: torch.Tensor) -> None:
    """Copy a piece's bytes to its box; as bytes, so that no dtype needs a copy of its own."""
    if not tensor.shape:
        target.reshape(1).view(torch.uint8).copy_(source)
        return
    width = DTYPE_BYTES[tensor.dtype]
    bytes_of = target.view(torch.uint8)
    box = [
        slice(offset, offset + size)
        for offset, size in zip(piece.offsets[:-1], piece.shape[:-1], strict=True)
    ]
    last = slice(piece.offsets[-1] * width, (piece.offsets[-1] + piece.shape[-1]) * width)
    assert prod(piece.shape) * width == source.numel()
    bytes_of[(*box, last)].copy_(source.view(*piece.shape[:-1], piece.shape[-1] * width))

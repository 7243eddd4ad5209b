"""Uploads the tensors that one rank writes, a part at a time.

A share that lies in memory as a whole is uploaded by `elasticd.checkpoint.commit.upload`. Here the
tensors lie where the training left them, so each part is assembled when there is room for it: a few
parts of memory, however large the model is.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import prod

import torch

from elasticd.checkpoint.format.checksum import block_sums
from elasticd.checkpoint.format.layout import part_name
from elasticd.checkpoint.format.manifest import DTYPE_BYTES, Part, Piece, Tensor
from elasticd.checkpoint.format.share_layout import Slab, laid_out
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.errors import CallError
from elasticd.tensors.tensor_spec import dtype_of

__all__ = ["TensorSource", "described", "write_parts"]

IN_FLIGHT = 8
"""How many parts are in memory, and how many connections there are: half a GiB, enough to fill a
fast line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSource:
    """A box of a tensor that this rank writes, and where its values come from."""

    tensor: Tensor
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    resolve: Callable[[], torch.Tensor]


def described(name: str, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """Return what a manifest says of a tensor.

    Raises: CallError: a manifest cannot hold such a tensor.
    """
    text = str(dtype).removeprefix("torch.")
    if text not in DTYPE_BYTES:
        raise CallError(
            f"{name} is a tensor of {text}, which a checkpoint cannot hold; save it as another "
            "type, or as numbers."
        )
    return Tensor(name, text, tuple(shape))


def write_parts(
    bucket: Bucket, folder: str, sources: Sequence[TensorSource], *, share: int, writer: str
) -> tuple[tuple[Part, ...], tuple[Piece, ...]]:
    """Write what the sources have; pieces name their tensor by the source's index.

    `writer` is a name of this process in this save, so that nothing is ever written over.
    """
    if not sources:
        return (), ()
    slabs = [Slab(index, each.offsets, each.shape) for index, each in enumerate(sources)]
    layout = laid_out([each.tensor for each in sources], slabs)
    by_part: list[list[Piece]] = [[] for _ in layout.parts]
    for piece in layout.pieces:
        by_part[piece.part].append(piece)
    resolved: tuple[int, torch.Tensor] | None = None
    tasks: list[Future[Part]] = []

    def values(index: int) -> torch.Tensor:
        nonlocal resolved
        if resolved is None or resolved[0] != index:
            resolved = None  # Let go of the one before first.
            resolved = index, _checked(sources[index])
        return resolved[1]

    def send(index: int, memory: torch.Tensor) -> Part:
        data = memory.numpy().data
        name = part_name(share, 0, writer, index)
        bucket.create(f"{folder}/{name}", data)
        return Part(name, len(data), block_sums(data))

    with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="elasticd-write") as pool:
        try:
            for index, (_, size) in enumerate(layout.parts):
                if index >= IN_FLIGHT:
                    tasks[index - IN_FLIGHT].result()
                # Zeros: between the pieces there must be nothing of what this memory held before.
                memory = torch.zeros(size, dtype=torch.uint8)
                for piece in by_part[index]:
                    _fill(memory, piece, sources[piece.tensor], values(piece.tensor))
                tasks.append(pool.submit(send, index, memory))
            parts = tuple(task.result() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()
    return parts, layout.pieces


def _checked(source: TensorSource) -> torch.Tensor:
    tensor = source.resolve().detach()
    name = source.tensor.name
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        raise CallError(
            f"{name} is a tensor without ordinary memory ({tensor.layout}, {tensor.device}), which "
            "a checkpoint cannot hold; save a dense tensor."
        )
    if tensor.dtype != dtype_of(source.tensor) or tuple(tensor.shape) != source.shape:
        raise CallError(
            f"{name} is planned as {source.tensor.dtype} {list(source.shape)}, and what the "
            f"planner gives to be written is {tensor.dtype} {list(tensor.shape)}."
        )
    return tensor


def _fill(memory: torch.Tensor, piece: Piece, source: TensorSource, tensor: torch.Tensor) -> None:
    size = prod(piece.shape) * DTYPE_BYTES[source.tensor.dtype]
    if not size:
        return
    box = tensor
    for dimension, (start, length) in enumerate(zip(piece.offsets, piece.shape, strict=True)):
        box = box.narrow(dimension, start - source.offsets[dimension], length)
    room = memory[piece.at : piece.at + size]
    room.view(tensor.dtype).view(piece.shape).copy_(box)

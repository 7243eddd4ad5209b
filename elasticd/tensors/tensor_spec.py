"""A state as a checkpoint describes it: names, types and shapes, and what is equal on all ranks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import torch

from elasticd.checkpoint.format.manifest import DTYPE_BYTES, Piece, Tensor
from elasticd.errors import CallError, NotSupported
from elasticd.tensors.local_shard import memories_of
from elasticd.tensors.tree import Tree, paths

__all__ = ["alike", "described", "dtype_named", "dtype_of", "views"]


def described(tree: Tree) -> tuple[Tensor, ...]:
    """Name and measure the tensors of a state.

    Raises:
        CallError: one is of a type that has no place in a checkpoint.
    """
    found = []
    for path, tensor in zip(paths(tree), tree.tensors, strict=True):
        name = str(tensor.dtype).removeprefix("torch.")
        if name not in DTYPE_BYTES:
            raise CallError(
                f"{path} is of the type {name}, which a checkpoint cannot hold: keep it in another "
                "type."
            )
        found.append(Tensor(path, name, tuple(tensor.shape)))
    if len({each.name for each in found}) < len(found):
        twice, _ = Counter(each.name for each in found).most_common(1)[0]
        raise CallError(
            f"Two tensors of the state are called {twice}: leave dots out of its keys, and do not "
            "mix numbers and text."
        )
    return tuple(found)


def alike(tree: Tree, optimizers: Iterable[torch.optim.Optimizer]) -> list[bool]:
    """Return for each tensor whether all replicas have it bit for bit: what optimizers own is."""
    # Of thousands at each snapshot, so loops run in C where they can.
    owned = set(map(torch.Tensor.data_ptr, memories_of(_owned(optimizers))))
    here = map(torch.Tensor.data_ptr, memories_of(tree.tensors))
    return list(map(owned.__contains__, here))


def dtype_of(tensor: Tensor) -> torch.dtype:
    """Return torch's dtype of a tensor that a manifest describes; raises as `dtype_named`."""
    return dtype_named(tensor.dtype)


def dtype_named(name: str) -> torch.dtype:
    """Return torch's dtype of this name.

    Raises:
        NotSupported: this torch has no such dtype.
    """
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise NotSupported(
            f"The checkpoint has tensors of {name}, which torch {torch.__version__} does not know: "
            "load it with a newer torch."
        )
    return found


def views(
    memory: memoryview, tensors: Sequence[Tensor], pieces: Sequence[Piece], starts: Sequence[int]
) -> list[torch.Tensor]:
    """Return tensors over memory, each with the elements of one piece; `starts` are their first
    bytes.

    A piece that is not aligned to its type, as those of another writer may be, is copied. Pieces
    that are to be written to must be aligned, as `share_layout.laid_out` aligns them.
    """
    found = []
    for piece, start in zip(pieces, starts, strict=True):
        dtype = dtype_of(tensors[piece.tensor])
        count = 1
        for size in piece.shape:
            count *= size
        if not count:
            flat = torch.empty(0, dtype=dtype)
        elif start % dtype.itemsize:
            size = count * dtype.itemsize
            raw = torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=start)
            flat = raw.clone().view(dtype)
        else:
            flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=start)
        found.append(flat.view(piece.shape))
    return found


def _owned(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[torch.Tensor]:
    """Yield what `owned_tensors` has, without the names: this is asked at each snapshot."""
    for optimizer in optimizers:
        state = optimizer.state
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                yield parameter
                if (kept := state.get(parameter)) is not None:
                    yield from (each for each in kept.values() if isinstance(each, torch.Tensor))

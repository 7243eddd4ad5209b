"""What is restored is written to its place, and nothing beside it."""

from collections.abc import Sequence

import torch

from elasticd.checkpoint.format.manifest import Piece, Tensor
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.train.restore.piece_copy import PieceDestinations

TENSORS = (
    Tensor("wide", "float32", (6, 4)),
    Tensor("one", "int64", ()),
    Tensor("half", "bfloat16", (5,)),
    Tensor("none", "float32", (0, 3)),
)


def values() -> list[torch.Tensor]:
    return [
        torch.arange(24, dtype=torch.float32).view(6, 4),
        torch.tensor(2**40 + 1),
        torch.arange(5, dtype=torch.bfloat16),
        torch.empty(0, 3),
    ]


def piece(tensor: int, offsets: Sequence[int], shape: Sequence[int]) -> Piece:
    return Piece(tensor, tuple(offsets), tuple(shape), 0, 0)


PIECES = (
    piece(0, (0, 0), (2, 4)),
    piece(1, (), ()),
    piece(0, (2, 0), (4, 2)),  # Columns: not side by side in the tensor.
    piece(0, (2, 2), (4, 2)),
    piece(2, (0,), (5,)),
    piece(3, (0, 0), (0, 3)),
)


def held() -> tuple[SharedMemory, list[int]]:
    """All pieces, one behind the other, with gaps."""
    memory, starts, at = SharedMemory.new(4096), [], 8
    for each in PIECES:
        whole = values()[each.tensor]
        for dimension, (offset, size) in enumerate(zip(each.offsets, each.shape, strict=True)):
            whole = whole.narrow(dimension, offset, size)
        data = whole.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        memory.view[at : at + len(data)] = data
        starts.append(at)
        at += len(data) + 16 - len(data) % 8
    return memory, starts


def test_every_element_comes_to_its_place() -> None:
    places = [torch.zeros_like(each) for each in values()]
    memory, starts = held()
    PieceDestinations(TENSORS, places).put(memory.view, PIECES, starts)
    for place, value in zip(places, values(), strict=True):
        assert torch.equal(place, value)


def test_place_with_gaps_keeps_what_stands_between() -> None:
    """A tensor that is every other column of another."""
    whole = torch.full((6, 8), -1.0)
    places = [whole[:, ::2], *values()[1:]]
    memory, starts = held()
    PieceDestinations(TENSORS, places).put(memory.view, PIECES, starts)
    assert torch.equal(whole[:, ::2], values()[0])
    assert (whole[:, 1::2] == -1.0).all()


def test_parameters_are_written_although_they_have_gradients() -> None:
    place = torch.nn.Parameter(torch.zeros(6, 4))
    memory, starts = held()
    PieceDestinations(TENSORS, [place, *values()[1:]]).put(memory.view, PIECES, starts)
    assert torch.equal(place, values()[0])

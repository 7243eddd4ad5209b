"""What is restored is written to its place, and nothing beside it."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elasticd.checkpoint.format import share_layout
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.manifest import DTYPE_BYTES, Manifest, Part, Piece, Tensor
from elasticd.checkpoint.format.piece_rows import selected
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.tensors.local_shard import LocalShard, local_rows
from elasticd.tensors.tensor_spec import dtype_of, views
from elasticd.train.restore.piece_copy import PieceDestinations
from tests.unit.checkpoint.records import header

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


def test_state_is_whole_once_every_element_has_come_and_none_twice() -> None:
    destinations = PieceDestinations(TENSORS, [torch.zeros_like(each) for each in values()])
    memory, starts = held()
    destinations.put(memory.view, PIECES[:-2], starts[:-2])
    with pytest.raises(Damaged, match="half is not whole: it has 5 elements, and the pieces 0"):
        destinations.check_complete()
    destinations.put(memory.view, PIECES[-2:], starts[-2:])
    destinations.check_complete()
    destinations.put(memory.view, PIECES[:1], starts[:1])
    with pytest.raises(Damaged, match="wide is not whole: it has 24 elements, and the pieces 32"):
        destinations.check_complete()


SIZES = st.lists(st.sampled_from([0, 1, 2, 3, 5, 8]), max_size=3).map(tuple)
STATES = st.lists(
    st.tuples(st.sampled_from(sorted(DTYPE_BYTES.keys() - {"complex32"})), SIZES),
    min_size=1,
    max_size=5,
)


@given(state=STATES, count=st.integers(1, 4), seed=st.integers(0, 1 << 32))
def test_rows_that_a_box_asks_for_bring_all_of_it(
    state: Sequence[tuple[str, tuple[int, ...]]], count: int, seed: int
) -> None:
    """Of a state of any types that was cut small: each row comes from its own bytes alone."""
    random = Random(seed)
    tensors = tuple(Tensor(f"t{i}", dtype, shape) for i, (dtype, shape) in enumerate(state))
    data = [random.randbytes(each.nbytes) for each in tensors]
    for index, each in enumerate(tensors):
        if each.dtype == "bool":  # Any other byte is no value of it: a copy may write 1 instead.
            data[index] = bytes(byte & 1 for byte in data[index])
    whole = [
        torch.frombuffer(bytearray(each), dtype=torch.uint8) if each else torch.empty(0)
        for each in data
    ]
    boxes = []
    for tensor in tensors:
        ends = [sorted((random.randint(0, size), random.randint(0, size))) for size in tensor.shape]
        boxes.append((tuple(low for low, _ in ends), tuple(high - low for low, high in ends)))
    here = [
        LocalShard(torch.zeros(shape, dtype=dtype_of(each)), first, False, True)
        for each, (first, shape) in zip(tensors, boxes, strict=True)
    ]
    manifest, memory = _cut_small(tensors, whole, count)
    manifest.check()
    destinations = PieceDestinations(tensors, [])
    destinations.here, destinations._landed = here, [[] for _ in here]
    for piece in selected(manifest, local_rows(manifest.pieces, here)):
        size = DTYPE_BYTES[tensors[piece.tensor].dtype] * torch.Size(piece.shape).numel()
        row = memory[piece.part][piece.at : piece.at + size]
        assert len(row) == size
        destinations.put(memoryview(bytearray(row)), [piece], [0])
    destinations.check_complete()
    for tensor, flat, part, (first, shape) in zip(tensors, whole, here, boxes, strict=True):
        if part.tensor.numel():
            wanted = _box(_elements(flat, tensor), first, shape)
            assert torch.equal(_elements(part.tensor.reshape(-1), tensor, shape), wanted)


def _elements(
    flat: torch.Tensor, tensor: Tensor, shape: tuple[int, ...] | None = None
) -> torch.Tensor:
    """The bytes of each element, in one more dimension."""
    width = DTYPE_BYTES[tensor.dtype]
    return flat.view(torch.uint8).view(*(tensor.shape if shape is None else shape), width)


def _box(values: torch.Tensor, first: Sequence[int], shape: Sequence[int]) -> torch.Tensor:
    for axis, (start, size) in enumerate(zip(first, shape, strict=True)):
        values = values.narrow(axis, start, size)
    return values


def _cut_small(
    tensors: Sequence[Tensor], whole: Sequence[torch.Tensor], count: int
) -> tuple[Manifest, list[bytes]]:
    """A checkpoint of these bytes with limits so small that most tensors are cut."""
    memory: list[bytes] = []
    parts: list[Part] = []
    pieces: list[Piece] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(share_layout, "CUT_BYTES", 8)
        patch.setattr(share_layout, "PART_BYTES", 64)
        cut = share_layout.shares(tensors, [True] * len(tensors), count)
        layouts = [share_layout.laid_out(tensors, slabs) for slabs in cut]
    for layout in layouts:
        written = bytearray(max(1, layout.size))
        places = views(memoryview(written), tensors, layout.pieces, layout.starts())
        for piece, place in zip(layout.pieces, places, strict=True):
            tensor = tensors[piece.tensor]
            if place.numel():
                source = _box(_elements(whole[piece.tensor], tensor), piece.offsets, piece.shape)
                _elements(place.view(-1), tensor, piece.shape).copy_(source)
        first = len(parts)
        parts += [Part(f"p{first}", size, ()) for _, size in layout.parts]
        memory += [bytes(written[at : at + size]) for at, size in layout.parts]
        pieces += [Piece(p.tensor, p.offsets, p.shape, first + p.part, p.at) for p in layout.pieces]
    said = replace(header(), tensors=tuple(tensors))
    return Manifest(header=said, parts=tuple(parts), pieces=tuple(pieces)), memory

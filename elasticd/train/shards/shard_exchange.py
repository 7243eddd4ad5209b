"""Sends every rank the boxes of sharded tensors that the rank is to hold, and nothing else.

A broadcast would bring each rank the whole of a state of which it keeps a part: at 70 billion
parameters a quarter of an hour for each failure, however many ranks there are. Here all ranks know
which boxes each rank is to hold and which each can give. So each rank computes by itself who sends
which box to whom and in which order, and all-to-alls carry the boxes.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
import torch.distributed as dist

from elasticd.checkpoint.format.checksum import number_sum, text_sum
from elasticd.checkpoint.format.manifest import DTYPE_BYTES, Piece, Tensor
from elasticd.tensors.local_shard import LocalShard
from elasticd.tensors.tensor_spec import views
from elasticd.train.shards.share_broadcast import BroadcastGroup, Load, broadcast_text, check_all

__all__ = ["ShardBox", "all_boxes", "compact", "packed", "redistribute", "spread_of", "turns_of"]

TURN_BYTES = 32 << 20
"""The bytes that one rank sends in one collective: an aborted group is left soon."""
LEAST_BYTES = 64 << 10
"""The least bytes for one rank in a turn, however many ranks there are."""
ALIGNED_BYTES = 16
COPIED_SHARE = 0.9
"""If more than this part of the bytes would travel for nothing, a copy is cheaper."""


class ShardBox(NamedTuple):
    """A box of a tensor: the offsets of its first element, and its shape."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]


class ShardUnit(NamedTuple):
    """The elements that two ranks have in common of one piece, or some rows of these."""

    source: int
    """Number of the piece among those of its giver."""
    tensor: int
    box: ShardBox
    nbytes: int


def all_boxes(
    group: BroadcastGroup, tensors: Sequence[Tensor], here: Sequence[LocalShard]
) -> list[list[ShardBox]]:
    """Return the box that each rank holds of each tensor; collective."""
    own = [ShardBox(each.origin, tuple(each.tensor.shape)) for each in here]
    if group.size == 1:
        return [own]
    numbers = torch.tensor([n for box in own for n in box.offsets + box.shape], dtype=torch.int64)
    found = [torch.empty_like(numbers) for _ in range(group.size)]
    dist.all_gather(found, numbers)
    return [_boxes(tensors, each.tolist()) for each in found]


def spread_of(tensors: Sequence[Tensor], boxes: Sequence[Sequence[ShardBox]]) -> list[bool]:
    """Return for each tensor whether a rank holds less than all of it; the same on all ranks.

    Pure.
    """
    return [
        any(held[index].shape != tensor.shape for held in boxes)
        for index, tensor in enumerate(tensors)
    ]


def packed(load: Load, tensors: Sequence[Tensor], is_sharded: Sequence[bool]) -> tuple[Load, Load]:
    """Split a load into what all ranks hold and what is sharded, which is never copied."""
    memory, pieces, starts = load
    rows = list(zip(pieces, starts, strict=True))
    alike = [row for row in rows if not is_sharded[row[0].tensor]]
    spread = [row for row in rows if is_sharded[row[0].tensor]]
    sharded = memory, [piece for piece, _ in spread], [start for _, start in spread]
    return compact(
        (memory, [piece for piece, _ in alike], [start for _, start in alike]), tensors
    ), sharded


def compact(load: Load, tensors: Sequence[Tensor]) -> Load:
    """Leave out the bytes that belong to no piece; copy only if the saving is worth a copy."""
    memory, pieces, starts = load
    units = [
        ShardUnit(0, piece.tensor, box, _nbytes(box, tensors[piece.tensor]))
        for piece in pieces
        for box in (ShardBox(piece.offsets, piece.shape),)
    ]
    size = sum(_aligned(unit.nbytes) for unit in units)
    if size > len(memory) * COPIED_SHARE:
        return load
    own = memoryview(bytearray(size))
    for unit, at, start in zip(units, _starts(units), starts, strict=True):
        own[at : at + unit.nbytes] = memory[start : start + unit.nbytes]
    return own, pieces, _starts(units)


def redistribute(
    group: BroadcastGroup,
    mine: Sequence[Load],
    tensors: Sequence[Tensor],
    boxes: Sequence[Sequence[ShardBox]],
) -> Iterator[Load]:
    """Yield those elements of all ranks' boxes that this rank is to hold, as pieces; collective.

    A load is good until the next is asked for.

    Raises:
        Damaged: bytes arrived that were not those sent; they are not yielded.
        BroadcastFailed: another rank received bytes that were not those sent.
    """
    yield from mine  # Whoever lands it takes its own part.
    if group.size == 1:
        return
    values = [view for load in mine for view in views(load[0], tensors, load[1], load[2])]
    given = _all_given(group, [(p.tensor, p.offsets, p.shape) for load in mine for p in load[1]])
    limit = max(LEAST_BYTES, TURN_BYTES // group.size)
    nobody: list[list[ShardUnit]] = []
    to = [
        nobody if rank == group.rank else turns_of(given[group.rank], boxes[rank], tensors, limit)
        for rank in range(group.size)
    ]
    of = [
        nobody if rank == group.rank else turns_of(given[rank], boxes[group.rank], tensors, limit)
        for rank in range(group.size)
    ]
    most = torch.tensor(max(map(len, to + of)), dtype=torch.int64)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    wrong: set[int] = set()
    for turn in range(int(most)):
        sent = [each[turn] if turn < len(each) else [] for each in to]
        taken = [each[turn] if turn < len(each) else [] for each in of]
        yield _exchanged(sent, taken, given[group.rank], values, tensors, wrong)
    check_all(_sentence_of(wrong))


def _all_given(
    group: BroadcastGroup, own: Sequence[tuple[int, Sequence[int], Sequence[int]]]
) -> list[list[tuple[int, ShardBox]]]:
    """Return which boxes of which tensors each rank has to give; collective.

    Raises:
        Damaged, BroadcastFailed: a rank's list arrived damaged, here or on another rank.
    """
    text = json.dumps(own).encode()
    checksummed = text_sum(text).encode() + text
    received = [
        broadcast_text(checksummed if rank == group.rank else b"", rank)
        for rank in range(group.size)
    ]
    cut = len(text_sum(b""))
    wrong = [
        rank for rank, each in enumerate(received) if text_sum(each[cut:]).encode() != each[:cut]
    ]
    check_all(_sentence_of(wrong))
    return [_rows(each[cut:]) for each in received]


def _sentence_of(wrong: Collection[int]) -> str:
    return (
        f"What rank {min(wrong)} sent came as something else: a checksum differs." if wrong else ""
    )


def turns_of(
    given: Sequence[tuple[int, ShardBox]],
    held: Sequence[ShardBox],
    tensors: Sequence[Tensor],
    limit: int,
) -> list[list[ShardUnit]]:
    """Return what a rank that has `given` sends to one that holds `held`, turn by turn. Pure.

    Both ranks compute it. A turn has at most `limit` bytes, or a single row.
    """
    turns: list[list[ShardUnit]] = []
    left = 0
    for source, (tensor, box) in enumerate(given):
        for part in _cut(_common(box, held[tensor]), DTYPE_BYTES[tensors[tensor].dtype], limit):
            unit = ShardUnit(source, tensor, part, _nbytes(part, tensors[tensor]))
            size = _aligned(unit.nbytes)
            if not turns or size > left:
                turns.append([])
                left = limit
            turns[-1].append(unit)
            left -= size
    return turns


def _exchanged(
    sent: Sequence[Sequence[ShardUnit]],
    taken: Sequence[Sequence[ShardUnit]],
    given: Sequence[tuple[int, ShardBox]],
    values: Sequence[torch.Tensor],
    tensors: Sequence[Tensor],
    wrong: set[int],
) -> Load:
    """Run one turn, to and from each rank. Leave out what arrived damaged; add its senders to
    `wrong`.
    """
    to = [sum(_aligned(unit.nbytes) for unit in units) for units in sent]
    of = [sum(_aligned(unit.nbytes) for unit in units) for units in taken]
    out, found = bytearray(sum(to)), bytearray(sum(of))
    flat = [unit for units in sent for unit in units]
    places = views(memoryview(out), tensors, [_piece(unit) for unit in flat], _starts(flat))
    for unit, place in zip(flat, places, strict=True):
        place.copy_(_within(values[unit.source], given[unit.source][1], unit.box))
    dist.all_to_all_single(_bytes(found), _bytes(out), of, to)
    their_sums = torch.zeros(len(to), dtype=torch.int64)
    dist.all_to_all_single(their_sums, torch.tensor(_sums(out, to), dtype=torch.int64))
    came = _sums(found, of)
    bad = {rank for rank, each in enumerate(their_sums.tolist()) if each != came[rank]}
    wrong |= bad
    flat = [unit for units in taken for unit in units]
    senders = [rank for rank, units in enumerate(taken) for _ in units]
    rows = [
        (_piece(unit), start)
        for unit, start, sender in zip(flat, _starts(flat), senders, strict=True)
        if sender not in bad
    ]
    return memoryview(found), [piece for piece, _ in rows], [start for _, start in rows]


def _sums(data: bytearray, sizes: Sequence[int]) -> list[int]:
    """Return the checksum of each rank's bytes (sent or received), one after another in `data`."""
    ends = list(accumulate(sizes, initial=0))
    return [number_sum(memoryview(data)[at:end]) for at, end in pairwise(ends)]


def _rows(text: bytes) -> list[tuple[int, ShardBox]]:
    return [(row[0], ShardBox(tuple(row[1]), tuple(row[2]))) for row in json.loads(text)]


def _boxes(tensors: Sequence[Tensor], numbers: Sequence[int]) -> list[ShardBox]:
    found, at = [], 0
    for tensor in tensors:
        middle, end = at + len(tensor.shape), at + 2 * len(tensor.shape)
        found.append(ShardBox(tuple(numbers[at:middle]), tuple(numbers[middle:end])))
        at = end
    return found


def _common(one: ShardBox, other: ShardBox) -> ShardBox:
    """Return the elements that both boxes have; a size is 0 if there are none."""
    low = tuple(map(max, one.offsets, other.offsets))
    ends = [
        min(a + s, b + t)
        for a, s, b, t in zip(one.offsets, one.shape, other.offsets, other.shape, strict=True)
    ]
    return ShardBox(low, tuple(max(0, end - at) for end, at in zip(ends, low, strict=True)))


def _cut(box: ShardBox, width: int, limit: int) -> Iterator[ShardBox]:
    """Cut a box into boxes of whole rows below the limit; a larger row becomes a box of its own."""
    if 0 in box.shape:
        return
    if not box.shape:
        yield box
        return
    row_bytes = width
    for size in box.shape[1:]:
        row_bytes *= size
    rows = max(1, limit // row_bytes)
    for first in range(0, box.shape[0], rows):
        offsets = (box.offsets[0] + first, *box.offsets[1:])
        yield ShardBox(offsets, (min(rows, box.shape[0] - first), *box.shape[1:]))


def _within(values: torch.Tensor, held: ShardBox, wanted: ShardBox) -> torch.Tensor:
    for dimension, size in enumerate(wanted.shape):
        first = wanted.offsets[dimension] - held.offsets[dimension]
        values = values.narrow(dimension, first, size)
    return values


def _nbytes(box: ShardBox, tensor: Tensor) -> int:
    count = DTYPE_BYTES[tensor.dtype]
    for size in box.shape:
        count *= size
    return count


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNED_BYTES) * ALIGNED_BYTES


def _starts(units: Sequence[ShardUnit]) -> list[int]:
    starts, at = [], 0
    for unit in units:
        starts.append(at)
        at += _aligned(unit.nbytes)
    return starts


def _piece(unit: ShardUnit) -> Piece:
    return Piece(unit.tensor, unit.box.offsets, unit.box.shape, 0, 0)


def _bytes(data: bytearray) -> torch.Tensor:
    if not data:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(data, dtype=torch.uint8)

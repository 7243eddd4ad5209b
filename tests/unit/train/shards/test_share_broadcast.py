"""What single ranks have reaches all of them, in one order."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist

from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.manifest import Piece, Tensor
from elasticd.errors import ElasticdError
from elasticd.train.shards import share_broadcast
from elasticd.train.shards.shard_exchange import ShardBox, redistribute
from elasticd.train.shards.share_broadcast import Load, broadcast_loads
from tests.fixtures.ranks import Cast
from tests.integration.checkpoint_dcp.troupe import Troupe

SIZE = 3


class FakeGroup(NamedTuple):
    rank: int
    size: int


def load_of(rank: int, index: int, size: int) -> Load:
    """Bytes that say whose they are."""
    memory = memoryview(bytearray([(7 * rank + index + at) % 251 for at in range(size)]))
    pieces = tuple(
        Piece(10 * rank + index, (first, 0), (size // 2, 1), 0, 0) for first in (0, size // 2)
    )
    return memory, pieces, (0, size // 2)


def plain(load: Load) -> Any:
    """What can be compared: which part of an object a piece was cut from is not told."""
    memory, pieces, starts = load
    return bytes(memory), [(each.tensor, each.offsets, each.shape) for each in pieces], starts


def exchange(rank: int, sizes: list[list[int]]) -> list[Any]:
    """Each rank has loads of these sizes; returns what this one gets."""
    share_broadcast.CHUNK_BYTES = 1000
    mine = [load_of(rank, index, size) for index, size in enumerate(sizes[rank])]
    return [plain(load) for load in broadcast_loads(FakeGroup(rank, len(sizes)), mine)]


@pytest.fixture(scope="module")
def troupe() -> Iterator[Troupe]:
    with Cast() as cast:
        yield Troupe(cast, SIZE)


@pytest.mark.parametrize(
    "sizes",
    [
        [[4], [6], [8]],
        [[], [6, 2], []],
        [[], [], []],
        [[0], [0, 4], [0]],
        [[999], [1000, 1001], [5500]],
    ],
    ids=str,
)
def test_every_rank_gets_the_loads_of_all(troupe: Troupe, sizes: list[list[int]]) -> None:
    """One of each in turn; also of who has none, an empty one, or more than a chunk."""
    wanted = [
        plain(load_of(rank, index, own[index]))
        for index in range(max(map(len, sizes)))
        for rank, own in enumerate(sizes)
        if index < len(own)
    ]
    for got in troupe.play(exchange, sizes, size=SIZE):
        assert got == wanted


def fail(rank: int, bad: int) -> tuple[list[Any], str]:
    """What a rank gets, and the error it meets, where one cannot bring its second load."""

    def bring() -> Iterator[Load]:
        yield load_of(rank, 0, 4)
        if rank == bad:
            raise Damaged("the second is damaged")
        yield load_of(rank, 1, 4)

    got = []
    try:
        got += [plain(load) for load in broadcast_loads(FakeGroup(rank, SIZE), bring())]
    except ElasticdError as exc:
        return got, f"{type(exc).__name__}: {exc}"
    return got, ""


@pytest.mark.parametrize("bad", range(SIZE))
def test_rank_that_fails_stops_all_at_the_same_place(troupe: Troupe, bad: int) -> None:
    """It says why; the others say that it was not them."""
    for rank, (_, said) in enumerate(troupe.play(fail, bad, size=SIZE)):
        if rank == bad:
            assert said == "Damaged: the second is damaged"
        else:
            assert said == f"BroadcastFailed: Rank {bad} could not bring its part."
    # Nobody waits in a broadcast that the others do not make.
    sizes = [[4], [4], [4]]
    assert len(troupe.play(exchange, sizes, size=SIZE)) == SIZE


def garble(rank: int, bad: int) -> tuple[list[Any], str]:
    """What a rank gets where the second load of rank 0 comes to one of them with another byte."""
    broadcast = dist.broadcast

    def meddled(tensor: torch.Tensor, source: int) -> None:
        broadcast(tensor, source)
        if rank == bad and source == 0 and tensor.nbytes == 40:
            tensor[17] ^= 4

    got = []
    dist.broadcast = meddled  # type: ignore[assignment]
    try:
        mine = [load_of(rank, 0, 12), load_of(rank, 1, 40)]
        for load in broadcast_loads(FakeGroup(rank, SIZE), mine):
            got.append(plain(load))
    except ElasticdError as exc:
        return got, f"{type(exc).__name__}: {exc}"
    finally:
        dist.broadcast = broadcast
    return got, ""


def test_what_came_as_something_else_is_not_yielded(troupe: Troupe) -> None:
    """All learn of it when all have passed on what they have, and none goes on."""
    heard = troupe.play(garble, 2, size=SIZE)
    sent = [
        plain(load_of(rank, index, 12 + 28 * index)) for index in (0, 1) for rank in range(SIZE)
    ]
    assert heard[2][0] == [*sent[:3], *sent[4:]] and heard[0][0] == heard[1][0] == sent
    said = "Damaged: What rank 0 passed on came as something else: a checksum differs."
    assert heard[2][1] == said
    for _, said in heard[:2]:
        assert said == "BroadcastFailed: Another rank did not get what it was sent."


def spread(rank: int, meddle: str) -> tuple[list[int], str]:
    """Rank 0 gives rows of a tensor of which each rank holds a third; which rows came whole."""
    exchange, broadcast = dist.all_to_all_single, dist.broadcast
    tensors = (Tensor("w", "uint8", (3 * 8, 16)),)
    boxes = [[ShardBox((8 * each, 0), (8, 16))] for each in range(SIZE)]
    data = memoryview(bytearray(at // 16 for at in range(3 * 8 * 16)))
    mine = [(data, [Piece(0, (0, 0), (24, 16), 0, 0)], [0])] if rank == 0 else []

    def garbled(tensor: torch.Tensor, *rest: Any) -> None:
        exchange(tensor, *rest)
        if meddle == "bytes" and rank == 2 and tensor.dtype == torch.uint8:
            tensor[5] ^= 4

    def misheard(tensor: torch.Tensor, source: int) -> None:
        broadcast(tensor, source)
        if meddle == "boxes" and rank == 1 and source == 0 and tensor.dtype == torch.uint8:
            tensor[-1] ^= 4

    rows: list[int] = []
    dist.all_to_all_single, dist.broadcast = garbled, misheard  # type: ignore[assignment]
    try:
        for memory, pieces, starts in redistribute(FakeGroup(rank, SIZE), mine, tensors, boxes):
            for piece, start in zip(pieces, starts, strict=True):
                rows += bytes(memory[start : start + 16 * piece.shape[0] : 16])
    except ElasticdError as exc:
        return rows, f"{type(exc).__name__}: {exc}"
    finally:
        dist.all_to_all_single, dist.broadcast = exchange, broadcast
    return rows, ""


@pytest.mark.parametrize(("meddle", "bad"), [("", 0), ("bytes", 2), ("boxes", 1)])
def test_what_was_sent_to_one_rank_is_compared_too(troupe: Troupe, meddle: str, bad: int) -> None:
    """Both the bytes, and what is told of them."""
    heard = troupe.play(spread, meddle, size=SIZE)
    if not meddle:
        assert heard == [(list(range(24)), ""), (list(range(8, 16)), ""), (list(range(16, 24)), "")]
        return
    for rank, (rows, said) in enumerate(heard):
        if rank == bad:
            assert said == "Damaged: What rank 0 sent came as something else: a checksum differs."
            assert not rows
        else:
            assert said == "BroadcastFailed: Another rank did not get what it was sent."


def test_rank_that_is_alone_keeps_what_it_has() -> None:
    """No group is needed for it."""
    loads = [load_of(0, 0, 4), load_of(0, 1, 6)]
    assert list(broadcast_loads(FakeGroup(0, 1), loads)) == loads
